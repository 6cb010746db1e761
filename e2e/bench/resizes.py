"""How soon a GPU that comes free is used by those who may have it, what a resize costs the API, and what a thousand
jobs that report cost Muster.

A lab of 500 nodes is filled by elastic jobs under max-min. One job after another ends, and its GPUs go to the others;
the k-th bind is timed against the k-th GPU set free. Then a pod of each job reports every 10 s with its own
token."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from e2e.bench import figures, raw
from e2e.bench.course import MUSTER, Course, lab_of
from e2e.bench.figures import median, percentile
from e2e.bench.report import Progress, Result
from e2e.cluster import Cluster
from e2e.elastic import INDEX
from e2e.lab import Lab, NodeGroup, Shape
from e2e.scenario import RUN_SECONDS, job, wait_until

NAMESPACE = "bench-resizes"
GPUS = 4
EVERY = 10.0
SENDERS = 4
AIM = 1.0
FILL_WITHIN = 600.0


def measure(
    progress: Progress,
    *,
    nodes: int = 500,
    jobs: int = 1000,
    tries: int = 10,
    seconds: float = 60.0,
    every: float = EVERY,
    keep: bool = False,
) -> Result:
    """One lab; see the module's docstring. seconds: of reporting; every: between two of a job, s."""
    result = Result("resizes", f"{jobs} elastic jobs on {nodes} nodes x {GPUS} GPUs, max-min")
    result.data["arguments"] = {
        "nodes": nodes,
        "jobs": jobs,
        "tries": tries,
        "seconds": seconds,
        "every": every,
    }
    values = ("profile=max-min", "config.resizeCost=false")
    wanted = Shape(groups=(NodeGroup(nodes, GPUS),), set_values=values)
    with lab_of(f"bench-resizes-{nodes}", wanted, keep) as lab:
        course = Course(lab, progress, kwok=True)
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        raw.create_namespace(course.wire, NAMESPACE)
        _fill(progress, course, nodes * GPUS, jobs)
        _resize(result, course, pods, tries)
        _report(result, lab, course, pods, jobs, seconds, every)
    return result


