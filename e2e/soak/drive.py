"""The shell around a soak: submits and ends jobs at drawn times, watches pods and Gangs, feeds the checker; the
referee watches, too."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import urllib3
from kubernetes import client

from e2e.cluster import Cluster, Pod, Refused
from e2e.elastic import train
from e2e.referee import ENDS, watching
from e2e.referee import Rules as RefereeRules
from e2e.scenario import delete_job
from e2e.soak.arrivals import Course, arrivals
from e2e.soak.checker import Checker, Rules, Sighting, Stand, Tally

TICK = 0.2
"""Seconds between two looks at what came."""
REFEREE = RefereeRules(start=60.0, again=30.0, reasons=ENDS)
"""Seconds: nothing breaks here, so starts and stops are short, also on a machine that others use."""
CLEARED = 240.0
"""Seconds after which all that was deleted must be gone."""
KINDS = {
    "pods": "/api/v1/namespaces/{}/pods",
    "gangs": "/apis/muster.dev/v1alpha1/namespaces/{}/gangs",
}


@dataclass(frozen=True)
class Moment:
    """What holds at `at` s: GPUs in use and wanted, jobs, changes so far."""

    at: float
    used: int
    wanted: int
    running: int
    waiting: int
    changes: int


@dataclass
class Outcome:
    """What came of a run."""

    course: Course
    gpus: int
    faults: list[str]
    tally: Tally
    moments: list[Moment] = field(default_factory=list)

    @property
    def changes_a_minute(self) -> float:
        return (self.tally.growths + self.tally.shrinks) / (self.course.seconds / 60.0)

    @property
    def use(self) -> float:
        """GPUs in use over those that could have been, while jobs came."""
        during = [m for m in self.moments if m.at <= self.course.seconds]
        could = sum(min(m.wanted, self.gpus) for m in during)
        return sum(m.used for m in during) / could if could else 1.0


def drive(
    cluster: Cluster, namespace: str, rules: Rules, course: Course, show: Callable[[Moment, int], None]
) -> Outcome:
    """The whole run, until the last pod is gone. show: called every second with how it stands and faults so far."""
    checker = Checker(rules)
    outcome = Outcome(course, rules.total, checker.faults, checker.tally)
    began, epoch = time.monotonic(), time.time()

    def now() -> float:
        return time.monotonic() - began

    due: list[tuple[float, str]] = []  # jobs that are to be deleted
    made: dict[str, Future[None]] = {}
    coming, told = list(arrivals(course)), 0.0
    calls: list[Future[None]] = []
    with (
        watching(cluster, REFEREE) as referee,
        Watch(cluster, namespace) as watch,
        ThreadPoolExecutor(4) as several,
    ):
        while True:
            at = now()
            while coming and coming[0].at <= at:
                one = coming.pop(0)
                checker.submitted(one.name, one.least, one.most, at)
                manifest = train(
                    one.name,
                    least=one.least,
                    most=one.most,
                    run_seconds=round(one.life) if one.by_itself else None,
                    stop_seconds=one.stop,
                )
                made[one.name] = several.submit(_submit, cluster, namespace, manifest)
                calls.append(made[one.name])
                if not one.by_itself:
                    due.append((at + one.life, one.name))
            over = at > course.seconds
            for when, name in [d for d in due if d[0] <= at or over]:
                due.remove((when, name))
                checker.ends(name, at)
                calls.append(several.submit(_delete, cluster, namespace, name, made[name]))
            looked = now()  # what comes later counts at the next look, however long this one takes
            for kind, gone, plain, when in watch.seen():
                if kind == "pods":
                    checker.pod(sighting(Pod(plain), gone=gone), when - began)
                else:
                    status = plain.get("status") or {}
                    name = plain["spec"]["job"].removeprefix("job-")
                    checker.costs(name, float(status.get("resizeCost") or 0.0))
                    times, share = (t - epoch for t in decided(status)), status.get("share")
                    granted = int(share.partition("/")[0]) if share else None
                    checker.tells(name, status.get("state", ""), times, granted)
            checker.tick(looked)
            calls = _checked(calls)
            if now() - told >= 1.0:
                told = now()
                tally = checker.tally
                moment = Moment(
                    told,
                    checker.used,
                    checker.wanted,
                    checker.running,
                    checker.waiting,
                    tally.growths + tally.shrinks,
                )
                outcome.moments.append(moment)
                show(moment, len(checker.faults) + len(referee.faults))
            if over and not due and not calls and not checker.used and not checker.going_on():
                break
            if at > course.seconds + course.after:  # what ends by itself is long: the run is over
                for job in checker.going_on():
                    checker.ends(job, at)
                    calls.append(several.submit(_delete, cluster, namespace, job, made[job]))
            if at > course.seconds + course.after + CLEARED:
                checker.faults.append(
                    f"{at:.1f} s: {checker.used} GPUs still in use after all jobs were deleted"
                )
                break
            time.sleep(TICK)
        outcome.faults += referee.faults
    return outcome


class Watch:
    """Pods and Gangs of a namespace as they change, from threads of their own; (kind, gone, object, monotonic
    s)."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = Cluster(cluster.kubeconfig)
        self._namespace = namespace
        self._seen: queue.SimpleQueue[tuple[str, bool, dict[str, Any], float]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(kind,), name=f"watch-{kind}", daemon=True)
            for kind in KINDS
        ]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(10)

    def seen(self) -> Iterator[tuple[str, bool, dict[str, Any], float]]:
        """What came since the last call, in order."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._seen.get_nowait()

    def _follow(self, kind: str) -> None:
        """A watch from the beginning: the namespace is new, so everything comes as ADDED first. One that breaks off
        goes on from the last version, so that nothing is missed or seen in another order."""
        version = ""
        while not self._over.is_set():
            try:
                for event in self._events(kind, version):
                    found = event["object"]
                    if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        self._seen.put((kind, event["type"] == "DELETED", found, time.monotonic()))
                    if event["type"] != "ERROR":
                        version = found["metadata"]["resourceVersion"]
            except (urllib3.exceptions.HTTPError, client.ApiException, OSError):
                self._over.wait(0.1)

    def _events(self, kind: str, version: str) -> Iterator[dict[str, Any]]:
        query = {"watch": "true", "timeoutSeconds": "3600", "allowWatchBookmarks": "true"}
        if version:
            query["resourceVersion"] = version
        api = self._cluster.client
        parts = api.param_serialize(  # type: ignore[no-untyped-call]
            "GET",
            KINDS[kind].format(self._namespace),
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        answer = api.call_api(*parts, _request_timeout=5)  # type: ignore[no-untyped-call]
        rest = b""
        for chunk in answer.response.stream(None, decode_content=False):
            rest += chunk
            *lines, rest = rest.split(b"\n")
            for line in lines:
                yield json.loads(line)
            if self._over.is_set():
                answer.response.close()
                return


def sighting(pod: Pod, *, gone: bool) -> Sighting:
    """What the referee asks about a pod."""
    if gone or pod.terminal:
        stand = Stand.OVER
    elif pod.node:
        stand = Stand.LEAVING if pod.deleted else Stand.BOUND
    elif pod.deleted:
        stand = Stand.OVER
    else:
        stand = Stand.GATED if pod.gates else Stand.ON_ITS_WAY
    job = pod.labels.get("batch.kubernetes.io/job-name", "")
    return Sighting(pod.uid, pod.name, job, pod.node, stand, pod.phase == "Succeeded")


def decided(status: Mapping[str, Any]) -> list[float]:
    """When Muster says in a Gang's status that it was last changed and started (Unix s)."""
    kept = (status.get("ledger") or {}).get("elastic") or [{}]
    facts = kept[0].get("facts") or {}
    return [float(facts[name]) for name in ("last_resize", "run_start") if facts.get(name)]


def _submit(cluster: Cluster, namespace: str, manifest: dict[str, Any]) -> None:
    cluster.submit(manifest, namespace=namespace)


def _delete(cluster: Cluster, namespace: str, name: str, made: Future[None]) -> None:
    """Once it was made: that call began before this one."""
    made.result()
    with contextlib.suppress(Refused):
        delete_job(cluster, namespace, name)


def _checked(calls: list[Future[None]]) -> list[Future[None]]:
    """The calls that are under way; raises what one of the others raised."""
    for call in calls:
        if call.done():
            call.result()
    return [call for call in calls if not call.done()]
