"""Replicas that leave while their job goes on: evicted, called back when a later plan wants them; a resize begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from muster.core.actions.evict import REFUSED, evict
from muster.core.sharing.shrink import stands
from muster.core.state.blockers import KEEPS_FIRST, KEEPS_MOST, stays
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.types import Action, Outcome, Plan, Shrink


def overtake(memory: LedgerState, plan: Plan) -> None:
    """Evictions that an earlier plan decided and that have not begun are called back where this plan makes the job
    larger again."""
    asked = {uid for kind, uid in memory.in_flight if kind == "evict"} & memory.shrinking
    memory.overtaken = frozenset(uid for uid in asked if _grows(memory, uid, plan))


def let_go(memory: LedgerState, plan: Plan, shrink: Shrink, now: float) -> Iterator[Action]:
    """A replica leaves while its job goes on."""
    evictions = tuple(evict(memory, shrink.job, shrink.uid, shrink.reason, shrink.cause, now))
    if evictions:
        memory.shrinking.add(shrink.uid)
        begin_change(memory, memory.entries[shrink.job], plan, now, leaves=True)
        memory.dirty.add(shrink.job)
    yield from evictions


def _grows(memory: LedgerState, uid: str, plan: Plan) -> bool:
    """Whether the plan gives the pod's job more replicas than stay without it."""
    key = memory.job_of.get(uid)
    job = memory.jobs.get(key) if key is not None else None
    return job is not None and job.elastic is not None and plan.shares.get(job.key, 0) > job.elastic.bound


def begin_change(
    memory: LedgerState, entry: JobState, plan: Plan, now: float, *, leaves: bool = False
) -> None:
    """A change of a running job's size begins, or of its place (some of it leaves, and its share is what stands); the
    next one counts once this one is complete."""
    key, job = entry.key, entry.job
    if entry.desired.changing or job is None or not job.bound or job.elastic is None:
        return
    standing = sum(1 for member in job.elastic.members if stands(member))
    share = plan.shares.get(key, standing if leaves else None)
    if share is None:
        return
    moves = leaves and share == standing
    entry.desired.changing = "move" if moves else "resize"
    facts = entry.facts
    entry.facts = replace(
        facts, last_resize=now, resizes=facts.resizes + (not moves), moves=facts.moves + moves
    )
    memory.dirty.add(key)


def shrunk(memory: LedgerState, entry: JobState, uid: str, outcome: Outcome, now: float) -> None:
    """One that was to leave leaves, or may not: then its job stays as large as it is for a time that doubles."""
    if 200 <= outcome.status < 300:
        entry.shrink_blocked_for = 0.0
        return
    memory.shrinking.discard(uid)
    facts = entry.facts
    if entry.desired.changing == "move":
        entry.facts = replace(facts, moves=max(0, facts.moves - 1))
    elif entry.desired.changing:
        entry.facts = replace(facts, resizes=max(0, facts.resizes - 1))
    entry.desired.changing = ""
    if outcome.status == REFUSED:
        stays(memory, entry, outcome, min(2 * entry.shrink_blocked_for or KEEPS_FIRST, KEEPS_MOST), now)
