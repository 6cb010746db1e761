"""A running job is not stopped for GPUs that are on their way to somebody already, or that a policy counted twice."""

from __future__ import annotations

import pytest

from muster.types import Evict, Phase
from tests.cluster_fake import FakeCluster, Muster, SlowEnds
from tests.told import live


@pytest.mark.parametrize("profile", ["max-min", "afs-l", "afs-l-packed"])
def test_a_job_that_shrinks_in_its_start_is_to_start_again_where_its_share_is_and_no_further(
    profile: str,
) -> None:
    cluster = SlowEnds(nodes=1, gpus=4)
    muster = Muster(cluster, live(profile))
    size = {"min_replicas": "1", "max_replicas": "4"}
    cluster.job("first", 4, resize="restart", **size)
    for _ in range(6):
        muster.turn()
    ungated = [pod for pod in cluster.pods.values() if pod.phase is Phase.UNGATED]
    cluster.update(ungated[0], phase=Phase.BOUND, node=ungated[0].pin)
    cluster.now += 1
    muster.turn()
    cluster.job("second", 4, **size)
    most = 0
    for at in range(12):
        muster.turn(seconds=1.0)
        (first,) = [entry for key, entry in muster.ledger.entries.items() if "first" in key.name]
        if first.desired.restart_on and first.key in muster.plan.later:
            most = max(most, len(first.desired.restart_on) - muster.plan.shares[first.key])
        if at > 1:
            cluster.bind()
            cluster.over()
    assert most <= 0, "places of who leaves are given up with them"


@pytest.mark.parametrize("profile", ["coach", "termination", "reshape-restart", "sidecar-default"])
def test_a_place_that_is_kept_for_a_successor_and_granted_to_another_stops_nobody(profile: str) -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    muster = Muster(cluster, live(profile))
    cluster.job("loses", 2)
    cluster.now += 1
    cluster.job("runs", 2, resize="restart")
    muster.settle()
    cluster.now += 100
    cluster.job("waits", 1, 1, priority=10)
    for _ in range(4):
        muster.settle(seconds=400.0)
    assert len(cluster.bound("runs")) == 2
    cluster.sent.clear()
    cluster.end(next(uid for uid, pod in cluster.pods.items() if pod.name.startswith("loses-")), Phase.FAILED)
    for _ in range(6):
        muster.turn(seconds=1.0)
        cluster.bind()
    assert not [action for action in cluster.sent if isinstance(action, Evict)]
    assert len(cluster.bound("runs")) == 2
