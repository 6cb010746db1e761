"""What became of our actions: recorded placements, refused evictions, requests that are tried again."""

from __future__ import annotations

from muster.core.actions.evict import CHANGED, LONGEST_RETRY, NOT_SENT, REFUSED, RETRY, RETRY_EVICTION, goes
from muster.core.actions.provisioning import asked_for
from muster.core.actions.save_learned import TEACH_EVERY
from muster.core.actions.scale_down import shrunk
from muster.core.gang_object.gang_codec import unqueued
from muster.core.state.blockers import KEEPS_WHOLE, stays
from muster.core.state.in_flight import Request
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.types import (
    CreateProvisioningRequest,
    DeleteGang,
    DeleteProvisioningRequest,
    Evict,
    Expose,
    Nominate,
    Outcome,
    RecordEvent,
    RestoreFinalizer,
    State,
    Ungate,
    WriteGang,
    WriteLearned,
)


def answered(state: LedgerState, outcome: Outcome, now: float) -> None:
    """What the API said to one action (HTTP status; NOT_SENT where it was called back)."""
    action, good = outcome.action, 200 <= outcome.status < 300
    job_state = state.entries.get(action.job)
    match action:
        case WriteGang():
            if job_state is None:
                return
            flight = job_state.in_flight
            lost, again, flight.lost, flight.again = flight.lost, flight.again, False, False
            if (
                good
                and not (lost or again)
                and action.status["state"] == State.RUNNING
                and not action.reservations
            ):
                state.hear(job_state.key, now)  # nothing waits for it
            else:
                state.dirty.add(job_state.key)
            if good:
                job_state.in_flight.gang = job_state.in_flight.gang.taken(WriteGang)
                if lost or job_state.recorded.gang is None:
                    return  # of a Gang that somebody has deleted since: nothing is recorded
                state.recorded.append(job_state.key)
                status = action.status
                job_state.recorded.told = (
                    str(status["state"]),
                    str(status["reason"]),
                    unqueued(str(status["message"])),
                    str(status["replicas"]),
                )
                job_state.recorded.old = False
                job_state.recorded.sizes, job_state.recorded.node_backoffs = (
                    action.sizes,
                    action.node_backoffs,
                )
                job_state.recorded.asked = action.asked
                job_state.recorded.keeps = str(status.get("keeps") or "")
                job_state.recorded.silent = action.silent
                job_state.recorded.granted = action.granted
                _turn_told(state, job_state, action)
                # Read back with the first answer, the same values are other objects.
                job_state.recorded.observed = (
                    job_state.observed if job_state.observed == action.observed else action.observed
                )
                job_state.recorded.observed_at = now
            else:
                if outcome.status == 404 and not lost:
                    job_state.recorded.gang, job_state.recorded.places = None, frozenset()
                job_state.in_flight.gang = _refused(state, job_state.in_flight.gang, outcome, now)
        case DeleteGang():
            if job_state is None:
                return
            job_state.in_flight.lost = False
            state.dirty.add(job_state.key)
            if good or outcome.status == 404:
                job_state.in_flight.gang = job_state.in_flight.gang.dropped(DeleteGang)
            else:
                job_state.in_flight.gang = _refused(state, job_state.in_flight.gang, outcome, now)
        case CreateProvisioningRequest() | DeleteProvisioningRequest():
            if job_state is not None:
                asked_for(state, job_state, action, good, now)
        case (
            Ungate(uid=uid) | Nominate(uid=uid) | Evict(uid=uid) | Expose(uid=uid) | RestoreFinalizer(uid=uid)
        ):
            if uid in state.job_of:
                in_flight = state.entries[state.job_of[uid]].in_flight  # of its job of now
                kept = in_flight.of(uid)
                kept = kept.taken(type(action)) if good else _refused(state, kept, outcome, now)
                in_flight.keep(uid, kept)
            if job_state is not None:
                state.dirty.add(job_state.key)
            if job_state is not None and isinstance(action, Ungate) and not good:
                job_state.given_up.pop(uid, None)  # its gate is still on: it was never pinned there
            if job_state is not None and isinstance(action, Ungate) and action.carries:
                job_state.in_flight.start = False
                if good:
                    job_state.recorded.carried_at = now
                    state.recorded.append(job_state.key)
            if job_state is not None and isinstance(action, Evict) and good:
                state.ended[action.reason] += 1
                goes(state, job_state, uid)
            if job_state is not None and isinstance(action, Evict) and uid in job_state.desired.leaving:
                shrunk(state, job_state, uid, outcome, now)
            elif job_state is not None and isinstance(action, Evict) and outcome.status == REFUSED:
                stays(state, job_state, outcome, KEEPS_WHOLE, now)
                job_state.desired.preempted = ""  # what is gone of it comes back to it first
        case WriteLearned():
            if not good:
                state.lessons.changed = True  # tried again with what is learned until then
                state.requeue_at.add(state.taught_at + TEACH_EVERY)
        case RecordEvent():
            pass


def _turn_told(state: LedgerState, job_state: JobState, action: WriteGang) -> None:
    job_state.recorded.turn = action.turn
    told = action.turn is not None and action.turn.position
    (state.turns_told.add if told else state.turns_told.discard)(job_state.key)


def _refused(state: LedgerState, request: Request, outcome: Outcome, now: float) -> Request:
    """A request that failed is made again RETRY or RETRY_EVICTION seconds later, and later each time that the API
    server does not want it; one that is away or fails may take it a moment later."""
    evicts = isinstance(outcome.action, Evict)
    slow = evicts and outcome.status not in (CHANGED, NOT_SENT)
    budget = evicts and outcome.status == REFUSED  # it has a pause of its own
    refusals = request.refusals + (400 <= outcome.status < 500 and not budget)
    pause = min((RETRY_EVICTION if slow else RETRY) * 2.0 ** min(max(0, refusals - 1), 16), LONGEST_RETRY)
    again = now + max(pause, min(outcome.after, LONGEST_RETRY))
    state.requeue_at.add(again)
    return request.refused(type(outcome.action), again, refusals)
