"""The shell around a run: submits the jobs when they are due, watches their pods, ends them when the course says.

How a job ends: its pods run until they are told (kwok's stage pod-finishes fires on the annotation
e2e.muster.dev/run-seconds, which the demo sets to 0 on a running pod); so the pods of a gang end together, `duration`
after the last of them was bound, and never one by one from starts of their own. Of an elastic job the leader is told,
and the Job's successPolicy ends the rest."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import urllib3
from kubernetes import client

from e2e.cluster import Cluster, Pod
from e2e.demo.course import Course, Finish, Instruction, Resubmit, Sighting
from e2e.demo.workload import Submission, Workload, manifest, object_name
from e2e.elastic import INDEX
from e2e.referee import ENDS, Rules, watching
from e2e.scenario import RUN_SECONDS, a_namespace, bound, delete_job, wait_until

TICK = 0.05  # seconds of this machine's clock
CALLERS = 8

Json = dict[str, Any]


@dataclass(frozen=True)
class Pace:
    """`speed`: seconds of the trace's clock in one of this machine's. `limit`: a run is cut off then (trace s)."""

    speed: float
    limit: float


def drive(
    cluster: Cluster,
    scheduler: str,
    workload: Workload,
    course: Course,
    pace: Pace,
    show: Callable[[float], None],
    over: threading.Event,
) -> float:
    """Run the workload with a scheduler, in a namespace of its own that is gone afterwards; when it was over, in
    seconds of the trace's clock. `show` is called with that clock at each step; `over` cuts it off. Refused and
    AssertionError where the lab does not do what it should, or the referee finds a fault of Muster's."""
    with (
        watching(cluster, Rules(reasons=ENDS)) as referee,
        a_namespace(cluster, f"demo-{scheduler}") as namespace,
        Watch(cluster, namespace, sighting) as watch,
    ):
        with ThreadPoolExecutor(CALLERS) as callers:
            calls: list[Future[None]] = []
            waiting = list(workload.jobs)
            began = time.monotonic()
            while True:
                now = (time.monotonic() - began) * pace.speed
                # 1. submit what is due
                while waiting and waiting[0].at <= now:
                    job = waiting.pop(0)
                    course.submitted(job, now)
                    calls.append(
                        callers.submit(_submit, cluster, namespace, manifest(job, 1, scheduler, pace.speed))
                    )
                # 2. what has been seen
                for what in watch.seen():
                    course.saw(what, now)
                # 3. what is to be done
                for instruction in course.due(now):
                    job = course.jobs[instruction.job].submission
                    again = manifest(job, instruction.attempt + 1, scheduler, pace.speed)
                    calls.append(callers.submit(_do, cluster, namespace, job, instruction, again))
                show(now)
                calls = under_way(calls)
                done = not waiting and course.now.done == len(workload.jobs)
                if done or now >= pace.limit or over.is_set():
                    break
                time.sleep(TICK)
        under_way(calls)
        course.close(now)
    if referee.faults:
        raise AssertionError("the referee has found:\n" + "\n".join(referee.faults))
    return now


T = TypeVar("T")


class Watch(Generic[T]):
    """The pods of a namespace as `read` has them (pod, whether it is gone), from a thread of its own."""

    def __init__(self, cluster: Cluster, namespace: str, read: Callable[[Pod, bool], T]) -> None:
        self._core = client.CoreV1Api(cluster.client)
        self._namespace, self._read = namespace, read
        self._seen: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"watch-{namespace}", daemon=True)

    def __enter__(self) -> Watch[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def seen(self) -> list[T]:
        """What came since the last call, in order."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._seen.get_nowait())
        return found

    def _follow(self) -> None:
        """A watch from the beginning: the namespace is new, so everything in it comes as ADDED first. A watch
        that ends is begun again, and what it repeats does no harm."""
        while not self._over.is_set():
            try:
                answer = self._core.list_namespaced_pod(
                    self._namespace,
                    watch=True,
                    timeout_seconds=3600,
                    _preload_content=False,
                    _request_timeout=3,
                )
                for line in _lines(answer, self._over):
                    event = json.loads(line)
                    if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        self._seen.put(self._read(Pod(event["object"]), event["type"] == "DELETED"))
            except (urllib3.exceptions.HTTPError, client.ApiException, OSError):
                self._over.wait(0.2)


def sighting(pod: Pod, gone: bool = False) -> Sighting:
    scheduled = pod.condition("PodScheduled") or {}
    return Sighting(
        job=pod.labels.get("demo/job", ""),
        attempt=int(pod.labels.get("demo/attempt", "1")),
        pod=pod.name,
        bound=bool(pod.node),
        refused=scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable",
        over=gone or pod.terminal or pod.deleted,
    )


def _lines(answer: Any, over: threading.Event) -> Any:
    """Whole lines of a stream. A silence longer than the request's timeout raises, and the caller begins again."""
    rest = b""
    for chunk in answer.stream(None, decode_content=False):
        rest += chunk
        *lines, rest = rest.split(b"\n")
        yield from lines
        if over.is_set():
            answer.close()
            return


def _submit(cluster: Cluster, namespace: str, body: Json) -> None:
    cluster.submit(body, namespace=namespace)


def _do(cluster: Cluster, namespace: str, job: Submission, instruction: Instruction, again: Json) -> None:
    name = object_name(job.name, instruction.attempt)
    if isinstance(instruction, Finish):
        pods = _leader(cluster, namespace, name) if job.speeds else cluster.pods(namespace, name)
        for pod in pods:
            cluster.patch(
                f"/api/v1/namespaces/{namespace}/pods/{pod.name}",
                {"metadata": {"annotations": {RUN_SECONDS: "0"}}},
            )
    elif isinstance(instruction, Resubmit):
        delete_job(cluster, namespace, name)
        _submit(cluster, namespace, again)


def _leader(cluster: Cluster, namespace: str, name: str) -> list[Pod]:
    """The job's replica 0, once it is on a node: it may just be moving."""
    return wait_until(
        lambda: [pod for pod in bound(cluster.pods(namespace, name)) if pod.labels.get(INDEX) == "0"],
        what=f"replica 0 of {name} is bound",
    )


def under_way(calls: list[Future[None]]) -> list[Future[None]]:
    """The calls that are under way; raises what one of the others raised."""
    for call in calls:
        if call.done():
            call.result()
    return [call for call in calls if not call.done()]
