"""A leader that dies while a job leaves its nodes to start again on others: the next one goes on with it.

A policy that goes by what jobs have leaves it at whatever it came to, so nothing is mended by a later share.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from muster.points import Profile
from muster.types import (
    Action,
    EndReason,
    Evict,
    Grants,
    Move,
    Phase,
    RecordEvent,
    SharingSnapshot,
    Snapshot,
    WriteGang,
)
from muster_plugins.pack import Pack
from tests.cluster_fake import FakeCluster, Muster


@dataclass
class Steps:
    """Who has so many replicas is to have so many, else what it has: whatever a job came to, it stays."""

    then: dict[int, int] = field(default_factory=dict)

    def share(self, snapshot: SharingSnapshot) -> Grants:
        have = snapshot.table.have
        return Grants(np.array([self.then.get(count, count) for count in have.tolist()], dtype=np.int64))


@dataclass
class Moves:
    """Takes each job that runs off these nodes, to the others."""

    off: frozenset[str] = frozenset()

    def moves(self, snapshot: Snapshot) -> list[Move]:
        to = tuple(name for name in snapshot.nodes.names if name not in self.off)
        on = {key: {m.node for r in job.roles for m in r.on} for key, job in snapshot.jobs.items()}
        return [Move(key, to=to) for key, nodes in on.items() if nodes & self.off]


@dataclass(frozen=True)
class Change:
    """A job of `before` replicas on nodes of so many GPUs that is to have `after`, all of them on `off` no more."""

    before: int
    after: int
    nodes: int
    gpus: int
    off: frozenset[str] = frozenset()


CHANGES = {
    "growth on its node": Change(1, 2, nodes=1, gpus=4),
    "growth by another node": Change(2, 4, nodes=2, gpus=4),
    "shrink": Change(4, 2, nodes=2, gpus=4),
    "move": Change(2, 2, nodes=2, gpus=4, off=frozenset({"n0"})),
}
TURNS = 40


class Scene:
    """The job runs, and the next cycle changes it."""

    def __init__(self, change: Change, resize: str = "restart") -> None:
        self.change = change
        self.cluster = FakeCluster(change.nodes, change.gpus)
        self.cluster.job(
            "a", 8, min_replicas="1", max_replicas="8", sizes="1,2,4,8", resize=resize, remaining_work="1000"
        )
        self.steps, self.moves = Steps({0: change.before}), Moves()
        self.profile = Profile(
            name="steps",
            scores=((Pack(), 1.0),),
            shares=(self.steps,),
            rebalance=(self.moves,),
            conserving=True,
        )
        self.muster = Muster(self.cluster, self.profile)
        self.muster.settle()
        assert self.bound == change.before
        self.first = {pod.uid for pod in self.cluster.pods.values() if pod.phase is Phase.BOUND}
        self.cluster.sent.clear()
        if change.off:
            self.moves.off = change.off
        else:
            self.steps.then[change.before] = change.after

    @property
    def bound(self) -> int:
        return len(self.cluster.bound("a-"))

    @property
    def evictions(self) -> list[Evict]:
        return [action for action in self.cluster.sent if isinstance(action, Evict)]

    def turn(self, die_after: int | None = None) -> list[Action]:
        """One cycle, and what follows from the answers until the next; the leader dies after so many requests."""
        muster, cluster = self.muster, self.cluster
        cluster.now += 0.1
        muster.sync()
        snapshot = muster.ledger.snapshot(cluster.now)
        muster.plan = muster.ledger.plan(snapshot)
        todo, sent = list(muster.ledger.adopt(snapshot, muster.plan)), list[Action]()
        while todo and (die_after is None or len(sent) < die_after):
            sent.append(todo.pop(0))
            for event in cluster.carry_out(sent[-1]):
                muster.ledger.apply(event, cluster.now)
            todo += muster.ledger.proceed(cluster.now)
        return sent

    def again(self) -> None:
        """Another leader, which knows what the API says."""
        self.muster = Muster(self.cluster, self.profile)

    def settled(self) -> None:
        for _ in range(2):
            self.muster.settle(TURNS)
            self.cluster.now += 10.0

    def comes_to(self, size: int) -> None:
        """Who ran before has ended, once each, and nobody else; so many run, and the Gang says so."""
        self.settled()
        assert self.bound == size
        assert Counter(action.uid for action in self.evictions) == Counter(self.first)
        assert {action.reason for action in self.evictions} == {EndReason.MOVE}
        (gang,) = self.cluster.gangs.values()
        assert (gang.state, gang.replicas) == ("Running", f"{size}/{size}")
        assert (gang.leaving, gang.restart_on) == ((), ())


@pytest.mark.parametrize("name", CHANGES)
def test_who_is_to_leave_is_recorded_with_the_next_places_by_the_write_that_tells_of_it(name: str) -> None:
    scene = Scene(CHANGES[name])
    requests = scene.turn()
    wrote = [isinstance(action, WriteGang) for action in requests if not isinstance(action, RecordEvent)]
    assert wrote == [True, *[False] * scene.change.before], "one write, and only then evictions"
    written = next(action for action in requests if isinstance(action, WriteGang))
    assert set(written.status["ledger"]["leaving"]) == scene.first  # type: ignore[index]
    assert written.status["replicas"] == f"0/{len(written.reservations) or 1}"
    assert written.status["share"] == f"{len(written.reservations)}/1/8"
    scene.comes_to(scene.change.after)
    assert sum(isinstance(action, WriteGang) for action in scene.cluster.sent) == 2, "and one when it is done"


POINTS = [(name, point) for name, change in CHANGES.items() for point in range(change.before + 3)]


@pytest.mark.parametrize(("name", "after"), POINTS)
def test_the_next_leader_goes_on_with_it_whenever_one_dies(name: str, after: int) -> None:
    scene = Scene(CHANGES[name])
    scene.turn(die_after=after)
    scene.again()
    scene.comes_to(scene.change.after)


@pytest.mark.parametrize(("name", "after"), POINTS)
def test_and_so_does_the_one_after_that(name: str, after: int) -> None:
    for second in range(CHANGES[name].before + 3):
        scene = Scene(CHANGES[name])
        scene.turn(die_after=after)
        scene.again()
        scene.turn(die_after=second)
        scene.again()
        scene.comes_to(scene.change.after)
