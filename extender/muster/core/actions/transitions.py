"""A job's states as a table: State x event -> State, and the requests that may go with it.

Each cycle finds one event of each job (`event_of` its Status in the plan), and the event alone decides the next
state: Muster is level-triggered. A leader that takes over reads a state that may be old, and much may happen between
two cycles, so nearly every event can be found in every state; what can't be is in IMPOSSIBLE, with the reason.
`usual` names the states in which an event is found where no cycle missed anything. A test comes to each of them, and
crashes around each of its requests (tests/core/test_crash_in_each_transition.py). extender/README.md draws the table.

`enter` is the one place that changes a job's state; it checks the table and adds to the job's story.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from muster.core.state.job_state import JobState
from muster.errors import InvariantError
from muster.types import (
    Action,
    CreateProvisioningRequest,
    DeleteGang,
    DeleteProvisioningRequest,
    Evict,
    Expose,
    Nominate,
    Reason,
    RecordEvent,
    RestoreFinalizer,
    State,
    Status,
    Step,
    Ungate,
    WriteGang,
)

NEW = ""
"""The state of a job of which nothing is recorded: its first cycle, or its Gang is gone."""
STATES: tuple[str, ...] = (NEW, *State)

STORY_STEPS = 12
"""Transitions that a Gang keeps, the newest."""
CAUSE_BYTES = 160
"""Bytes (UTF-8) of the cause of each: a whole story is less than 4 kB of its Gang."""


class JobEvent(enum.StrEnum):
    """What a cycle found of a job."""

    PODS_MISSING = "PodsMissing"
    OTHER_GATE = "OtherGate"
    QUEUED = "Queued"
    NO_SHARE = "NoShare"
    PLACE_REFUSED = "PlaceRefused"
    SENT_BACK = "SentBack"
    PREEMPTED = "Preempted"
    RELEASED = "Released"
    RELEASED_STARTS = "ReleasedStarts"
    PLACED = "Placed"
    NO_PLACE = "NoPlace"
    PIN_REFUSED = "PinRefused"
    OWNER_AWAITED = "OwnerAwaited"
    WHOLE = "Whole"
    GROWS = "Grows"
    SHRINKS = "Shrinks"
    SUSPENDED = "Suspended"
    ENDED = "Ended"
    REJECTED = "Rejected"
    PUT_ASIDE = "PutAside"


E = JobEvent
_ORDINARY: Mapping[State, JobEvent] = {
    State.INCOMPLETE: E.PODS_MISSING,
    State.WAITING: E.QUEUED,
    State.STARTING: E.NO_PLACE,
    State.RUNNING: E.WHOLE,
    State.RESIZING: E.GROWS,
    State.SUSPENDED: E.SUSPENDED,
    State.FINISHED: E.ENDED,
    State.INVALID: E.REJECTED,
}
"""The event of a Status of which the reason says no more."""
_BY_REASON: Mapping[tuple[State, Reason], JobEvent] = {
    (State.INCOMPLETE, Reason.NOT_OURS_YET): E.OTHER_GATE,
    (State.WAITING, Reason.SHARE): E.NO_SHARE,
    (State.WAITING, Reason.STUCK): E.PLACE_REFUSED,
    (State.WAITING, Reason.BACKING_OFF): E.SENT_BACK,
    (State.WAITING, Reason.PREEMPTED): E.PREEMPTED,
    (State.WAITING, Reason.RELEASED): E.RELEASED,
    (State.STARTING, Reason.RELEASED): E.RELEASED_STARTS,
    (State.STARTING, Reason.BINDING): E.PLACED,
    (State.STARTING, Reason.STUCK): E.PIN_REFUSED,
    (State.STARTING, Reason.PODS_MISSING): E.OWNER_AWAITED,
    (State.STARTING, Reason.NOT_OURS_YET): E.OWNER_AWAITED,
    (State.STARTING, Reason.QUOTA): E.OWNER_AWAITED,
    (State.RESIZING, Reason.SHARE): E.SHRINKS,
    (State.INVALID, Reason.INTERNAL): E.PUT_ASIDE,
}
COMES_AND_GOES = frozenset({E.PODS_MISSING, E.QUEUED, E.NO_SHARE, E.PLACED})
"""No step of a story unless the state changes: what stands in a waiting job's way changes with every other job."""


class Row(NamedTuple):
    """What an event does. usual: the states before it, where no cycle missed anything."""

    to: State
    means: str
    usual: tuple[str, ...]
    requests: tuple[type[Action], ...]


class Transition(NamedTuple):
    """The next state, the requests that may go with it, and whether it is usual."""

    to: State
    requests: frozenset[type[Action]]
    usual: bool


_W, _I, _S, _R = State.WAITING, State.INCOMPLETE, State.STARTING, State.RUNNING
_Z, _SUS, _FIN, _BAD = State.RESIZING, State.SUSPENDED, State.FINISHED, State.INVALID
_ENDS: tuple[type[Action], ...] = (WriteGang, Evict)
_ASKS: tuple[type[Action], ...] = (*_ENDS, Expose, CreateProvisioningRequest)
_OPENS: tuple[type[Action], ...] = (*_ENDS, Ungate, Nominate)
AT_ANY_TIME: frozenset[type[Action]] = frozenset({RecordEvent, RestoreFinalizer, DeleteProvisioningRequest})
"""Requests that go with every event: what an earlier one left undone."""

