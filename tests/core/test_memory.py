"""What outlives a restart in the Gang, and what is written anew when only sizes changed."""

from __future__ import annotations

from dataclasses import replace

from muster.core.memory import RETURN
from muster.points import Profile
from muster.types import Evict, GangRecord, OwnerGone, OwnerRecord, Phase, WriteGang
from tests.cluster_fake import FakeCluster, Muster


def gang(cluster: FakeCluster, name: str) -> GangRecord:
    return cluster.gangs[("team", name)]


def refused_once(cluster: FakeCluster, muster: Muster, name: str) -> str:
    """A gang of one whose first pin is refused and undone; the node that was refused."""
    (pod,) = cluster.job(name, 1, gpus=4)
    muster.turn()
    muster.turn()
    where = cluster.pods[pod.uid].pin
    assert where
    cluster.update(cluster.pods[pod.uid], refusal="node(s) didn't match pod anti-affinity rules")
    muster.turn()
    cluster.now += 5
    muster.turn()
    return where


def test_a_node_left_out_after_a_refusal_stays_left_out_across_a_restart() -> None:
    cluster = FakeCluster(nodes=2)
    muster = Muster(cluster)
    where = refused_once(cluster, muster, "train")
    (bar,) = gang(cluster, "job-train").barred
    assert (bar.role, bar.node, bar.length) == ("worker", where, 5.0)
    after = Muster(cluster)  # the next leader, a second later
    cluster.now += 1
    assert (
        where
        in after.ledger.snapshot(cluster.now).barred[
            (after.ledger._job_of[next(iter(cluster.pods))], "worker")
        ]
    )
    after.settle()
    (pod,) = cluster.pods.values()
    assert pod.phase is Phase.BOUND
    assert pod.node != where


def test_the_time_for_which_a_node_is_left_out_doubles_across_a_restart_too() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    where = refused_once(cluster, muster, "train")
    (first,) = gang(cluster, "job-train").barred
    cluster.now = first.until + 1
    after = Muster(cluster)  # the bar has run out, its length is remembered
    after.turn()
    after.turn()
    (pod,) = cluster.pods.values()
    assert pod.pin == where
    cluster.update(pod, refusal="again")
    after.turn()
    cluster.now += 5
    after.turn()
    (second,) = gang(cluster, "job-train").barred
    assert second.length == 2 * first.length


def test_a_waiting_gang_shows_its_new_size_when_its_owner_was_scaled() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 10
    (pod, *_) = cluster.job("elastic", 4, gpus=4, min_replicas="2")
    owner = pod.controller
    assert owner is not None
    muster.settle()
    assert gang(cluster, "job-elastic").sizes == (("worker", 2, 4),)
    writes = cluster.counts["gang-writes"]
    cluster.now += 10
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=8, completions=8)
    muster.settle()
    assert gang(cluster, "job-elastic").sizes == (("worker", 2, 8),)
    assert cluster.counts["gang-writes"] == writes + 1
    assert [s.reason for s in cluster.said if "elastic" in s.pod] == ["Resources"], (
        "no Event: it waits for the same"
    )


def test_a_restart_writes_nothing_for_a_gang_that_waits_as_before() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 10
    cluster.job("waits", 3, gpus=4)
    muster.settle()
    sent = len(cluster.sent)
    cluster.now += 10
    Muster(cluster).settle()
    assert not [a for a in cluster.sent[sent:] if isinstance(a, WriteGang)]


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
    entry = muster.ledger._entries[muster.key("job-queue")]
    looks = 0

    class Counted(dict):  # type: ignore[type-arg]
        def values(self):  # type: ignore[no-untyped-def]
            nonlocal looks
            looks += 1
            return super().values()

    entry.pods = Counted(entry.pods)
    assert list(muster.ledger._leftovers(entry, cluster.now)) == []
    assert looks <= 2
    muster.ledger._owners.records[owner.uid] = replace(record, succeeded=1)
    assert len(list(muster.ledger._leftovers(entry, cluster.now))) == 2999, "all but the one that has a place"