def _fill(progress: Progress, course: Course, gpus: int, jobs: int) -> None:
    """All GPUs are used by elastic jobs of 1 to twice their part."""
    part = max(1, gpus // jobs)
    course.halt()  # else the first ones grow, and shrink again for the next: kwok would take minutes to end those
    watch = raw.bound(course.wire, NAMESPACE)
    bodies = [
        json.dumps(
            job(
                f"job-{n:04}",
                2 * part,
                success_on="0",
                min_replicas=1,
                max_replicas=2 * part,
                annotations={"muster.dev/report": "true"},
                stop_seconds=0,
                cpu="1",
            )
        ).encode()
        for n in range(jobs)
    ]
    with progress.steps("jobs created", jobs) as step:
        course.wire.create(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", bodies, said=step)
    every = f"/api/v1/namespaces/{NAMESPACE}/pods?limit=1"
    wait_until(
        lambda: course.wire.ask("GET", every)["metadata"].get("remainingItemCount", 0) == 2 * part * jobs - 1,
        within=FILL_WITHIN,
        what="resizes: every pod exists",
    )
    for name in MUSTER.processes:
        course.lab.start(name)
    watch.wait(part * jobs, FILL_WITHIN, what="resizes: all GPUs used")
    watch.close()
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=status.phase%3DRunning"
    wait_until(
        lambda: (
            sum(INDEX in p["metadata"]["labels"] for p in course.wire.ask("GET", pods)["items"])
            == part * jobs
        ),
        within=FILL_WITHIN,
        what="resizes: all jobs have settled",
    )


def _resize(result: Result, course: Course, pods: str, tries: int) -> None:
    """Jobs end one by one; the GPUs that come free are bound again."""
    cluster = Cluster(course.lab.kubeconfig)
    waits: list[float] = []
    writes: list[dict[str, float]] = []
    for number in range(tries):
        name = f"job-{number:04}"
        mine = [p for p in _of(course, pods, name) if p["spec"].get("nodeName")]
        known = {p["metadata"]["name"] for p in course.wire.ask("GET", f"{pods}?{raw.BOUND}")["items"]}
        freed = raw.Watch(
            course.wire,
            pods,
            f"labelSelector=batch.kubernetes.io/job-name%3D{name}",
            counts=lambda line: b'"type":"DELETED"' in line or b'"phase":"Succeeded"' in line,
        )
        bound = raw.bound(course.wire, NAMESPACE)
        before = figures.calls(str(course.wire.ask("GET", "/metrics")))
        leader = next(p for p in mine if p["metadata"]["labels"].get(INDEX) == "0")
        cluster.patch(
            f"{pods}/{leader['metadata']['name']}", {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
        )
        wait_until(
            lambda: len(bound.seen.keys() - known) >= len(mine),  # noqa: B023
            within=60,
            what="resizes: the GPUs of a job that ended are used",
        )
        running = {p["metadata"]["name"] for p in mine}
        gone = sorted(at for pod, at in freed.seen.items() if pod in running)
        waits += [
            b - f
            for f, b in zip(
                gone, sorted(at for pod, at in bound.seen.items() if pod not in known), strict=False
            )
        ]
        time.sleep(2.0)
        after = figures.calls(str(course.wire.ask("GET", "/metrics")))
        writes.append(figures.writes_since(before, after, per=len(mine)))
        freed.close()
        bound.close()
    result.data |= {"waits_s": waits, "writes_per_replica": writes}
    result.row(
        "a GPU set free to a pod of the new share bound there: p50 (p90)",
        f"{median(waits):.2f} s ({percentile(waits, 0.9):.2f} s)",
        f"p50 < {AIM:.0f} s",
        median(waits) < AIM,
    )


def _of(course: Course, pods: str, name: str) -> list[dict[str, Any]]:
    found = course.wire.ask("GET", f"{pods}?labelSelector=batch.kubernetes.io/job-name%3D{name}")["items"]
    return list(found)


def _report(
    result: Result, lab: Lab, course: Course, pods: str, jobs: int, seconds: float, every: float
) -> None:
    """A pod of each job reports every so many seconds, or when its sender gets to it; Muster's CPU meanwhile against
    before, its memory."""
    leaders = [
        p["metadata"]
        for p in course.wire.ask("GET", f"{pods}?labelSelector={INDEX}%3D0")["items"]
        if p["spec"].get("nodeName")
    ]
    with ThreadPoolExecutor(raw.THREADS) as several:
        tokens = list(several.map(lambda meta: _token(course, meta), leaders))
    idle = _cpu(lab, seconds / 2)
    refused: list[int] = []
    over = threading.Event()

    def send(part: int) -> int:
        sent = 0
        mine = tokens[part::SENDERS]
        with httpx.Client(trust_env=False, timeout=10, limits=httpx.Limits(keepalive_expiry=2.0)) as client:
            began = time.monotonic()
            step = 0
            while not over.is_set():
                step += 1
                for number, token in enumerate(mine):
                    body = {"step": step * 100.0, "total": 1e6, "samples": step * 6400.0}
                    answer = client.post(
                        f"{lab.service_url()}/v1/report",
                        json=body,
                        headers={"Authorization": f"Bearer {token}"},
                    )
                    if answer.status_code != 200:
                        refused.append(answer.status_code)
                    sent += 1
                    due = began + (step - 1 + (number + 1) / len(mine)) * every
                    if over.wait(max(0.0, due - time.monotonic())):
                        break
        return sent

    with ThreadPoolExecutor(SENDERS) as senders:
        sending = [senders.submit(send, part) for part in range(SENDERS)]
        used = _cpu(lab, seconds)
        over.set()
        sent = sum(one.result() for one in sending)
    metrics = httpx.get(f"{lab.service_url()}/metrics", trust_env=False, timeout=30).text
    p50 = _quantile(metrics, "muster_report_to_plan_seconds", 0.5)
    memory = _memory(lab)
    result.data |= {"sent": sent, "refused": refused[:20], "idle_cpu": idle, "cpu": used, "rss": memory}
    result.row(
        f"{len(tokens)} of {jobs} jobs report each {every:g} s: reports sent (a second), refused",
        f"{sent} ({sent / seconds:.0f}), {len(refused)}",
    )
    result.row("CPU of Muster meanwhile (cores); before, nobody reporting", f"{used:.2f}; {idle:.2f}")
    result.row("memory of Muster", f"{memory / 2**20:.0f} MiB")
    result.row(
        "from a report that tells something new to the plan that knows it: p50 at most", f"{p50:.2f} s"
    )


def _token(course: Course, meta: dict[str, Any]) -> str:
    spec = {
        "audiences": ["muster.dev"],
        "expirationSeconds": 3600,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token"
    return str(course.wire.ask("POST", path, {"spec": spec})["status"]["token"])


def _cpu(lab: Lab, seconds: float) -> float:
    """Cores that muster uses in the next so many seconds."""

    def used() -> float:
        return figures.ticks((_proc(lab) / "stat").read_text()) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(seconds)
    return (used() - before) / seconds


def _proc(lab: Lab) -> Path:
    return Path(f"/proc/{lab.pid('muster')}")


def _memory(lab: Lab) -> int:
    """Resident bytes of muster."""
    return figures.resident((_proc(lab) / "status").read_text())


def _quantile(metrics: str, name: str, share: float) -> float:
    """The upper bound of the histogram's bucket in which the quantile lies; inf where nothing was observed."""
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == f"{name}_bucket"
    ]
    total = buckets[-1][1] if buckets else 0.0
    return next((bound for bound, count in buckets if total and count >= share * total), float("inf"))
