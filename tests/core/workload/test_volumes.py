"""Claims: a bound one whose volume any node can use is no obstacle to a pin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.workload.volumes import CLAIM_PATIENCE, VOLUMES
from muster.points import Profile
from muster.types import ClaimSeen, Phase, Ungate
from muster_plugins.max_min import MaxMin
from tests.cluster_fake import FakeCluster, Muster


def with_claims(cluster: FakeCluster, name: str, replicas: int, *claims: str) -> None:
    """A Job whose pods mount these claims."""
    for pod in cluster.job(name, replicas, gpus=4):
        cluster.update(pod, claims=claims, shape=replace(pod.shape, unmodelled=(VOLUMES,)))


def ungated(cluster: FakeCluster) -> list[bool]:
    """Whether each gate that came off brought a pin."""
    return [a.pin for a in cluster.sent if isinstance(a, Ungate)]


def test_a_job_whose_volumes_any_node_can_use_is_pinned() -> None:
    cluster = FakeCluster()
    with_claims(cluster, "train", 2, "data", "scratch")
    muster = Muster(cluster)
    muster.turn()
    assert muster.ledger.claims == {("team", "data"), ("team", "scratch")}
    assert cluster.sent == [], "it is not placed before its claims are known"
    muster.ledger.apply(ClaimSeen("team", "data", True), cluster.now)
    muster.turn()
    assert cluster.sent == [], "nor before all of them are"
    muster.ledger.apply(ClaimSeen("team", "scratch", True), cluster.now)
    muster.settle()
    assert ungated(cluster) == [True, True]
    assert all(pod.phase is Phase.BOUND for pod in cluster.pods.values())
    assert muster.ledger.claims == frozenset(), "nobody waits with them any more"


def test_one_volume_with_a_place_of_its_own_makes_the_job_scored() -> None:
    cluster = FakeCluster()
    with_claims(cluster, "train", 2, "data", "local")
    muster = Muster(cluster)
    muster.ledger.apply(ClaimSeen("team", "data", True), cluster.now)
    muster.ledger.apply(ClaimSeen("team", "local", False), cluster.now)
    muster.settle()
    assert ungated(cluster) == [False, False]


def test_one_pod_with_such_a_volume_makes_the_whole_job_scored() -> None:
    cluster = FakeCluster()
    pods = cluster.job("train", 3, gpus=2)
    for number, pod in enumerate(pods):
        shape = replace(pod.shape, unmodelled=(VOLUMES,))
        cluster.update(pod, claims=(f"data-{number}",), shape=shape)
    muster = Muster(cluster)
    for number in range(3):
        muster.ledger.apply(ClaimSeen("team", f"data-{number}", number != 2), cluster.now)
    muster.settle()
    assert ungated(cluster) == [False] * 3


def test_claims_that_nobody_can_read_are_not_waited_for() -> None:
    cluster = FakeCluster()
    with_claims(cluster, "train", 2, "data")
    muster = Muster(cluster)
    muster.turn()
    cluster.now += CLAIM_PATIENCE
    muster.settle()
    assert ungated(cluster) == [False, False]


def test_a_claim_that_is_bound_while_its_job_waits_is_no_obstacle_any_more() -> None:
    cluster = FakeCluster(nodes=1)
    holder = cluster.job("holder", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 5
    with_claims(cluster, "train", 2, "data")
    muster.sync()
    muster.ledger.apply(ClaimSeen("team", "data", False), cluster.now)
    muster.settle()
    assert muster.state("job-train") == "Waiting"
    muster.ledger.apply(ClaimSeen("team", "data", True), cluster.now)
    for pod in holder:
        cluster.end(pod.uid)
    muster.settle()
    assert ungated(cluster)[2:] == [True, True]


@pytest.mark.parametrize(
    "profile",
    [Profile("fifo"), Profile("max-min", shares=(MaxMin(),), conserving=True)],
    ids=lambda p: p.name,
)
def test_jobs_whose_claims_do_not_exist_take_no_gpu_from_others_and_start_when_they_do(
    profile: Profile,
) -> None:
    cluster = FakeCluster(nodes=1)
    for number in range(8):
        with_claims(cluster, f"typo-{number}", 1, f"dtaa-{number}")
    muster = Muster(cluster, profile)
    for number in range(8):
        muster.ledger.apply(ClaimSeen("team", f"dtaa-{number}", False, missing=True), cluster.now)
    cluster.job("train", 2, gpus=4)
    muster.settle()
    assert muster.state("job-train") == "Running"
    assert ungated(cluster) == [True, True]
    waits = {s.message for k, s in muster.plan.statuses.items() if k.name == "job-typo-0"}
    assert waits == {"needs 4 GPUs: claim dtaa-0 does not exist"}
    for pod in list(cluster.pods.values()):
        if pod.phase is Phase.BOUND:
            cluster.end(pod.uid)
    muster.ledger.apply(ClaimSeen("team", "dtaa-0", True), cluster.now)
    muster.settle()
    assert ungated(cluster) == [True, True, True]
