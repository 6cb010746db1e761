"""Long. The first measure again while 20,000 and 80,000 other pods wait behind the gate; and the first list of
150,000 pods.

kube-scheduler walks all gated pods at each bind, so they slow Muster's binding down, whoever holds them. The
waiting pods are of gangs that select a node that is not there: they never fit, and stay in Muster's queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from e2e.bench import load, raw
from e2e.bench.course import MUSTER, Course, lab_of, shape
from e2e.bench.report import Progress, Result

LIST_AIM, MEMORY_AIM = 30.0, 1024.0
GANG = 20
"""Pods of each gang that waits."""


def measure(
    progress: Progress,
    *,
    nodes: int = 5000,
    crowds: Sequence[int] = (20_000, 80_000),
    pods: int = 150_000,
    gangs: int = 1000,
    keep: bool = False,
) -> Result:
    """One lab that gets fuller and fuller."""
    result = Result("crowd", f"{gangs} gangs of 3 on {nodes} nodes among waiting pods; the first list")
    result.data["arguments"] = {"nodes": nodes, "crowds": list(crowds), "pods": pods, "gangs": gangs}
    with lab_of(f"bench-{nodes}", shape(nodes), keep) as lab:
        course = Course(lab, progress)
        course.settle()
        course.halt()
        raw.create_namespace(course.wire, "bench-crowd")
        here = 0
        for wanted in (0, *crowds):
            _wait_behind(course, here, wanted)
            here = max(here, wanted)
            run = course.run(MUSTER, gangs, 3)
            result.data[f"among_{wanted}"] = run.to_json()
            begin = run.binds.first
            result.row(
                f"with {wanted} waiting pods besides: pods/s, first to last bind",
                f"{run.binds.rate:.0f} (first bind {begin:.1f} s after the start)",
            )
        _first_list(result, course, here, pods)
    return result


def _wait_behind(course: Course, here: int, wanted: int) -> None:
    """Create gated pods that never fit until there are `wanted`."""
    more = load.never_fitting(max(0, wanted // GANG), GANG)[here:]
    if more:
        with course.progress.steps(f"creating {len(more)} pods that wait", len(more)) as step:
            course.wire.create("/api/v1/namespaces/bench-crowd/pods", raw.bodies(more), said=step)


def _first_list(result: Result, course: Course, here: int, pods: int) -> None:
    """Fill up with bound pods of others, start muster, and see when it is ready and how large it is."""
    course.halt()
    raw.create_namespace(course.wire, "bench-others")
    nodes = course.lab.nodes
    others = (
        load.pod(f"o{i:06d}", f"o{i:06d}", 1, load.STOCK, gpus=0, nodeName=nodes[i % len(nodes)])
        for i in range(max(0, pods - here))
    )
    with course.progress.steps(f"creating {pods - here} bound pods of others", pods - here) as step:
        course.wire.create(
            "/api/v1/namespaces/bench-others/pods", (raw.bodies([one])[0] for one in others), said=step
        )
    began = time.monotonic()
    course.lab.start("muster", wait=False)
    course.lab.wait_ready("muster", patience=300)
    seconds = time.monotonic() - began
    time.sleep(10.0)  # its first cycles
    status = Path(f"/proc/{course.pid('muster')}/status").read_text()
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in status.splitlines() if "kB" in line}
    result.data["first_list"] = {
        "pods": pods,
        "seconds": seconds,
        "rss_mib": sizes["VmRSS"],
        "peak_mib": sizes["VmHWM"],
    }
    result.row(
        f"{pods} pods in the cluster: muster's start to ready",
        f"{seconds:.1f} s",
        "< 30 s",
        seconds < LIST_AIM,
    )
    result.row("memory of muster then (its peak)", f"{sizes['VmRSS']:.0f} MiB ({sizes['VmHWM']:.0f} MiB)", "< 1 GiB",
               sizes["VmHWM"] < MEMORY_AIM)  # fmt: skip
