"""How pods of ours are ended and come back: evictions, whole gangs sent back, nodes left out after a refusal.

`evict` is the one action that ends a pod of ours (design §1); a pod is never asked for twice while an answer is
awaited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from muster.core.state.job_state import JobState
from muster.core.state.pods import join
from muster.core.state.reservation_usage import set_holds
from muster.core.state.state import LedgerState
from muster.core.workload.owners import succeeded
from muster.core.workload.unfinished_eviction import counted
from muster.core.workload.whole import STILL
from muster.types import Action, EndReason, Evict, JobKey, NodeBackoff, Phase, Reservation, RestoreFinalizer

BAR_FIRST, BAR_MOST = 5.0, 1280.0
"""Seconds for which a refused node is left out for a role: the first time, doubling up to the most. Short at first:
kube-scheduler's cache may only have been behind, and the gang may have no other node."""

BACKOFF_FIRST, BACKOFF_DOUBLINGS = 10.0, 6
"""Seconds before a job whose start did not complete is tried again, doubling so many times."""

RETRY = 0.5
"""Seconds before a request that was refused is planned again (a newer event may make it needless)."""

RETRY_EVICTION = 5.0
"""The same of an eviction, and of a nomination that kube-scheduler takes away."""

LONGEST_RETRY = 60.0
"""The most of both, which double each time that the same object is refused, and of what the API server asks for."""

REFUSED, CHANGED, NOT_SENT = 429, 409, -1
"""Outcomes of an eviction: a PodDisruptionBudget does not allow it now; the pod changed meanwhile; called back."""


def leftovers(memory: LedgerState, entry: JobState, now: float) -> Iterator[Action]:
    """A work-queue Job ends when one pod has succeeded and all have ended: those that wait are taken away."""
    held: set[str] | None = None
    over: dict[str, bool] = {}  # by owner: asked once for all of its pods
    for pod in entry.pods.values():
        if pod.phase is not Phase.GATED or pod.controller is None:
            continue
        uid = pod.controller.uid
        if uid not in over:
            record = memory.owners.records.get(uid)
            over[uid] = bool(record and record.queue and succeeded(record, entry.pods.values()))
        if not over[uid]:
            continue
        if held is None:
            held = {h.uid for h in entry.planned}
        if pod.uid not in held:
            why = "a replica of its work queue has succeeded"
            yield from evict(memory, entry.key, pod.uid, EndReason.LEFTOVER, why, now)


def busy(memory: LedgerState, uid: str, now: float) -> bool:
    """Whether a request about the pod is under way, or was refused a moment ago."""
    if any(
        (kind, uid) in memory.in_flight
        for kind in ("ungate", "nominate", "evict", "expose", "restorefinalizer")
    ):
        return True
    until = memory.retry.get(uid, 0.0)
    if until > now:
        memory.requeue_at.add(until)
        return True
    return False


def evict(
    memory: LedgerState, key: JobKey, uid: str, reason: EndReason, cause: str, now: float
) -> Iterator[Action]:
    """The one way to end a pod of ours; nothing where it ends already or a request about it is under way."""
    entry = memory.entries.get(key)
    pod = entry.pods.get(uid) if entry is not None else None
    if entry is None or pod is None or pod.phase.ended or pod.deleting or busy(memory, uid, now):
        return
    memory.in_flight.add(("evict", uid))
    if pod.controller is not None:
        entry.returning = now
    yield Evict(key, uid, pod.name, pod.version, pod.tracked, reason, cause, counted(pod))


def goes(memory: LedgerState, entry: JobState, uid: str) -> None:
    """The API has taken the eviction: the pod is on its way out before the watch tells, and not evicted again."""
    pod = entry.pods.get(uid)
    if pod is not None and not pod.deleting and not pod.phase.ended:
        on_node = pod.phase is Phase.BOUND
        join(memory, replace(pod, deleting=True, phase=Phase.ENDING if on_node else pod.phase))


def put_back(memory: LedgerState, key: JobKey, uid: str, now: float) -> Iterator[Action]:
    """An eviction that was begun, and that nobody goes on with: its pod stays, and is counted again. A Job that is
    over or gone counts nothing any more, and takes its finalizers off by itself."""
    pod = memory.entries[key].pods.get(uid)
    if pod is None or pod.controller is None or busy(memory, uid, now):
        return
    record = memory.owners.records.get(pod.controller.uid)
    if record is None or record.over or not (record.size or record.suspended):
        return
    memory.in_flight.add(("restorefinalizer", uid))
    yield RestoreFinalizer(key, uid, pod.name, "it stays after all, and its Job is to count it")


def leave_out(memory: LedgerState, key: JobKey, role: str, node: str, now: float) -> None:
    """The node was refused: the next plans do without it for that role, for a time that doubles."""
    entry = memory.entries.get(key)
    if entry is None:
        return
    before = entry.node_backoffs.get((role, node))
    if before is not None and before.until > now:
        return
    length = min(before.length * 2 if before is not None else BAR_FIRST, BAR_MOST)
    memory.back_off_node(entry, NodeBackoff(role, node, now + length, length))


def give_up(memory: LedgerState, key: JobKey, uid: str, why: str, now: float) -> None:
    """A place that does not work, of a pod that nobody makes again: it stays where it is and is in the queue again,
    for its pin as for any other wish of its owner."""
    entry = memory.entries.get(key)
    pod = entry.pods.get(uid) if entry is not None else None
    if entry is None or pod is None:
        return
    memory.refused_at[uid] = now  # what was said of this place is no evidence against the next
    entry.given_up[uid] = why
    join(memory, pod)


def send_back(memory: LedgerState, key: JobKey, reason: EndReason, why: str, now: float) -> Iterator[Action]:
    """A job that is not whole in time: every replica that can come back does, after a growing pause."""
    entry = memory.entries.get(key)
    if entry is None or entry.job is None:
        return
    if entry.not_before <= now:
        entry.backoff += 1
        pause = BACKOFF_FIRST * 2 ** min(entry.backoff - 1, BACKOFF_DOUBLINGS)
        entry.not_before = now + pause
        memory.requeue_at.add(entry.not_before)
    yield from all_back(memory, key, reason, why, now)


def all_back(memory: LedgerState, key: JobKey, reason: EndReason, why: str, now: float) -> Iterator[Action]:
    """Every replica that an owner re-creates is evicted, and the job's places are given up."""
    entry = memory.entries.get(key)
    if entry is None or entry.job is None:
        return
    set_holds(memory, entry, tuple(h for h in entry.planned if _cannot_return(entry, h)))
    entry.clock, entry.desired.sent_back, entry.desired.ends = STILL, True, reason
    memory.dirty.add(key)
    for member in (m for r in entry.job.roles for m in r.members if m.evictable):
        if member.phase in (Phase.UNGATED, Phase.BOUND):
            yield from evict(memory, key, member.uid, reason, why, now)


def _cannot_return(entry: JobState, reservation: Reservation) -> bool:
    """A bare pod whose gate is off keeps its place: nothing would re-create it."""
    pod = entry.pods.get(reservation.uid) if reservation.uid else None
    return pod is not None and pod.phase is Phase.UNGATED and pod.controller is None
