"""What a resize costs the API: writes of Muster and of those who work after it, for shrinks and growths by k.

A lab that is quiet but for one elastic job that has all its GPUs. A rigid job of k GPUs comes, and the elastic one
shrinks by k; it goes, and the elastic one grows by k. Between two quiet moments the requests about the elastic job
are counted in kube-apiserver's audit log, by who sent them and what they are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from e2e.bench.course import lab_of
from e2e.bench.report import Progress, Result
from e2e.cluster import Cluster
from e2e.elastic import settles, train
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.audit import Log, Written
from e2e.scenario import delete_job, gated, job, wait_until

NODES, GPUS = 4, 4
SIZES = (1, 2, 4, 8)
NAMESPACE = "bench-calls"
NAME = "elastic"
QUIET = 2.0
"""Seconds without a write: what a change set going has come to its end."""
WITHIN = 60.0


def shape(nodes: int = NODES, gpus: int = GPUS) -> Shape:
    """The lab: shares follow max-min and what a change costs is not weighed."""
    values = ("profile=max-min", "config.resizeCost=false")
    return Shape(groups=(NodeGroup(nodes, gpus),), set_values=values, audit=True)


def measure(progress: Progress, *, tries: int = 5, keep: bool = False) -> Result:
    """`tries` shrinks and growths of each of SIZES."""
    whole = NODES * GPUS
    result = Result("calls", f"API writes of a resize: one job of {whole} GPUs, {tries} of each size")
    shrinks: dict[int, list[Counter[str]]] = {size: [] for size in SIZES}
    growths: dict[int, list[Counter[str]]] = {size: [] for size in SIZES}
    with lab_of("bench-calls", shape(), keep) as lab:
        cluster = Cluster(lab.kubeconfig)
        cluster.submit({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        wait_until(
            lambda: cluster.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"),
            what="the service account of the namespace",
        )
        log = Log(lab.audit)
        cluster.submit(train(NAME, most=whole), namespace=NAMESPACE)
        settles(cluster, NAMESPACE, {NAME: whole})
        quiet(log)
        with progress.reading("shrinks and growths", tries * len(SIZES)) as reading:
            for number in range(tries):
                for size in SIZES:
                    down, up = resized(lab, log, NAMESPACE, NAME, f"rigid-{number}-{size}", whole, size)
                    shrinks[size].append(by_kind(down))
                    growths[size].append(by_kind(up))
                    reading(sum(map(len, growths.values())))
    for what, found in (("shrink", shrinks), ("growth", growths)):
        _rows(result, what, found)
        result.data[what] = {str(size): [dict(one) for one in counts] for size, counts in found.items()}
    result.data["arguments"] = {"tries": tries}
    return result


def resized(
    lab: Lab, log: Log, namespace: str, name: str, rigid: str, whole: int, size: int
) -> tuple[list[Written], list[Written]]:
    """The job shrinks by `size` for a rigid one, and grows by it when that is gone: what was written about it."""
    cluster = Cluster(lab.kubeconfig)
    log.more()
    cluster.submit(job(rigid, size), namespace=namespace)
    settles(cluster, namespace, {name: whole - size, rigid: size})
    wait_until(
        lambda: len(gated(cluster.pods(namespace, name))) == size, what="those that left are made again"
    )
    down = about(quiet(log), namespace, name)
    delete_job(cluster, namespace, rigid)
    settles(cluster, namespace, {name: whole})
    return down, about(quiet(log), namespace, name)


def quiet(log: Log, of: Callable[[Written], bool] = lambda _: True) -> list[Written]:
    """Everything that was written since the last look, once nothing `of` a kind has been for a while."""
    found, last, end = log.more(), time.monotonic(), time.monotonic() + WITHIN
    while time.monotonic() - last < QUIET and time.monotonic() < end:
        time.sleep(0.1)
        if more := log.more():
            found += more
            last = time.monotonic() if any(map(of, more)) else last
    return found


def about(written: Iterable[Written], namespace: str, name: str) -> list[Written]:
    """What concerns the Job, its pods and its Gang, and was done."""
    return [one for one in written if one.namespace == namespace and one.done and concerns(one, name)]


def concerns(one: Written, name: str) -> bool:
    """Whether it is a Job of this name, its Gang or one of its pods."""
    return one.name in (name, f"job-{name}") or one.name.startswith(f"{name}-")


def by_kind(written: Iterable[Written]) -> Counter[str]:
    """How many of each kind: "muster: eviction" -> 4."""
    return Counter(f"{one.who}: {one.what}" for one in written)


def _rows(result: Result, what: str, found: dict[int, list[Counter[str]]]) -> None:
    """The mean number of each kind for each size, all of Muster's first."""
    sizes = ", ".join(str(size) for size in found)
    kinds = sorted({kind for counts in found.values() for one in counts for kind in one}, key=_order)
    for who in dict.fromkeys(kind.partition(":")[0] for kind in kinds):
        mine = [kind for kind in kinds if kind.startswith(f"{who}:")]
        result.row(f"{what} by {sizes} replicas: writes of {who}", _means(found, mine))
        for kind in mine:
            result.row(f"    {kind.partition(': ')[2]}", _means(found, [kind]))


def _means(found: dict[int, list[Counter[str]]], kinds: Sequence[str]) -> str:
    return ", ".join(
        f"{sum(one[kind] for one in counts for kind in kinds) / len(counts):.1f}" for counts in found.values()
    )


def _order(kind: str) -> tuple[bool, bool, str]:
    return (not kind.startswith("muster:"), not kind.startswith("kube-scheduler:"), kind)
