"""GPUs that nothing uses any more are free, whoever plans next: those of suspended jobs, of places that were taken
back, of starts whose owner was deleted; and what runs is charged, whoever's it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from muster.core.ledger import Ledger
from muster.points import Profile
from muster.types import NodeSeen, OwnerGone, Phase, Plan, PodGone, PodSeen, State, WriteGang
from tests.cluster_fake import FakeCluster, Muster


def starting(_: FakeCluster, muster: Muster) -> None:
    muster.turn()
    muster.turn()


def lost_replica(cluster: FakeCluster, muster: Muster) -> None:
    muster.settle()
    cluster.pods.pop(next(iter(cluster.pods)))  # the Job controller waits 10 s before it makes the next
    muster.turn()
    muster.turn()


def suspend(cluster: FakeCluster, muster: Muster, *, at_once: bool) -> None:
    """As the Job controller does: it says so, and its pods go, all at once or one after another."""
    for uid, record in list(cluster.owners.items()):
        cluster.owners[uid] = replace(record, suspended=True, size=0)
    for pod in [] if at_once else list(cluster.pods.values()):
        muster.turn()
        cluster.update(pod, deleting=True, phase=Phase.ENDING if pod.node else pod.phase)
        muster.turn()
    for uid in list(cluster.pods):
        del cluster.pods[uid]
        if not at_once:
            muster.turn()


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("carried", [0, 16])
@pytest.mark.parametrize("when", [starting, lost_replica])
def test_a_suspended_job_keeps_no_gpu(
    when: Callable[[FakeCluster, Muster], None], carried: int, at_once: bool
) -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    muster = Muster(cluster, Profile(carried=carried))
    cluster.job("train", 4, gpus=1)
    cluster.now += 3
    when(cluster, muster)
    suspend(cluster, muster, at_once=at_once)
    for _ in range(5):
        muster.turn(seconds=3.0)
    cluster.job("next", 4, gpus=1)
    for _ in range(10):
        muster.turn(seconds=60.0)
        cluster.bind()
    assert len(cluster.bound("next")) == 4
    assert all(not gang.placement for gang in cluster.gangs.values() if gang.state == State.SUSPENDED)


def hears(ledger: Ledger, cluster: FakeCluster) -> None:
    """All that there is."""
    for event in cluster.events():
        ledger.apply(event, cluster.now)


def plans_alone(follower: Ledger, cluster: FakeCluster, cycles: int) -> Plan:
    """What it plans once it leads."""
    hears(follower, cluster)
    follower.take_over(cluster.now)
    for _ in range(cycles):
        cluster.now += 60
        snapshot = follower.snapshot(cluster.now)
        plan = follower.plan(snapshot)
        follower.adopt(snapshot, plan)
    return plan


def test_who_takes_over_has_no_gpus_charged_for_places_that_were_taken_back() -> None:
    cluster = FakeCluster(nodes=2, gpus=4)
    profile = Profile(carried=0)
    leader, follower = Muster(cluster, profile), Ledger(profile)
    cluster.job("train", 8, gpus=1)
    cluster.now += 3
    leader.sync()
    snapshot = leader.ledger.snapshot(cluster.now)
    actions = leader.ledger.adopt(snapshot, leader.ledger.plan(snapshot))
    (write,) = [action for action in actions if isinstance(action, WriteGang)]
    answers = cluster.carry_out(write)
    hears(follower, cluster)  # the follower sees the placement
    cluster.nodes["n0"] = replace(cluster.nodes["n0"], unschedulable=True)  # before any gate comes off
    for event in (*answers, NodeSeen(cluster.nodes["n0"])):
        leader.ledger.apply(event, cluster.now)
    for _ in range(5):
        leader.turn(seconds=3.0)
    (gang,) = cluster.gangs.values()
    assert (gang.state, gang.placement) == ("Waiting", ()), "the leader takes them back"
    cluster.nodes["n0"] = replace(cluster.nodes["n0"], unschedulable=False)
    hears(follower, cluster)
    follower.snapshot(cluster.now)
    (status,) = plans_alone(follower, cluster, 5).statuses.values()
    assert status.state is State.STARTING


def test_who_takes_over_has_no_gpus_charged_for_a_start_whose_owner_was_deleted() -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    leader, follower = Muster(cluster), Ledger(Profile())
    cluster.job("train", 4, gpus=1)
    leader.turn()  # the first gate is off; that pod carries all four places
    hears(follower, cluster)
    (carrier,) = [pod for pod in cluster.pods.values() if pod.phase is Phase.UNGATED]
    assert len(carrier.carries) == 4
    for pod in list(
        cluster.pods.values()
    ):  # the gated ones have the Job controller's finalizer: there for a moment
        follower.apply(PodSeen(cluster.update(pod, deleting=True)), cluster.now)
    follower.snapshot(cluster.now)
    for uid in (carrier.uid, *(uid for uid in cluster.pods if uid != carrier.uid)):
        follower.apply(PodGone(uid), cluster.now)
    for uid in cluster.owners:
        follower.apply(OwnerGone(uid), cluster.now)
    cluster.pods.clear()
    cluster.owners.clear()
    follower.snapshot(cluster.now)
    cluster.job("next", 4, gpus=1)
    (status,) = plans_alone(follower, cluster, 1).statuses.values()
    assert status.state is State.STARTING


def test_who_begins_charges_pods_of_a_deleted_owner_where_they_still_run() -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    old, new = Muster(cluster), Ledger(Profile())
    cluster.job("train", 4, gpus=1)
    old.settle()
    assert len(cluster.bound("train")) == 4
    cluster.owners.clear()  # kubectl delete job: its pods take their grace period
    for pod in list(cluster.pods.values()):
        cluster.update(pod, deleting=True, phase=Phase.ENDING)
    cluster.job("next", 4, gpus=1)
    hears(new, cluster)
    new.take_over(cluster.now)
    plan = new.plan(new.snapshot(cluster.now))  # seconds old: whose they are is still open
    assert [s.state for key, s in plan.statuses.items() if key.name == "job-next"] == [State.WAITING]
    for uid in [uid for uid, pod in cluster.pods.items() if pod.phase is Phase.ENDING]:
        new.apply(PodGone(uid), cluster.now)
        del cluster.pods[uid]
    plan = new.plan(new.snapshot(cluster.now))
    assert [s.state for key, s in plan.statuses.items() if key.name == "job-next"] == [State.STARTING]
