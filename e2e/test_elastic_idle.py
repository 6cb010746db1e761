"""No GPU idles for a job that can't take it: pods with a typing error keep nothing from another tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from e2e.cluster import Cluster, Json
from e2e.elastic import only, replayed, settles, shared_by, train
from e2e.lab import Lab
from e2e.scenario import bound, gated, in_state, job, runs_whole, wait_until

pytestmark = pytest.mark.lab

FOUR = tuple(f"node-{i:02d}" for i in range(4))
"""32 GPUs."""
SOON = 60.0
"""Seconds within which the other tenant's job starts: a slow machine's, and less than any after which Muster gives up
on what does not start (gang.timeout, 2 min)."""
TYPING_ERROR = "pool.example.com/gup"

CASES: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "topology": (
        {"annotations": {"muster.dev/topology-required": TYPING_ERROR}},
        f"no node has the label {TYPING_ERROR}",
    ),
    "selector": (
        {"node_selector": {TYPING_ERROR: "a100"}},
        "has the labels it selects and only taints it tolerates",
    ),
    "cpu": ({"cpu": "5000"}, "no node is large enough for 1 GPU"),
}


@pytest.fixture(params=["max-min", "afs-l"])
def policy(request: pytest.FixtureRequest, lab: Lab, cluster: Cluster) -> Iterator[str]:
    only(lab, cluster, *FOUR)
    with shared_by(lab, request.param):
        yield request.param


def strays(**what: Any) -> list[Json]:
    """Forty Jobs of a pod each, from the same template."""
    return [job(f"stray-{i:02d}", 1, gpus=1, **what) for i in range(40)]


def told(lab: Lab, cluster: Cluster, namespace: str, name: str, reason: str) -> str:
    """What `muster explain` says of it, once its Gang waits with this reason."""
    wait_until(
        lambda: in_state(cluster, namespace, name, "Waiting").get("reason") == reason,
        what=f"{name} waits: {reason}",
        also=lambda: str(cluster.gangs(namespace).get(name)),
    )
    return lab.muster("explain", name, "-n", namespace).stdout


@pytest.mark.parametrize("case", CASES)
def test_forty_pods_that_fit_nowhere_keep_nothing_from_a_job_of_another_namespace(
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    new_namespace: Callable[[], str],
    policy: str,
    case: str,
) -> None:
    what, why = CASES[case]
    other = new_namespace()
    cluster.submit(*strays(**what), namespace=namespace)
    for name in ("job-stray-00", "job-stray-39"):
        assert why in told(lab, cluster, namespace, name, "NeverFits"), policy
    cluster.submit(job("train", 2, gpus=4), namespace=other)
    runs_whole(cluster, other, "train", 2, within=SOON)
    assert "Running" in lab.muster("explain", "job-train", "-n", other).stdout
    assert len(gated(cluster.pods(namespace))) == 40, "nothing of the strays is started"
    replayed(lab, cluster)


def test_pods_that_fit_nowhere_start_when_a_node_comes_that_takes_them_and_shares_follow(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str], policy: str
) -> None:
    other, comes = new_namespace(), "node-04"
    cluster.submit(
        *[job(f"stray-{i}", 1, gpus=1, node_selector={TYPING_ERROR: "a100"}) for i in range(4)],
        namespace=namespace,
    )
    cluster.submit(train("wide", least=1, most=40), namespace=other)
    settles(cluster, other, {"wide": 32})
    told(lab, cluster, namespace, "job-stray-0", "NeverFits")
    try:
        cluster.patch(
            f"/api/v1/nodes/{comes}",
            {"metadata": {"labels": {TYPING_ERROR: "a100"}}, "spec": {"unschedulable": False}},
        )
        wait_until(
            lambda: len(bound(cluster.pods(namespace))) == 4,
            what=f"the strays run on {comes} ({policy})",
            also=lambda: str(cluster.gangs(namespace)),
        )
        assert {one.node for one in bound(cluster.pods(namespace))} == {comes}
        settles(cluster, other, {"wide": 36})
        replayed(lab, cluster)
    finally:
        cluster.patch(f"/api/v1/nodes/{comes}", {"metadata": {"labels": {TYPING_ERROR: None}}})
