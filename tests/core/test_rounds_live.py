"""Policies that decide in rounds, with the Ledger in the circle: what a round granted stands until the next one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from muster.points import Profile
from muster.types import Grants, Job, Owner, SharingSnapshot
from muster_plugins.pack import Pack
from tests.cluster_fake import FakeCluster, Muster, SlowEnds

ROUND = 10.0


@dataclass(frozen=True)
class Turns:
    """All GPUs to "a" before this time, then to "b"."""

    until: float

    def share(self, snapshot: SharingSnapshot) -> Grants:
        table = snapshot.table
        runs = "job-a" if snapshot.now < self.until else "job-b"
        all_or_none = [m if k.name == runs else 0 for k, m in zip(table.keys, table.max, strict=True)]
        return Grants(np.array(all_or_none, dtype=np.int64))


def granted_b() -> tuple[SlowEnds, Muster, float]:
    """A cluster on which "b" was granted in a round what "a" is still to leave, and when that round began."""
    cluster = SlowEnds(nodes=1, gpus=2)
    for name in ("a", "earlier", "b"):
        cluster.job(name, 2, min_replicas="1")
        cluster.now += 1.0
    next_round = (cluster.now // ROUND + 1) * ROUND
    profile = Profile(
        name="turns", scores=((Pack(), 1.0),), shares=(Turns(next_round),), round=ROUND, conserving=True
    )
    muster = Muster(cluster, profile)
    muster.settle()
    assert len(cluster.bound("a")) == 2
    muster.turn(seconds=next_round - cluster.now)
    muster.settle(5)
    assert b_in(muster).restart_on == ("n0", "n0")
    return cluster, muster, next_round


def b_in(muster: Muster) -> Job:
    jobs = muster.ledger.snapshot(muster.cluster.now).jobs
    return next(job for key, job in jobs.items() if key.name == "job-b")


def owner_of_b(cluster: FakeCluster, **says: object) -> Owner:
    """What its owner says; it takes the pods of b away."""
    uid, record = next((uid, one) for uid, one in cluster.owners.items() if one.owner.name == "b")
    cluster.owners[uid] = replace(record, **says)  # type: ignore[arg-type]
    for pod in [p for p in cluster.pods.values() if p.controller == record.owner]:
        del cluster.pods[pod.uid]
    return record.owner


def test_who_is_granted_in_a_round_what_others_are_to_leave_has_it_although_another_is_first_in_the_queue() -> (
    None
):
    """The cycles until the next round ask no policy; they took it for a job that waits and was granted nothing."""
    cluster, muster, began = granted_b()
    cluster.over()
    muster.settle()
    assert {name: len(cluster.bound(name)) for name in ("a", "earlier", "b")} == {
        "a": 0,
        "earlier": 0,
        "b": 2,
    }
    assert cluster.now < began + ROUND


def test_who_was_granted_what_others_are_to_leave_and_is_suspended_has_nothing_of_that_any_more() -> None:
    """It counted as one that has its share, and defragment as one that is on its way, for as long as it was."""
    cluster, muster, _ = granted_b()
    owner = owner_of_b(cluster, suspended=True)
    muster.settle(5)
    assert b_in(muster).restart_on == ()
    owner_of_b(cluster, suspended=False)
    for index in range(2):
        cluster.pod(owner, index, annotations={"min_replicas": "1"})
    muster.turn()
    assert muster.plan.shares[muster.key("job-b")] == 0, "it waits for the next round"


def test_who_was_granted_what_others_are_to_leave_and_is_deleted_has_nothing_of_that_any_more() -> None:
    cluster, muster, _ = granted_b()
    del cluster.owners[owner_of_b(cluster).uid]
    muster.settle(5)
    assert b_in(muster).restart_on == ()
    cluster.over()
    muster.settle()
    assert len(cluster.bound("a")) == 2


def test_who_is_out_of_the_queue_when_a_round_begins_has_nothing_of_the_last_one() -> None:
    """The only node is gone, so nothing fits; it stood for a share until the node was back, rounds later."""
    cluster, muster, began = granted_b()
    del cluster.nodes["n0"]
    muster.settle(5)
    assert muster.key("job-b") not in muster.plan.shares
    assert b_in(muster).restart_on == ("n0", "n0"), "until the round is over"
    muster.turn(seconds=began + ROUND - cluster.now)
    muster.turn()
    assert b_in(muster).restart_on == ()
