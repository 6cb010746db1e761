"""What became of our actions: recorded placements, refused evictions, requests that are tried again."""

from __future__ import annotations

from muster.core.actions.evict import CHANGED, LONGEST_RETRY, NOT_SENT, REFUSED, RETRY, RETRY_EVICTION, goes
from muster.core.actions.provisioning import asked_for
from muster.core.actions.save_learned import TEACH_EVERY
from muster.core.actions.scale_down import shrunk
from muster.core.state.blockers import KEEPS_WHOLE, stays
from muster.core.state.job_state import JobState
from muster.core.state.pods import trust_recorded
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
    Ungate,
    WriteGang,
    WriteLearned,
)


def answered(memory: LedgerState, outcome: Outcome, now: float) -> None:
    """What the API said to one action (HTTP status; NOT_SENT where it was called back)."""
    action, good = outcome.action, 200 <= outcome.status < 300
    entry = memory.entries.get(action.job)
    match action:
        case WriteGang():
            if entry is None:
                return
            entry.in_flight.gang = False
            memory.dirty.add(entry.key)
            if good:
                entry.in_flight.gang_refusals = 0
                entry.recorded.places = frozenset((h.uid, h.node) for h in action.reservations if h.uid)
                trust_recorded(memory, entry)
                memory.recorded.append(entry.key)
                status = action.status
                entry.recorded.told = (
                    str(status["state"]),
                    str(status["code"]),
                    str(status["reason"]),
                    str(status["replicas"]),
                )
                entry.recorded.sizes, entry.recorded.node_backoffs = action.sizes, action.node_backoffs
                entry.recorded.asked = action.asked
                entry.recorded.keeps = str(status.get("keeps") or "")
                entry.recorded.silent = action.silent
                # Read back with the first answer, the same values are other objects.
                entry.recorded.observed = (
                    entry.observed if entry.observed == action.observed else action.observed
                )
                entry.recorded.observed_at = now
            else:
                if outcome.status == 404:
                    entry.recorded.gang = None
                _put_off(memory, entry, outcome, now)
        case DeleteGang():
            if entry is not None:
                entry.in_flight.gang = False
                if not good and outcome.status != 404:
                    _put_off(memory, entry, outcome, now)
        case CreateProvisioningRequest() | DeleteProvisioningRequest():
            if entry is not None:
                asked_for(memory, entry, action, good, now)
        case (
            Ungate(uid=uid) | Nominate(uid=uid) | Evict(uid=uid) | Expose(uid=uid) | RestoreFinalizer(uid=uid)
        ):
            kind = type(action).__name__.lower()
            memory.in_flight.discard((kind, uid))
            if entry is not None:
                memory.dirty.add(entry.key)
            if entry is not None and isinstance(action, Ungate) and action.carries:
                entry.in_flight.start = False
                if good:
                    entry.recorded.carried_at = now
                    memory.recorded.append(entry.key)
            if entry is not None and isinstance(action, Evict) and good:
                memory.ended[action.reason] += 1
                goes(memory, entry, uid)
            if entry is not None and isinstance(action, Evict) and uid in memory.shrinking:
                shrunk(memory, entry, uid, outcome, now)
            elif entry is not None and isinstance(action, Evict) and outcome.status == REFUSED:
                stays(memory, entry, outcome, KEEPS_WHOLE, now)
                entry.desired.preempted = ""  # what is gone of it comes back to it first
            if good:
                memory.refusals.pop(uid, None)
            else:
                slow = isinstance(action, Evict) and outcome.status not in (CHANGED, NOT_SENT)
                budget = isinstance(action, Evict) and outcome.status == REFUSED  # it has a pause of its own
                if _refused(outcome) and not budget:
                    memory.refusals[uid] = memory.refusals.get(uid, 0) + 1
                pause = _pause(RETRY_EVICTION if slow else RETRY, memory.refusals.get(uid, 0), outcome)
                memory.retry[uid] = now + pause
                memory.requeue_at.add(now + pause)
        case WriteLearned():
            if not good:
                memory.lessons.changed = True  # tried again with what is learned until then
                memory.requeue_at.add(memory.taught_at + TEACH_EVERY)
        case RecordEvent():
            pass


def _put_off(memory: LedgerState, entry: JobState, outcome: Outcome, now: float) -> None:
    """The Gang is written again, RETRY seconds later, and later each time that it is refused."""
    entry.in_flight.gang_refusals += _refused(outcome)
    entry.in_flight.gang_retry_at = now + _pause(RETRY, entry.in_flight.gang_refusals, outcome)
    memory.requeue_at.add(entry.in_flight.gang_retry_at)


def _refused(outcome: Outcome) -> bool:
    """Whether the API server did not want this request; one that is away or fails may take it a moment later."""
    return 400 <= outcome.status < 500


def _pause(first: float, refusals: int, outcome: Outcome) -> float:
    """Seconds before a request about an object is made again that was refused so many times in a row."""
    grown = min(first * 2.0 ** min(max(0, refusals - 1), 16), LONGEST_RETRY)
    return max(grown, min(outcome.after, LONGEST_RETRY))
