"""A leader that dies while a job leaves its nodes to start again on others: the next one goes on with it.

A policy that goes by what jobs have leaves it at whatever it came to, so nothing is mended by a later share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from muster.points import Profile
from muster.types import (
    Action,
    EndReason,
    Event,
    Evict,
    Grants,
    Move,
    Outcome,
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


def test_nobody_ends_before_the_write_has_been_taken() -> None:
    scene = Scene(CHANGES["growth by another node"])
    real = scene.cluster.carry_out

    def refuses(action: Action) -> list[Event]:
        return [Outcome(action, 500)] if isinstance(action, WriteGang) else real(action)

    scene.cluster.carry_out = refuses  # type: ignore[method-assign]
    for _ in range(5):
        scene.turn()
    assert (scene.bound, scene.evictions) == (2, [])
    scene.cluster.carry_out = real  # type: ignore[method-assign]
    scene.comes_to(4)


def test_who_is_recorded_to_leave_and_may_not_stays_and_the_next_leader_leaves_it_alone() -> None:
    scene = Scene(CHANGES["growth on its node"])
    real = scene.cluster.carry_out

    def refuses(action: Action) -> list[Event]:
        return [Outcome(action, 429, "disruption budget")] if isinstance(action, Evict) else real(action)

    scene.cluster.carry_out = refuses  # type: ignore[method-assign]
    for _ in range(4):
        scene.turn()
    (gang,) = scene.cluster.gangs.values()
    assert gang.leaving == ()
    scene.cluster.carry_out = real  # type: ignore[method-assign]
    scene.again()
    scene.turn()
    assert scene.evictions == []


def test_evictions_of_a_restart_are_not_called_back_by_the_next_plan() -> None:
    """More of them than are sent at once wait for their turn, while the next plan has the job grow from nothing."""
    scene = Scene(CHANGES["shrink"])
    scene.turn(die_after=1)
    (job_state,) = scene.muster.ledger.entries.values()
    assert {request.sent for request in job_state.in_flight.pods.values()} == {Evict}
    scene.turn(die_after=0)
    assert scene.muster.ledger.overtaken == frozenset()


def deleted(scene: Scene) -> None:
    scene.cluster.pods.clear()
    scene.cluster.owners.clear()


def scaled(scene: Scene) -> None:
    """To two replicas: the others, which wait, are deleted."""
    for uid, record in list(scene.cluster.owners.items()):
        scene.cluster.owners[uid] = replace(record, size=2, completions=2)
    for uid, pod in list(scene.cluster.pods.items()):
        if int(pod.labels["batch.kubernetes.io/job-completion-index"]) >= 2:
            del scene.cluster.pods[uid]


def its_next_places_go(scene: Scene) -> None:
    for name in list(scene.cluster.nodes)[1:]:
        scene.cluster.nodes[name] = replace(scene.cluster.nodes[name], unschedulable=True)


def share_falls(scene: Scene) -> None:
    scene.steps.then.clear()
    scene.steps.then.update(dict.fromkeys(range(9), 1))


def share_is_gone(scene: Scene) -> None:
    scene.steps.then.clear()
    scene.steps.then.update(dict.fromkeys(range(9), 0))


@pytest.mark.parametrize("meanwhile", [deleted, scaled, its_next_places_go, share_falls, share_is_gone])
@pytest.mark.parametrize("name", CHANGES)
def test_it_has_a_size_of_its_own_whatever_happens_while_nobody_leads(
    name: str, meanwhile: Callable[[Scene], None]
) -> None:
    for after in range(CHANGES[name].before + 3):
        scene = Scene(CHANGES[name])
        scene.turn(die_after=after)
        meanwhile(scene)
        scene.again()
        scene.settled()
        left = Counter(action.uid for action in scene.evictions)
        assert scene.bound in (0, 1, 2, 4, 8), after
        assert scene.bound or meanwhile in (deleted, share_is_gone)
        assert max(left.values(), default=0) <= 1, "nobody twice"
