"""The table of a job's states (core/actions/transitions.py): it is whole, and the README and stories follow it.

That no turn of any test leaves the table is checked by the fakes themselves (tests/table_of_states.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.core.actions.transitions import (
    CAUSE_BYTES,
    IMPOSSIBLE,
    ROWS,
    STATES,
    STORY_STEPS,
    TRANSITIONS,
    JobEvent,
    enter,
    event_of,
)
from muster.core.state.job_state import JobState
from muster.types import JobKey, Reason, State, Status, Step

E = JobEvent


def test_every_pair_of_state_and_event_is_in_the_table_or_impossible() -> None:
    pairs = {(state, event) for state in STATES for event in JobEvent}
    assert TRANSITIONS.keys() | IMPOSSIBLE.keys() == pairs
    assert not TRANSITIONS.keys() & IMPOSSIBLE.keys()


@pytest.mark.parametrize("state", State)
def test_the_event_of_whatever_a_plan_says_leads_to_the_state_that_it_says(state: State) -> None:
    assert {ROWS[event_of(Status(state, reason, ""))].to for reason in Reason} == {state}


def table() -> str:
    """The table of extender/README.md, as Markdown."""
    lines = [
        "| event | what a cycle finds | state from then on | usually before | requests |",
        "|---|---|---|---|---|",
    ]
    for event, row in ROWS.items():
        usual = ", ".join(state or "new" for state in row.usual)
        requests = ", ".join(request.__name__ for request in row.requests)
        lines.append(f"| {event} | {row.means} | {row.to} | {usual} | {requests} |")
    return "\n".join(lines) + "\n"


def test_the_readme_draws_the_table_as_it_is() -> None:
    readme = (Path(__file__).parents[2] / "extender" / "README.md").read_text()
    assert table() in readme, f"extender/README.md is to say:\n{table()}"


@pytest.mark.parametrize(("state", "event"), IMPOSSIBLE)
def test_an_impossible_transition_is_told_with_the_story_so_far_and_the_job_goes_on(
    state: str, event: JobEvent
) -> None:
    entry = JobState(JobKey("team", "train"), state=state, story=(Step(7.0, state or "Waiting", "Whole"),))
    status = next(
        status
        for status in (Status(ROWS[event].to, reason, "as the plan says") for reason in Reason)
        if event_of(status) is event
    )
    error = enter(entry, status, 8.0)
    assert entry.state == status.state
    assert entry.story[-1] == Step(8.0, "Waiting", "SentBack", "as the plan says")
    assert IMPOSSIBLE[state, event] in str(error)
    assert "7 Whole -> " in str(error)


def test_a_story_keeps_the_newest_steps_and_few_bytes_of_each_cause() -> None:
    entry = JobState(JobKey("team", "train"))
    for turn in range(40):
        state = State.WAITING if turn % 2 else State.INCOMPLETE
        assert enter(entry, Status(state, Reason.OK, "\u20ac" * 9000), float(turn)) is None
    assert [step.at for step in entry.story] == [float(at) for at in range(40 - STORY_STEPS, 40)]
    assert {step.cause for step in entry.story} == {"\u20ac" * (CAUSE_BYTES // 3)}


def test_a_wait_for_something_else_is_no_step_and_a_preemption_is_one() -> None:
    entry = JobState(JobKey("team", "train"))
    for reason in (
        Reason.RESOURCES,
        Reason.BEHIND_HEAD,
        Reason.PREEMPTED,
        Reason.PREEMPTED,
        Reason.RESOURCES,
    ):
        enter(entry, Status(State.WAITING, reason, ""), 1.0)
    assert [step.event for step in entry.story] == [E.QUEUED, E.PREEMPTED]
