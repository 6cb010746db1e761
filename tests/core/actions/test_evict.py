"""How pods of ours are ended and come back, with the Ledger in the circle; and which are never ended."""

from __future__ import annotations

from dataclasses import replace

from muster.core.actions.evict import leftovers
from muster.core.state.recreated import RETURN
from muster.points import Profile
from muster.types import Evict, OwnerGone, OwnerRecord, Phase, Ungate
from tests.cluster_fake import FakeCluster, Muster


def test_a_refused_pin_is_undone_after_five_seconds_and_the_node_left_out() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 1, gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    pod = next(p for p in cluster.pods.values() if p.pin)
    refused = pod.pin
    cluster.update(pod, refusal="node(s) didn't match pod anti-affinity rules")
    muster.turn(seconds=3.0)
    assert not [a for a in cluster.sent if isinstance(a, Evict)]
    muster.turn(seconds=6.0)
    assert len([a for a in cluster.sent if isinstance(a, Evict)]) == 1
    muster.settle(20, seconds=0.1)
    assert cluster.bound("train")
    assert cluster.bound("train") != [refused]


def test_a_gang_below_its_minimum_goes_back_to_the_gate_after_the_timeout() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 2, gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    first = next(p for p in cluster.pods.values() if p.pin)
    cluster.update(first, phase=Phase.BOUND, node=first.pin)
    for _ in range(5):
        muster.turn(seconds=20.0)
    assert not [a for a in cluster.sent if isinstance(a, Evict)]
    for _ in range(4):
        muster.turn(seconds=20.0)
    evicted = [a for a in cluster.sent if isinstance(a, Evict)]
    assert len(evicted) >= 2
    muster.settle(40, seconds=3.0)
    assert len(cluster.bound("train")) == 2


def test_preemption_is_off_by_default() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("low", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.job("high", 1, gpus=8, priority=1000)
    muster.settle()
    assert not [a for a in cluster.sent if isinstance(a, Evict)]
    assert len(cluster.bound("low")) == 2


def test_a_higher_priority_gang_sends_the_fewest_latest_lower_gangs_back_whole() -> None:
    cluster = FakeCluster(nodes=2)
    muster = Muster(cluster, Profile(preemption=True))
    for name, gpus, priority in (("old", 4, 0), ("new", 4, 0), ("other", 8, 5)):
        cluster.now += 10
        cluster.job(name, 1, gpus=gpus, priority=priority)
        muster.settle()
    cluster.now += 10
    cluster.job("high", 1, gpus=4, priority=1000)
    muster.settle(20)
    assert {a.job.name for a in cluster.sent if isinstance(a, Evict)} == {"job-new"}
    assert len(cluster.bound("high")) == 1
    assert len(cluster.bound("old")) == 1
    assert muster.state("job-new") == "Waiting"


def test_a_gang_is_preempted_whole_and_comes_back_when_there_is_room() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("low", 2, gpus=4)
    muster = Muster(cluster, Profile(preemption=True))
    muster.settle()
    cluster.now += 10
    high = cluster.job("high", 1, gpus=4, priority=1000)
    muster.settle(20)
    assert cluster.bound("low") == []
    assert len([a for a in cluster.sent if isinstance(a, Evict)]) == 2
    cluster.end(high[0].uid)
    muster.settle(20)
    assert len(cluster.bound("low")) == 2


def test_nobody_else_is_preempted_while_a_gang_is_half_way_back() -> None:
    cluster = FakeCluster(nodes=3)
    cluster.job("low", 2, gpus=8)
    muster = Muster(cluster, Profile(preemption=True))
    muster.settle()
    cluster.now += 10
    cluster.job("bystander", 1, gpus=4)
    muster.settle()
    cluster.now += 10
    cluster.job("high", 2, gpus=8, priority=1000)
    muster.turn(die_after=1)  # one eviction has reached the API, the other has no answer yet
    for _ in range(3):
        muster.turn()
    assert len(cluster.bound("bystander")) == 1
    assert len([p for p in cluster.pods.values() if p.name.startswith("low") and p.phase is Phase.BOUND]) <= 1


def test_a_leader_that_takes_over_between_two_evictions_of_a_preemption_ends_the_rest_of_that_gang() -> None:
    """Its first replica is made again meanwhile, and doesn't get its place back."""
    for requests in range(12):
        cluster = FakeCluster(nodes=4, gpus=4)
        muster = Muster(cluster, Profile(preemption=True))
        for name, priority in (("old", 0), ("new", 0), ("high", 9)):
            cluster.now += 10
            cluster.job(name, 2, gpus=4, priority=priority)
            if not priority:
                muster.settle()
        muster.turn(die_after=requests)
        after = Muster(cluster, Profile(preemption=True))
        after.settle(20)
        ended = [action.job.name for action in cluster.sent if isinstance(action, Evict)]
        assert ended == ["job-new", "job-new"], f"after {requests} requests"
        assert len(cluster.bound("high")) == 2


def test_a_job_that_was_released_by_hand_is_neither_planned_nor_sent_back() -> None:
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("big", 2, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.update(pods[0], phase=Phase.BOUND, node="n0")
    cluster.update(pods[1], phase=Phase.RELEASED)
    cluster.sent.clear()
    for _ in range(6):
        muster.turn(seconds=60.0)
    assert not [a for a in cluster.sent if isinstance(a, Evict | Ungate)]
    assert muster.plan.statuses[muster.key("job-big")].reason == "Released"


def test_what_waits_of_a_work_queue_is_taken_away_when_a_replica_has_succeeded() -> None:
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("queue", 4, gpus=4, min_replicas="1")
    owner = pods[0].controller
    assert owner is not None
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=4, queue=True)
    muster = Muster(cluster)
    muster.settle()
    assert len(cluster.bound("queue")) == 2
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=2, queue=True)  # re-creates nothing now
    cluster.end(next(p.uid for p in cluster.pods.values() if p.node))
    muster.turn()
    waiting = {p.uid for p in pods if not cluster.pods.get(p.uid, pods[0]).node}
    assert {a.uid for a in cluster.sent if isinstance(a, Evict)} == waiting
    assert len(cluster.bound("queue")) == 1


