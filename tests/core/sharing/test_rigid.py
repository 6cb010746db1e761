"""A running job of one size whose owner never said that it can be restarted: no share ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.points import Profile
from muster.types import Ungate
from muster_plugins.max_min import MaxMin
from muster_plugins.pack import Pack
from muster_plugins.specon import SpeCon
from muster_plugins.srtf import Srtf
from tests.cluster_fake import FakeCluster, Muster
from tests.core.test_batch import Larger

SRTF = Profile(name="srtf", scores=((Pack(), 1.0),), shares=(Srtf(),), conserving=True)


def after_a_shorter_one(profile: Profile, **says: str) -> tuple[dict[str, int], str]:
    """Bound pods by job once a short one has come to a node that another one fills, and why that one has its share.
    says: its annotations."""
    cluster = FakeCluster(nodes=1, gpus=4)
    muster = Muster(cluster, profile)
    cluster.job("first", 4, **says)
    muster.settle()
    assert len(cluster.bound("first")) == 4
    cluster.now += 1.0
    cluster.job("short", 4, resize="restart", remaining_work="60")
    muster.settle()
    whys = {key.name: why for key, why in muster.ledger.whys.items()}
    return {name: len(cluster.bound(name)) for name in ("first", "short")}, whys.get("job-first", "")


def test_it_is_not_stopped_for_a_job_that_the_policy_puts_first_and_its_owner_reads_that_its_size_is_fixed() -> (
    None
):
    assert after_a_shorter_one(SRTF) == ({"first": 4, "short": 0}, "its size is fixed at 4 replicas")


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        pytest.param(SRTF, {"resize": "restart"}, id="its owner says that it can be restarted"),
        pytest.param(SRTF, {"min_replicas": "2", "max_replicas": "4"}, id="it is elastic"),
        pytest.param(
            replace(SRTF, preemption=True), {}, id="who runs the cluster lets jobs be stopped whole"
        ),
    ],
)
def test_it_is_stopped_where_somebody_said_that_it_may_be(profile: Profile, says: dict[str, str]) -> None:
    bound, _ = after_a_shorter_one(profile, **says)
    assert bound == {"first": 0, "short": 4}


def test_what_it_has_is_not_shared_out_so_others_share_the_rest() -> None:
    cluster = FakeCluster(nodes=2, gpus=4)
    muster = Muster(cluster, SRTF)
    cluster.job("first", 4)
    muster.settle()
    for name, seconds in (("long", "6000"), ("short", "60")):
        cluster.now += 1.0
        cluster.job(name, 4, resize="restart", remaining_work=seconds)
        muster.settle()
    assert {name: len(cluster.bound(name)) for name in ("first", "long", "short")} == {
        "first": 4,
        "long": 0,
        "short": 4,
    }


def test_one_whose_batch_size_is_chosen_takes_part_and_all_its_workers_start_with_the_same() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster, replace(SRTF, shares=(Larger(),)))
    cluster.job("a", 2, batch_sizes="128, 64")
    muster.settle()
    assert [action.batch for action in cluster.sent if isinstance(action, Ungate)] == [128, 128]
    (entry,) = muster.ledger.entries.values()
    assert entry.desired.grant is not None


def test_one_whose_owner_lowered_its_most_to_its_least_is_cut_to_it() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster, replace(SRTF, shares=(MaxMin(),)))
    cluster.job("a", 4, min_replicas="2", max_replicas="4")
    muster.settle()
    assert len(cluster.bound("a")) == 4
    for pod in list(cluster.pods.values()):
        cluster.update(pod, annotations={**pod.annotations, "muster.dev/max-replicas": "2"})
    muster.settle(turns=20, seconds=10.0)
    assert len(cluster.bound("a")) == 2


def test_where_no_policy_shares_its_size_is_decided_by_none() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster, replace(SRTF, shares=(), rebalance=(SpeCon(),)))
    cluster.job("a", 2)
    muster.settle()
    assert len(cluster.bound("a")) == 2
    assert muster.plan.shares == {}
