"""Policies that decide in rounds, with the Ledger in the circle: what a round granted stands until the next one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.points import Profile
from muster.types import Action, Event, Evict, Grants, Outcome, Phase, PodSeen, SharingSnapshot
from muster_plugins.pack import Pack
from tests.cluster_fake import FakeCluster, Muster

ROUND = 10.0


@dataclass(frozen=True)
class Turns:
    """All GPUs to "a" before this time, then to "b"."""

    until: float

    def share(self, snapshot: SharingSnapshot) -> Grants:
        table = snapshot.table
        runs = "job-a" if snapshot.now < self.until else "job-b"
        return Grants(
            np.array([m if k.name == runs else 0 for k, m in zip(table.keys, table.max, strict=True)])
        )


class EndsLate(FakeCluster):
    """An evicted pod is ending until `let_end`; its owner makes the next one then."""

    def carry_out(self, action: Action) -> list[Event]:
        if not isinstance(action, Evict):
            return super().carry_out(action)
        self.sent.append(action)
        return [
            PodSeen(self.update(self.pods[action.uid], deleting=True, phase=Phase.ENDING)),
            Outcome(action, 201),
        ]

    def let_end(self) -> None:
        for pod in [p for p in self.pods.values() if p.phase is Phase.ENDING]:
            self.delete(pod.uid)


def test_who_is_granted_in_a_round_what_others_are_to_leave_has_it_although_another_is_first_in_the_queue() -> (
    None
):
    """The cycles until the next round ask no policy; they took it for a job that waits and was granted nothing."""
    cluster = EndsLate(nodes=1, gpus=2)
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
    cluster.let_end()
    muster.settle()
    assert {name: len(cluster.bound(name)) for name in ("a", "earlier", "b")} == {
        "a": 0,
        "earlier": 0,
        "b": 2,
    }
    assert cluster.now < next_round + ROUND