ROWS: Mapping[JobEvent, Row] = MappingProxyType(
    {
        E.PODS_MISSING: Row(_I, "fewer pods exist than its minimum", (NEW, _W, _FIN), _ENDS),
        E.OTHER_GATE: Row(_I, "pods of its minimum carry a gate that is not Muster's", (NEW, _I, _W), _ENDS),
        E.QUEUED: Row(
            _W, "it is whole and waits for capacity or for its turn", (NEW, _I, _S, _R, _SUS, _BAD), _ASKS
        ),
        E.NO_SHARE: Row(_W, "the profile's shares give it nothing", (NEW, _I), _ASKS),
        E.PLACE_REFUSED: Row(
            _W, "kube-scheduler refused the place of a pod that nobody makes again", (_S,), _ASKS
        ),
        E.SENT_BACK: Row(
            _W, "it was not whole in time: all of it goes back to the gate", (_S,), (*_ENDS, Nominate)
        ),
        E.PREEMPTED: Row(_W, "it makes way for a job of higher priority", (_R,), (*_ENDS, Nominate)),
        E.RELEASED: Row(_W, "`muster release` took it out of the queue", (_W,), (WriteGang, Evict)),
        E.RELEASED_STARTS: Row(_S, "of what was released some is on a node", (_W,), _OPENS),
        E.PLACED: Row(_S, "every replica that it needs has a place", (NEW, _I, _W, _R, _Z), _OPENS),
        E.NO_PLACE: Row(_S, "it lost members, and there is no place for them", (_R,), _OPENS),
        E.PIN_REFUSED: Row(_S, "a pin can't work: its pod is placed again", (_S,), _OPENS),
        E.OWNER_AWAITED: Row(_S, "its owner is to create what it misses", (_R, _S), _OPENS),
        E.WHOLE: Row(_R, "its minimum and all that is granted is bound", (_S, _Z, _BAD), _ENDS),
        E.GROWS: Row(_Z, "it runs, and more replicas have a place", (_R, _S), _OPENS),
        E.SHRINKS: Row(_Z, "it runs, and some of its replicas leave", (_R,), _OPENS),
        E.SUSPENDED: Row(_SUS, "its owner is suspended", (_W, _R), _ENDS),
        E.ENDED: Row(_FIN, "its owner is done, or wants no replica", (_W, _R), (*_ENDS, DeleteGang)),
        E.REJECTED: Row(_BAD, "what its pods declare can't be used", (NEW, _I, _W, _S, _R), _OPENS),
        E.PUT_ASIDE: Row(
            _BAD, "an error of Muster's own over it (core/state/quarantine.py)", (_W, _R), _OPENS
        ),
    }
)

_NO_CLOCK = "the clock of a start runs while it is Starting, and the pause after it is over before it runs"
IMPOSSIBLE: Mapping[tuple[str, JobEvent], str] = MappingProxyType(
    {
        (NEW, E.SENT_BACK): "the clock of a start begins in the cycle that first finds it Starting",
        (State.RUNNING, E.SENT_BACK): _NO_CLOCK,
        (State.RESIZING, E.SENT_BACK): _NO_CLOCK,
    }
)
"""Pairs that no cycle can find, and why."""


def _transitions() -> Iterator[tuple[tuple[str, JobEvent], Transition]]:
    for event, row in ROWS.items():
        for state in STATES:
            if (state, event) not in IMPOSSIBLE:
                requests = frozenset(row.requests) | AT_ANY_TIME
                yield (state, event), Transition(row.to, requests, state in row.usual)


TRANSITIONS: Mapping[tuple[str, JobEvent], Transition] = MappingProxyType(dict(_transitions()))


def event_of(status: Status) -> JobEvent:
    """What a cycle found of a job, by its Status in the plan."""
    return _BY_REASON.get((status.state, status.reason)) or _ORDINARY[status.state]


def enter(job_state: JobState, status: Status, now: float) -> InvariantError | None:
    """The job's state from this cycle on (`JobState.state`, `since`, `story`). An impossible transition is made all
    the same, since what the plan found is true; it is returned, for the log, with the story so far."""
    event, before = event_of(status), job_state.state
    changed = before != status.state
    if changed:
        job_state.state, job_state.since = str(status.state), now
    last = job_state.story[-1] if job_state.story else None
    if changed or (event not in COMES_AND_GOES and (last is None or last.event != event)):
        step = Step(now, str(status.state), str(event), _cut(status.message))
        job_state.story = (*job_state.story[1 - STORY_STEPS :], step)
    if (before, event) in TRANSITIONS:
        return None
    story = "; ".join(f"{step.at:.0f} {step.event} -> {step.state}" for step in job_state.story)
    why = IMPOSSIBLE.get((before, event), "no such state")
    return InvariantError(
        f"{job_state.key}: {event} in state {before or 'New'}, but {why}. Its story: {story}"
    )


def _cut(cause: str) -> str:
    """The cause within its bound, whole characters only."""
    return cause.encode()[:CAUSE_BYTES].decode(errors="ignore")
