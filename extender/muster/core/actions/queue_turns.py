"""What a waiting job's Gang says of its turn: position, what fits now, who has what it needs, and when it may start.

All of it changes whenever another job starts, so the Gang is not written for it as for what is compared in
core.actions.reconcile_gang: it goes along with every other write, and is rewritten for the first QUEUE_TOLD of the
queue at most, WRITES times in WITHIN seconds however long the queue is, and not while requests of starts wait to be
sent. Where nothing happens at all, a cycle is due when a start that is told has come and gone. It is never a reason
for an Event. A job behind the first QUEUE_TOLD has no position, and its message says so; one that can never fit has
none, either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.core.actions.reconcile_gang import rewrite
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.types import (
    QUEUE_TOLD,
    Action,
    JobKey,
    Nominate,
    Plan,
    State,
    Turn,
    Ungate,
    WriteGang,
)

WRITES, WITHIN = 100, 30.0
"""Writes that only tell of turns, and the seconds in which there are no more."""
EVERY = 5.0
"""Seconds between two looks: who moves up by several places is written once."""
SOON = 0.5
"""The same where starts came first: they are sent in the meantime."""
DRIFT = 60.0
"""Seconds by which an expected start may move before it is written again."""


def turns_told(state: LedgerState, plan: Plan, decided: Sequence[Action], now: float) -> Iterator[JobKey]:
    """Jobs whose Gangs are to be rewritten since their turn is another one, first first; nothing where it is not yet
    time. decided: what this cycle does beside."""
    if not plan.order and not state.turns_told:
        return
    # A start that was expected, and has not come, is another one now, also where nothing else happens.
    if first := min((turn.start for turn in state.turns.values() if turn.start), default=0.0):
        state.requeue_at.add(max(first, now + EVERY))
    if now < state.turns_at:
        if state.turns_seen != (plan.order, state.turns):
            state.requeue_at.add(state.turns_at)
        return
    stale = [key for key in _looked_at(state, plan) if _stale(state, plan, key)]
    state.turns_at, state.turns_seen = now + EVERY, (plan.order, state.turns)
    if not stale:
        return
    state.turns_seen = ()  # until all is told
    if any(map(_starts, decided)) or any(map(_starting, state.entries.values())):
        state.turns_at = now + SOON
        state.requeue_at.add(state.turns_at)
        return
    state.turn_writes = [at for at in state.turn_writes if at > now - WITHIN]
    room = WRITES - len(state.turn_writes)
    if len(stale) > room:
        state.requeue_at.add(max(state.turns_at, (state.turn_writes or [now])[0] + WITHIN))
    yield from stale[:room]


def tell_turn(state: LedgerState, plan: Plan, key: JobKey, now: float) -> Iterator[Action]:
    """One of them."""
    job_state = state.entries[key]
    if job_state.job is None:
        return
    actions = list(rewrite(state, job_state, job_state.job, plan.statuses[key], now))
    state.turn_writes += [now] * len(actions)
    yield from actions


def _looked_at(state: LedgerState, plan: Plan) -> list[JobKey]:
    """The first of the queue, then those that were told a position and are not among them any more."""
    first = [key for key, position in plan.positions.items() if position <= QUEUE_TOLD]
    return first + sorted(state.turns_told - set(first))


def _stale(state: LedgerState, plan: Plan, key: JobKey) -> bool:
    job_state, status = state.entries.get(key), plan.statuses.get(key)
    if (
        job_state is None
        or job_state.recorded.gang is None
        or status is None
        or status.state is not State.WAITING
    ):
        state.turns_told.discard(key)  # it starts, or is gone: the write that says so says this, too
        return False
    return not _alike(state.turn(key, status), job_state.recorded.turn)


def _alike(one: Turn | None, other: Turn | None) -> bool:
    if one is None or other is None:
        return one is other
    return one._replace(start=other.start) == other and abs(one.start - other.start) < DRIFT


def _starts(action: Action) -> bool:
    return isinstance(action, Ungate | Nominate) or (
        isinstance(action, WriteGang) and bool(action.reservations)
    )


def _starting(job_state: JobState) -> bool:
    """Whether a request of its start is on its way."""
    flight = job_state.in_flight
    if flight.start or any(request.sent in (Ungate, Nominate) for request in flight.pods.values()):
        return True
    return flight.gang.sent is WriteGang and any(
        h.uid and not job_state.records(h) for h in job_state.planned
    )
