"""What became of our actions: recorded placements, refused evictions, requests that are tried again."""

from __future__ import annotations

from muster.core.asking import asked_for
from muster.core.endings import CHANGED, NOT_SENT, REFUSED, RETRY, RETRY_EVICTION, goes
from muster.core.entry import Entry
from muster.core.leaving import shrunk
from muster.core.memory import Memory
from muster.core.obstacles import KEEPS_WHOLE, stays
from muster.core.teaching import TEACH_EVERY
from muster.types import (
    AskNodes,
    DeleteGang,
    DropNodes,
    Evict,
    Expose,
    Nominate,
    Outcome,
    Retrack,
    Say,
    Ungate,
    WriteGang,
    WriteLearned,
)


def answered(memory: Memory, outcome: Outcome, now: float) -> None:
    """What the API said to one action (HTTP status; NOT_SENT where it was called back)."""
    action, good = outcome.action, 200 <= outcome.status < 300
    entry = memory.entries.get(action.job)
    match action:
        case WriteGang():
            if entry is None:
                return
            entry.writing = False
            memory.dirty.add(entry.key)
            if good:
                entry.recorded = frozenset((h.uid, h.node) for h in action.holds if h.uid)
                memory.recorded.append(entry.key)
                status = action.status
                entry.written = (
                    str(status["state"]),
                    str(status["code"]),
                    str(status["reason"]),
                    str(status["replicas"]),
                )
                entry.sizes, entry.bars = action.sizes, action.barred
                entry.asked_kept = action.asked
                entry.keeps_told = str(status.get("keeps") or "")
                entry.silent_told = action.silent
                # Read back with the first answer, the same values are other objects.
                entry.kept = entry.lived if entry.lived == action.kept else action.kept
                entry.kept_at = now
            else:
                if outcome.status == 404:
                    entry.gang = None
                _put_off(memory, entry, now)
        case DeleteGang():
            if entry is not None:
                entry.writing = False
                if not good and outcome.status != 404:
                    _put_off(memory, entry, now)
        case AskNodes() | DropNodes():
            if entry is not None:
                asked_for(memory, entry, action, good, now)
        case Ungate(uid=uid) | Nominate(uid=uid) | Evict(uid=uid) | Expose(uid=uid) | Retrack(uid=uid):
            kind = type(action).__name__.lower()
            memory.in_flight.discard((kind, uid))
            if entry is not None:
                memory.dirty.add(entry.key)
            if entry is not None and isinstance(action, Ungate) and action.carries:
                entry.carrying = False
                if good:
                    entry.carried_at = now
                    memory.recorded.append(entry.key)
            if entry is not None and isinstance(action, Evict) and good:
                goes(memory, entry, uid)
            if entry is not None and isinstance(action, Evict) and uid in memory.shrinking:
                shrunk(memory, entry, uid, outcome, now)
            elif entry is not None and isinstance(action, Evict) and outcome.status == REFUSED:
                stays(memory, entry, outcome, KEEPS_WHOLE, now)
                entry.preempted = ""  # what is gone of it comes back to it first
            if not good:
                slow = isinstance(action, Evict) and outcome.status not in (CHANGED, NOT_SENT)
                pause = RETRY_EVICTION if slow else RETRY
                memory.retry[uid] = now + pause
                memory.wakes.add(now + pause)
        case WriteLearned():
            if not good:
                memory.lessons.changed = True  # tried again with what is learned until then
                memory.wakes.add(memory.taught_at + TEACH_EVERY)
        case Say():
            pass


def _put_off(memory: Memory, entry: Entry, now: float) -> None:
    """The Gang is written again, RETRY seconds later."""
    entry.retry_at = now + RETRY
    memory.wakes.add(entry.retry_at)
