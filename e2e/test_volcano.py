"""Volcano beside Muster on one lab of 4 nodes x 8 GPUs: each starts its own jobs whole, and what the other has is
taken. No way to run both on the same nodes (charts/README.md#binder): `python -m e2e.bench peers` stands on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, Pod
from e2e.lab import Lab
from e2e.operated import everything, operated
from e2e.scenario import bound, ends_now, job, pod, runs_whole, stays, wait_until, waits_because
from e2e.volcano import JOBS, queue_is_open, submitted, volcano_job, waits

pytestmark = [pytest.mark.lab, pytest.mark.operators("volcano")]


@pytest.fixture(scope="module", name="_session_lab")
def operated_lab() -> Iterator[Lab]:
    with operated("volcano") as lab:
        queue_is_open(Cluster(lab.kubeconfig))
        yield lab


def theirs(cluster: Cluster, namespace: str) -> list[Pod]:
    """Pods of Volcano's that have a node."""
    return [
        one for one in bound(cluster.pods(namespace)) if one.raw["spec"].get("schedulerName") == "volcano"
    ]


def says(cluster: Cluster, namespace: str) -> str:
    return f"{everything(cluster, namespace)}\n{waits(cluster, namespace)}"


def test_volcano_and_muster_each_wait_whole_for_what_the_other_has(cluster: Cluster, namespace: str) -> None:
    """Volcano's gang needs all nodes, and a pod of Muster's has one; then Muster's job waits for Volcano's."""
    holder = cluster.submit(pod("holder", gpus=8), namespace=namespace)[0]
    wait_until(lambda: bound(cluster.pods(namespace), 1), what="the holder runs")
    submitted(cluster, namespace, volcano_job("theirs", 4, gpus=8))
    wait_until(
        lambda: any("overused nvidia.com/gpu" in said for said in waits(cluster, namespace)),
        what="Volcano says that it can't start",
        also=lambda: says(cluster, namespace),
    )
    stays(cluster, lambda: not theirs(cluster, namespace), what="nothing of it starts")
    cluster.delete_pod(Pod(holder))
    four = wait_until(
        lambda: found if len(found := theirs(cluster, namespace)) == 4 else None,
        what="all of it runs",
        also=lambda: says(cluster, namespace),
    )
    assert "job-theirs" not in cluster.gangs(namespace)
    assert not any("muster.dev/queue" in one.gates for one in four)
    cluster.submit(job("ours", 2, gpus=8), namespace=namespace)
    waits_because(cluster, namespace, "job-ours", "needs 16 GPUs (2 replicas of 8)")
    ends_now(cluster, *four)
    ours = runs_whole(cluster, namespace, "ours", 2)
    cluster.delete(f"{JOBS.format(namespace)}/theirs", propagationPolicy="Background")
    ends_now(cluster, *ours)
