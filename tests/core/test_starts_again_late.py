"""All of a job leaves to start again elsewhere, and does not come: its places are not kept for it for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.types import Action, Event, Evict, NodeBackoff, Outcome, Phase, PodRecord, WriteGang
from tests.core.test_starts_again import Restarts


class Leaves(Restarts):
    """a has been told to leave, and its owner makes only what the scenario has it make."""

    def __init__(self, waiting: bool) -> None:
        super().__init__(ends=3, comes=4)
        if not waiting:
            for pod in [pod for pod in self.of_a() if pod.phase is Phase.GATED]:
                del self.cluster.pods[pod.uid]
        while self.evicted() < 2:
            self.turns(1)
        self.recreate = self.cluster.recreate

    def of_a(self) -> list[PodRecord]:
        return [pod for pod in self.cluster.pods.values() if pod.name.startswith("a-")]

    def holds(self, pod: PodRecord) -> None:
        """Its owner makes it again, and somebody else's webhook adds a gate."""
        before = set(self.cluster.pods)
        self.recreate(pod)
        for uid in set(self.cluster.pods) - before if pod.name.startswith("a-") else ():
            self.cluster.update(self.cluster.pods[uid], phase=Phase.HELD)

    def leaves_out(self, pod: PodRecord) -> None:
        """Its owner makes no more of them."""
        if not pod.name.startswith("a-"):
            self.recreate(pod)


@pytest.mark.parametrize("lost", [False, True], ids=["same leader", "next leader"])
@pytest.mark.parametrize("makes", ["holds", "leaves_out"])
def test_places_of_who_does_not_come_are_free_after_a_while(
    monkeypatch: pytest.MonkeyPatch, makes: str, lost: bool
) -> None:
    hall = Leaves(waiting=False)
    monkeypatch.setattr(hall.cluster, "recreate", getattr(hall, makes))
    if lost:
        hall.dies_after(0)
    began = hall.cluster.now
    while not hall.runs("b") and hall.cluster.now < began + 60.0:
        hall.turns(1)
    assert hall.runs("b")
    assert hall.cluster.now - began < 15.0


@pytest.mark.parametrize("lost", [False, True], ids=["same leader", "next leader"])
@pytest.mark.parametrize("away", ["another gate", "scaled to 0"])
def test_who_comes_long_after_ends_nobody_for_places_that_were_kept_for_it(
    monkeypatch: pytest.MonkeyPatch, away: str, lost: bool
) -> None:
    hall = Leaves(waiting=True)
    cluster = hall.cluster
    (owner,) = [record for record in cluster.owners.values() if record.owner.name == "a"]
    monkeypatch.setattr(cluster, "recreate", hall.holds)
    if away == "scaled to 0":
        cluster.owners[owner.owner.uid] = replace(owner, size=0)
    if lost:
        hall.dies_after(0)
    hall.turns(200)
    assert hall.runs("b") == [0, 1, 2, 3]
    before = hall.evicted()
    cluster.owners[owner.owner.uid] = owner
    for pod in [pod for pod in hall.of_a() if pod.phase is Phase.HELD]:
        cluster.update(pod, phase=Phase.GATED)
    hall.turns(30)
    assert (hall.runs("b"), hall.evicted()) == ([0, 1, 2, 3], before)


def test_what_is_not_kept_any_more_is_not_recorded_for_the_next_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would end who has started there."""
    hall = Leaves(waiting=True)
    cluster = hall.cluster
    monkeypatch.setattr(cluster, "recreate", hall.holds)
    while not hall.runs("b"):
        hall.turns(1)
    hall.turns(100)
    before = hall.evicted()
    hall.dies_after(0)
    hall.turns(2)
    for pod in [pod for pod in hall.of_a() if pod.phase is Phase.HELD]:
        cluster.update(pod, phase=Phase.GATED)
    hall.turns(30)
    assert (len(hall.runs("b")), hall.evicted()) == (4, before)


@pytest.mark.parametrize("answer", [200, 403, 404, 409, 500, 0])
def test_an_earlier_write_under_way_is_not_the_one_that_evictions_wait_for(
    monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    """It tells nothing of who starts again: a leader that died after it would leave a part of the job."""
    hall = Restarts(ends=3, comes=4)
    ledger, cluster, carry_out = hall.muster.ledger, hall.cluster, hall.cluster.carry_out
    under_way: list[WriteGang] = []

    def slow(action: Action) -> list[Event]:
        if not isinstance(action, WriteGang) or action.job.name != "job-a":
            return carry_out(action)
        under_way.append(action)
        return []

    monkeypatch.setattr(cluster, "carry_out", slow)
    (job_state,) = [each for key, each in ledger.entries.items() if key.name == "job-a"]
    goes_on, hall.keeps.replicas = hall.keeps.replicas, {}
    ledger.back_off_node(job_state, NodeBackoff("worker", "n9", cluster.now + 1000.0, 5.0))
    ledger.dirty.add(job_state.key)
    hall.turns(1)
    hall.keeps.replicas = goes_on
    hall.turns(3)
    (first,) = under_way
    assert (first.leaves_whole, hall.evicted()) == (frozenset(), 0)
    for event in carry_out(first) if answer == 200 else [Outcome(first, answer)]:
        ledger.apply(event, cluster.now)
    assert ledger.proceed(cluster.now) == ()
    hall.turns(1)
    if answer == 200:
        (_, second) = under_way
        assert (len(second.leaves_whole), hall.evicted()) == (2, 0)
        hall.turns(2)
        ledger.apply(Outcome(second, 500), cluster.now)
        hall.turns(1)
    assert hall.evicted() == 2
    for action in under_way:
        ledger.apply(Outcome(action, 500), cluster.now)
    monkeypatch.setattr(cluster, "carry_out", carry_out)
    hall.turns(40)
    assert (hall.runs("a"), hall.evicted()) == ([0, 1, 2, 3], 2)


def test_who_starts_again_is_not_ended_in_part_each_few_seconds_where_a_budget_refuses_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hall = Restarts(ends=3, comes=4, before=4, after=2)
    cluster, carry_out = hall.cluster, hall.cluster.carry_out
    kept = max(pod.uid for pod in cluster.pods.values() if pod.name.startswith("a-"))

    def guarded(action: Action) -> list[Event]:
        if not isinstance(action, Evict) or action.uid != kept:
            return carry_out(action)
        return [Outcome(action, 429, "a budget allows none")]

    monkeypatch.setattr(cluster, "carry_out", guarded)
    hall.turns(600)
    assert 0 < hall.evicted() <= 15
