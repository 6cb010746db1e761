"""How pods of ours are ended and come back: evictions, whole gangs sent back, nodes left out after a refusal.

`evict` is the one action that ends a pod of ours (design §1); a pod is never asked for twice while an answer is
awaited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from muster.core.state.job_builder import opens
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


def leftovers(state: LedgerState, job_state: JobState, now: float) -> Iterator[Action]:
    """A work-queue Job ends when one pod has succeeded and all have ended: those that wait are taken away."""
    held: set[str] | None = None
    over: dict[str, bool] = {}  # by owner: asked once for all of its pods
    for pod in job_state.pods.values():
        if pod.phase is not Phase.GATED or pod.controller is None:
            continue
        uid = pod.controller.uid
        if uid not in over:
            record = state.owners.records.get(uid)
            over[uid] = bool(record and record.queue and succeeded(record, job_state.pods.values()))
        if not over[uid]:
            continue
        if held is None:
            held = {h.uid for h in job_state.planned}
        if pod.uid not in held:
            why = "a replica of its work queue has succeeded"
            yield from evict(state, job_state.key, pod.uid, EndReason.LEFTOVER, why, now)


def evict(
    state: LedgerState, key: JobKey, uid: str, reason: EndReason, cause: str, now: float
) -> Iterator[Action]:
    """The one way to end a pod of ours; nothing where it ends already or a request about it is under way."""
    job_state = state.entries.get(key)
    pod = job_state.pods.get(uid) if job_state is not None else None
    if job_state is None or pod is None or pod.phase.ended or pod.deleting:
        return
    request = job_state.in_flight.of(uid)
    if state.waits(request, now):
        return
    job_state.in_flight.keep(uid, request.sends(Evict))
    if pod.controller is not None:
        job_state.returning, job_state.desired.evicted = now, True
    yield Evict(key, uid, pod.name, pod.version, pod.tracked, reason, cause, counted(pod))


def goes(state: LedgerState, job_state: JobState, uid: str) -> None:
    """The API has taken the eviction: the pod is on its way out before the watch tells, and not evicted again."""
    pod = job_state.pods.get(uid)
    if pod is not None and not pod.deleting and not pod.phase.ended:
        on_node = pod.phase is Phase.BOUND
        join(state, replace(pod, deleting=True, phase=Phase.ENDING if on_node else pod.phase))


def put_back(state: LedgerState, key: JobKey, uid: str, now: float) -> Iterator[Action]:
    """An eviction that was begun, and that nobody goes on with: its pod stays, and is counted again. A Job that is
    over or gone counts nothing any more, and takes its finalizers off by itself."""
    job_state = state.entries[key]
    pod, request = job_state.pods.get(uid), job_state.in_flight.of(uid)
    if pod is None or pod.controller is None or state.waits(request, now):
        return
    record = state.owners.records.get(pod.controller.uid)
    if record is None or record.over or not (record.size or record.suspended):
        return
    job_state.in_flight.keep(uid, request.sends(RestoreFinalizer))
    yield RestoreFinalizer(key, uid, pod.name, "it stays after all, and its Job is to count it")


def leave_out(state: LedgerState, key: JobKey, role: str, node: str, now: float) -> None:
    """The node was refused: the next plans do without it for that role, for a time that doubles."""
    job_state = state.entries.get(key)
    if job_state is None:
        return
    before = job_state.node_backoffs.get((role, node))
    if before is not None and before.until > now:
        return
    length = min(before.length * 2 if before is not None else BAR_FIRST, BAR_MOST)
    state.back_off_node(job_state, NodeBackoff(role, node, now + length, length))


def give_up(state: LedgerState, key: JobKey, uid: str, why: str, now: float) -> None:
    """A place that does not work, of a pod that nobody makes again: it stays where it is and is in the queue again,
    for its pin as for any other wish of its owner."""
    job_state = state.entries.get(key)
    pod = job_state.pods.get(uid) if job_state is not None else None
    if job_state is None or pod is None:
        return
    state.refused_at[uid] = now  # what was said of this place is no evidence against the next
    job_state.given_up[uid] = why
    join(state, pod)


def send_back(state: LedgerState, key: JobKey, reason: EndReason, why: str, now: float) -> Iterator[Action]:
    """A job that is not whole in time: every replica that can come back does, after a growing pause."""
    job_state = state.entries.get(key)
    if job_state is None or job_state.job is None:
        return
    if job_state.not_before <= now:
        job_state.backoff += 1
        pause = BACKOFF_FIRST * 2 ** min(job_state.backoff - 1, BACKOFF_DOUBLINGS)
        job_state.not_before = now + pause
        state.requeue_at.add(job_state.not_before)
    yield from all_back(state, key, reason, why, now)


def all_back(state: LedgerState, key: JobKey, reason: EndReason, why: str, now: float) -> Iterator[Action]:
    """Every replica that an owner re-creates is evicted, and the job's places are given up."""
    job_state = state.entries.get(key)
    if job_state is None or job_state.job is None:
        return
    set_holds(state, job_state, tuple(h for h in job_state.planned if _cannot_return(job_state, h)))
    job_state.clock, job_state.desired.sent_back, job_state.desired.ends = STILL, True, reason
    state.dirty.add(key)
    for member in (m for r in job_state.job.roles for m in r.members if m.evictable):
        if member.phase in (Phase.UNGATED, Phase.BOUND):
            yield from evict(state, key, member.uid, reason, why, now)


def _cannot_return(job_state: JobState, reservation: Reservation) -> bool:
    """A bare pod whose gate is off keeps its place: nothing would re-create it. One whose gate is coming off has it
    until that is answered, and can be ended then."""
    pod = job_state.pods.get(reservation.uid) if reservation.uid else None
    if pod is None:
        return False
    return opens(job_state, pod.uid) or (pod.phase is Phase.UNGATED and pod.controller is None)