def test_a_bare_pod_pinned_to_a_cordoned_node_is_said_to_be_stuck_and_never_ended() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.bare("alone", "alone", gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    cluster.nodes["n0"] = replace(cluster.nodes["n0"], unschedulable=True)
    muster.settle()
    assert str(muster.plan.statuses[muster.key("alone")].reason) == "Stuck"
    assert not [a for a in cluster.sent if isinstance(a, Evict)]
    cluster.nodes["n0"] = replace(cluster.nodes["n0"], unschedulable=False)
    muster.settle()
    assert muster.state("alone") == "Running"


def test_a_label_s_job_whose_pods_never_come_back_is_over_after_a_while() -> None:
    cluster = FakeCluster(nodes=1)
    low = [
        cluster.update(pod, labels={**pod.labels, "muster.dev/job": "low"})
        for pod in cluster.job("low", 2, gpus=4)
    ]
    owner = low[0].controller
    assert owner is not None
    muster = Muster(cluster, Profile(preemption=True))
    muster.settle()
    cluster.now += 10
    cluster.job("high", 2, gpus=4, priority=1000)
    del cluster.owners[owner.uid]
    muster.ledger.apply(OwnerGone(owner.uid), cluster.now)
    muster.settle()
    assert len([a for a in cluster.sent if isinstance(a, Evict)]) == 2
    assert muster.state("low") == "Incomplete"
    assert muster.ledger.wake is not None
    assert muster.ledger.wake <= cluster.now + RETURN
    cluster.now += RETURN
    muster.settle()
    assert muster.state("low") == "Finished"


def test_the_leftovers_of_a_large_work_queue_cost_one_look_at_its_pods() -> None:
    """3,000 gated pods of a queue that is not over: once quadratic."""
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("queue", 3000, gpus=8, min_replicas="1")
    owner = pods[0].controller
    assert owner is not None
    record = OwnerRecord(owner, "team", size=3000, queue=True)
    cluster.owners[owner.uid] = record
    muster = Muster(cluster)
    muster.turn()
    entry = muster.ledger.entries[muster.key("job-queue")]
    looks = 0

    class Counted(dict):  # type: ignore[type-arg]
        def values(self):  # type: ignore[no-untyped-def]
            nonlocal looks
            looks += 1
            return super().values()

    entry.pods = Counted(entry.pods)
    assert list(leftovers(muster.ledger, entry, cluster.now)) == []
    assert looks <= 2
    muster.ledger.owners.records[owner.uid] = replace(record, succeeded=1)
    assert len(list(leftovers(muster.ledger, entry, cluster.now))) == 2999, "all but the one that has a place"
