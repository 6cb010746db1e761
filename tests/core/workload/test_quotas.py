"""Pods that do not appear since a ResourceQuota has no room for them."""

from __future__ import annotations

from muster.types import GPU, Phase, Quota, QuotasSeen
from tests.cluster_fake import FakeCluster, Muster


def gpus(hard: int, used: int) -> Quota:
    return Quota("team-gpus", f"requests.{GPU}", GPU, hard, used)


def short(cluster: FakeCluster, *quotas: Quota) -> Muster:
    """A Job of 12 replicas of 2 GPUs, of which 3 exist and no more come; its quotas were read."""
    cluster.job("train", 12, gpus=2, exist=3)
    muster = Muster(cluster)
    muster.turn()
    assert muster.ledger.short == frozenset(), "its controller may be about to make them"
    cluster.now += 2
    muster.turn()
    assert muster.ledger.short == {("team",)}
    muster.ledger.apply(QuotasSeen("team", quotas), cluster.now)
    muster.settle()
    return muster


def test_the_quota_that_keeps_pods_out_is_named_to_their_owner() -> None:
    cluster = FakeCluster(nodes=4)
    muster = short(cluster, gpus(32, 26), gpus(32, 31)._replace(name="team-z"))
    gang = cluster.gangs[("team", "job-train")]
    assert (gang.state, gang.reason) == ("Incomplete", "Quota")
    assert gang.message == (
        "3 of 12 pods exist; ResourceQuota team-z has no room for more (requests.nvidia.com/gpu)"
    )
    warned = [s for s in cluster.said if s.reason == "Quota"]
    assert [s.warning for s in warned] == [True] * 3, "on a pod, on the Job and on the Gang"
    assert warned[0].message.endswith("; 31 of 32 requests.nvidia.com/gpu used")
    writes = cluster.counts["gang-writes"]
    muster.ledger.apply(QuotasSeen("team", (gpus(32, 31)._replace(name="team-z", used=32),)), cluster.now)
    muster.settle()
    assert cluster.counts["gang-writes"] == writes, "it waits for the same"


def test_that_pods_are_missing_and_the_quota_behind_it_are_one_event() -> None:
    cluster = FakeCluster(nodes=4)
    short(cluster, gpus(32, 31))
    assert {s.reason for s in cluster.said} == {"Quota"}


def test_where_quotas_cannot_be_read_the_missing_pods_are_told_all_the_same() -> None:
    cluster = FakeCluster(nodes=4)
    cluster.job("train", 12, gpus=2, exist=3)
    muster = Muster(cluster)
    muster.turn()
    cluster.now += 2
    muster.turn()
    assert cluster.said == []
    assert muster.ledger.wake is not None
    assert muster.ledger.wake <= cluster.now + 2
    cluster.now += 2
    muster.settle()
    assert {s.reason for s in cluster.said} == {"PodsMissing"}


def test_a_quota_below_the_whole_job_is_said_to_be_so_for_ever() -> None:
    cluster = FakeCluster(nodes=4)
    short(cluster, gpus(7, 6))
    assert cluster.gangs[("team", "job-train")].message == (
        "3 of 12 pods exist; ResourceQuota team-gpus never has room for all (requests.nvidia.com/gpu)"
    )


def test_a_job_that_its_quota_keeps_short_is_not_started_in_part() -> None:
    """Else it would begin on the pods that exist after 10 s, as where an owner waits for its first ones."""
    cluster = FakeCluster(nodes=4)
    muster = short(cluster, gpus(32, 31))
    cluster.now += 60
    muster.settle()
    assert all(pod.phase is Phase.GATED for pod in cluster.pods.values())


def test_a_quota_with_room_is_not_blamed_and_its_room_starts_the_job() -> None:
    cluster = FakeCluster(nodes=4)
    muster = short(cluster, gpus(6, 6))
    owner = next(iter(cluster.pods.values())).controller
    assert owner is not None
    muster.ledger.apply(QuotasSeen("team", (gpus(64, 6),)), cluster.now)
    muster.settle()
    assert cluster.gangs[("team", "job-train")].reason == "PodsMissing"
    for index in range(3, 12):
        cluster.pod(owner, index, gpus=2)
    muster.settle(20)
    assert muster.state("job-train") == "Running"
    muster.turn()
    assert muster.ledger.short == frozenset()
