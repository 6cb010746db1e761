"""Other sizes of the same: one big gang, thousands of small jobs; how soon "can't fit" is said; submission to
bound on an idle cluster.

Big gangs and small jobs wait until the schedulers start, as in `gangs`. The other two are what a user feels:
Muster runs, a Job is submitted, and the clock runs from the first byte of that request."""

from __future__ import annotations

import time

from e2e.bench import load, raw
from e2e.bench.course import MUSTER, STOCK, Course, lab_of, shape
from e2e.bench.figures import median, percentile
from e2e.bench.report import Progress, Result

FIT_AIM, START_AIM = 2.0, 1.0
GANGS = "/apis/muster.dev/v1alpha1/namespaces/{}/gangs"


def measure(
    progress: Progress, *, nodes: int = 5000, full: int = 500, tries: int = 5, keep: bool = False
) -> Result:
    """Two labs, one after the other: one that is nearly idle, one that gets filled."""
    result = Result("sizes", f"big gangs and idle starts on {nodes} nodes, a full cluster of {full}")
    result.data["arguments"] = {"nodes": nodes, "full": full, "tries": tries}
    with lab_of(f"bench-{nodes}", shape(nodes), keep) as lab:
        course = Course(lab, progress)
        course.settle()
        for size in (1000, 512):
            _one(result, course, f"one gang of {size} pods", 1, min(size, nodes * 8))
        _idle(result, course, tries)
    with lab_of(f"bench-{full}", shape(full), keep) as lab:
        course = Course(lab, progress)
        course.settle()
        jobs = full * 8
        stock = course.run(STOCK, jobs, 1)
        result.data["stock_jobs"] = stock.to_json()
        result.row(f"{jobs} pods fill {full} nodes: stock kube-scheduler", f"{stock.binds.rate:.0f} pods/s")
        _one(result, course, f"{jobs} single-GPU jobs fill {full} nodes", jobs, 1, clear=False)
        _full(result, course, tries)
    return result


def _one(result: Result, course: Course, what: str, gangs: int, size: int, *, clear: bool = True) -> None:
    run = course.run(MUSTER, gangs, size, clear=clear)
    said = run.binds
    result.data[what] = run.to_json()
    result.row(
        f"{what}: start to last bind", f"{said.whole:.1f} s; {said.rate:.0f} pods/s from first to last"
    )


def _running(course: Course) -> None:
    """Muster and its kube-scheduler run and lead; where they do already, nothing happens."""
    if course.pid("muster") is None:
        for name in MUSTER.processes:
            course.lab.start(name, wait=False)
    for name in MUSTER.processes:
        course.lab.wait_ready(name)
    until = time.monotonic() + 60
    while course.lab.leader() is None and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(2.0)  # a new leader's first cycles


def _idle(result: Result, course: Course, tries: int, replicas: int = 8) -> None:
    """From the POST of a Job of 8 to its last bind, with nothing else going on."""
    course.halt()
    _running(course)
    times = []
    for number in range(tries):
        namespace = f"bench-idle-{int(time.time())}-{number}"
        raw.create_namespace(course.wire, namespace)
        watch = raw.bound(course.wire, namespace)
        time.sleep(1.0)
        began = time.monotonic()
        course.wire.ask(
            "POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", load.job("idle", replicas, gpus=1)
        )
        watch.wait(replicas, 60, what="idle: pods bound")
        times.append(max(watch.seen.values()) - began)
        watch.close()
        _remove(course, namespace, "idle")
    result.data["idle_s"] = times
    good = median(times) < START_AIM
    result.row(
        f"a Job of {replicas} on an idle cluster: POST to all bound, median (worst)",
        f"{median(times):.2f} s ({max(times):.2f} s)", "< 1 s", good,
    )  # fmt: skip


def _full(result: Result, course: Course, tries: int, replicas: int = 10) -> None:
    """From the POST of a Job that can't fit to the status that says so, on a cluster without a free GPU."""
    _running(course)
    times, words = [], ""
    for number in range(tries):
        namespace = f"bench-full-{int(time.time())}-{number}"
        raw.create_namespace(course.wire, namespace)
        watch = raw.Watch(
            course.wire, GANGS.format(namespace), counts=lambda line: b'"state":"Waiting"' in line
        )
        time.sleep(1.0)
        began = time.monotonic()
        course.wire.ask(
            "POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", load.job("late", replicas, gpus=8)
        )
        watch.wait(1, 60, what="full: said that it waits")
        times.append(max(watch.seen.values()) - began)
        watch.close()
        gangs = course.wire.ask("GET", GANGS.format(namespace))["items"]
        words = str(gangs[0].get("status", {}).get("message", ""))
        _remove(course, namespace, "late")
    result.data["cannot_fit_s"], result.data["cannot_fit_words"] = times, words
    result.row(
        f"{replicas} pods x 8 GPUs on a full cluster: POST to “{words}”, median (worst)",
        f"{median(times):.2f} s ({percentile(times, 1.0):.2f} s)", "< 2 s", median(times) < FIT_AIM,
    )  # fmt: skip


def _remove(course: Course, namespace: str, job: str) -> None:
    course.wire.send(
        "DELETE", f"/apis/batch/v1/namespaces/{namespace}/jobs/{job}?propagationPolicy=Background"
    )
    course.wire.clear(f"/api/v1/namespaces/{namespace}/pods")
    time.sleep(1.0)
