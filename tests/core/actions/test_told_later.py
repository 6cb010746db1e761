"""What a Gang tells later than it could: a hand-over is one write of each job's, a thousand Gangs are not written at
once, and none of that makes a cycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from muster.core.actions.reconcile_gang import diff
from muster.core.actions.told_later import BRIEF, KEPT_EVERY, SPREAD, TOGETHER, kept_for, kept_until
from muster.core.state.job_state import JobState
from muster.core.state.state import HEARD
from muster.types import GangSeen, JobKey, Outcome, Phase, Reason, State, Status, WriteGang
from tests.cluster_fake import FakeCluster, Muster
from tests.core.devices.circle import Circle


def written(circle: Circle, seconds: int, until: Callable[[], bool] = bool) -> list[WriteGang]:
    """Gangs written meanwhile, those that are made left out."""
    before = len(circle.cluster.sent)
    for _ in range(seconds):
        circle.second()
        if until():
            break
    return [a for a in circle.cluster.sent[before:] if isinstance(a, WriteGang) and a.exists]


def shares(writes: list[WriteGang], gang: str) -> list[tuple[object, bool]]:
    """What each write of a Gang says that the job is granted, and whether its message says that it uses that many."""
    found = [(a.status["share"], str(a.status["message"])) for a in writes if a.gang == gang]
    return [(share, f"in place: {str(share).split('/')[0]} of" in message) for share, message in found]


def at_rest() -> tuple[FakeCluster, Muster]:
    """A job that runs, and nothing is due."""
    cluster = FakeCluster()
    cluster.job("train", 2)
    muster = Muster(cluster)
    muster.settle()
    cluster.bind()
    muster.settle()
    cluster.now += 2 * HEARD
    muster.settle()
    return cluster, muster


@pytest.mark.parametrize("attends", [False, True])
def test_a_hand_over_is_told_once_by_each_of_both_jobs(attends: bool) -> None:
    """Whether or not words of agents are heard within a cycle, when it has its snapshot."""
    circle = Circle()
    circle.attends = attends
    circle.train("a", "2,4")
    circle.seconds(20)
    b = circle.train("b", "2,4")
    writes = written(circle, 20)
    assert shares(writes, "job-a") == [("2/2/4", True)]
    assert shares(writes, "job-b") == [("2/2/4", True)]
    circle.cluster.end(b.uid)
    assert shares(written(circle, 20), "job-a") == [("4/2/4", True)]


def test_a_hand_over_that_takes_long_is_told_while_it_goes_on() -> None:
    circle = Circle()
    a = circle.train("a", "2,4")
    circle.seconds(20)
    circle.slow.add(a.uid)
    circle.train("b", "2,4")
    writes = written(circle, 20, until=lambda: circle.uses("a") != [4])
    assert shares(writes, "job-a") == [("2/2/4", False)]
    began = circle.cluster.now
    circle.slow.clear()
    writes = written(circle, 20)
    assert circle.cluster.now > began + BRIEF
    assert shares(writes, "job-a")[-1] == ("2/2/4", True)


def test_jobs_that_started_together_are_written_in_few_cycles_but_not_all_in_one() -> None:
    due = Counter[float]()
    for number in range(1000):
        job_state = JobState(JobKey("team", f"job-{number}"))
        job_state.recorded.observed_at = 1_000_000.0 + number / 1000
        assert KEPT_EVERY * (1 - SPREAD) <= kept_for(job_state) <= KEPT_EVERY
        late = kept_until(job_state) - job_state.recorded.observed_at - kept_for(job_state)
        assert 0.0 <= late < TOGETHER
        due[kept_until(job_state)] += 1
    assert len(due) <= KEPT_EVERY * SPREAD / TOGETHER + 2
    assert max(due.values()) < 500


def test_the_answer_to_a_write_about_a_job_that_runs_makes_no_cycle() -> None:
    cluster, muster = at_rest()
    assert muster.state("job-train") == "Running"
    assert not muster.ledger.due(cluster.now)
    gang = next(iter(cluster.gangs.values()))
    edited = replace(gang, message="by hand", version=cluster.tick())
    muster.ledger.apply(GangSeen(edited), cluster.now)
    assert not muster.ledger.due(cluster.now)
    assert muster.ledger.due(cluster.now + HEARD), "what is wrong in it is mended all the same"


def test_what_is_wanted_while_a_gang_is_being_written_is_written_at_once() -> None:
    cluster = FakeCluster()
    cluster.job("train", 2)
    muster = Muster(cluster)
    muster.settle(turns=2)  # both are bound
    muster.sync()
    ledger = muster.ledger
    snapshot = ledger.snapshot(cluster.now)
    actions = ledger.adopt(snapshot, ledger.plan(snapshot))
    (write,) = [a for a in actions if isinstance(a, WriteGang)]
    assert write.status["state"] == "Running"
    (state,) = ledger.entries.values()
    assert state.job is not None
    other = Status(State.RUNNING, Reason.OK, "something else")
    assert list(diff(ledger, state, state.job, other, cluster.now)) == []
    for event in cluster.carry_out(write):
        ledger.apply(event, cluster.now)
    assert ledger.due(cluster.now)
    ledger.snapshot(cluster.now)
    again = replace(write, status={**write.status, "message": "something else"})
    state.in_flight.gang = state.in_flight.gang.sends(WriteGang)
    state.in_flight.told = ("Running", "Ok", "something else", "2/2")
    as_written = Status(State.RUNNING, Reason.OK, str(write.status["message"]))
    assert list(diff(ledger, state, state.job, as_written, cluster.now)) == []
    ledger.apply(Outcome(again, 200), cluster.now)
    assert ledger.due(cluster.now), "what was written meanwhile is not true any more"


def test_what_is_heard_after_a_plan_kept_something_of_a_job_still_has_its_cycle() -> None:
    cluster, muster = at_rest()
    ledger, (key,) = muster.ledger, muster.ledger.entries
    snapshot = ledger.snapshot(cluster.now)
    ledger.adopt(snapshot, replace(ledger.plan(snapshot), memory={key: {"a plugin": 1}}))
    assert not ledger.due(cluster.now), "that is no reason for a cycle"
    gang = next(iter(cluster.gangs.values()))
    ledger.apply(GangSeen(replace(gang, message="by hand", version=cluster.tick())), cluster.now)
    assert ledger.due(cluster.now + HEARD)


def test_the_first_word_that_a_job_runs_is_not_held_back() -> None:
    circle = Circle()
    (other,) = circle.cluster.job("p", 1, 4)
    circle.seconds(3)
    a = circle.train("a", "2,4")
    circle.late.add("a-0")
    circle.seconds(3)
    assert circle.cluster.gangs["team", "job-a"].state == "Waiting"
    circle.cluster.end(other.uid)
    while circle.cluster.pods[a.uid].phase is not Phase.BOUND:
        circle.second()
    circle.seconds(2)
    assert circle.cluster.gangs["team", "job-a"].state == "Running", "its agent is not there yet"
