"""The shell around a run: submits the jobs when they are due, watches their pods, ends them when the course says.

How a job ends: its pods run until they are told (kwok's stage pod-finishes fires on the annotation
e2e.muster.dev/run-seconds, which the demo sets to 0 on a running pod); so the pods of a gang end together, `duration`
after the last of them was bound, and never one by one from starts of their own."""

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
from e2e.referee import ENDS, Rules, watching
from e2e.scenario import RUN_SECONDS, a_namespace, delete_job

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
) -> float:
    """Run the workload with a scheduler, in a namespace of its own that is gone afterwards; when it was over, in
    seconds of the trace's clock. `show` is called with that clock at each step. Refused and AssertionError where
    the lab does not do what it should, or the referee finds a fault of Muster's."""
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
                    calls.append(callers.submit(_submit, cluster, namespace, job, 1, scheduler))
                # 2. what has been seen
                for what in watch.seen():
                    course.saw(what, now)
                # 3. what is to be done
                for instruction in course.due(now):
                    job = course.jobs[instruction.job].submission
                    calls.append(callers.submit(_do, cluster, namespace, job, instruction, scheduler))
                show(now)
                calls = under_way(calls)
                if (not waiting and course.now.done == len(workload.jobs)) or now >= pace.limit:
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


def _submit(cluster: Cluster, namespace: str, job: Submission, attempt: int, scheduler: str) -> None:
    cluster.submit(manifest(job, attempt, scheduler), namespace=namespace)


def _do(cluster: Cluster, namespace: str, job: Submission, instruction: Instruction, scheduler: str) -> None:
    name = object_name(job.name, instruction.attempt)
    if isinstance(instruction, Finish):
        for pod in cluster.pods(namespace, name):
            cluster.patch(
                f"/api/v1/namespaces/{namespace}/pods/{pod.name}",
                {"metadata": {"annotations": {RUN_SECONDS: "0"}}},
            )
    elif isinstance(instruction, Resubmit):
        delete_job(cluster, namespace, name)
        _submit(cluster, namespace, job, instruction.attempt + 1, scheduler)


def under_way(calls: list[Future[None]]) -> list[Future[None]]:
    """The calls that are under way; raises what one of the others raised."""
    for call in calls:
        if call.done():
            call.result()
    return [call for call in calls if not call.done()]
