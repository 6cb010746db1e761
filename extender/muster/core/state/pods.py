# Over 300 lines: a pod's coming, change and end are charged and taken back in step.
"""Pods come, join their job, and go. Each is charged where it stands (core.state.reservation_usage).

A pod whose job's name or size is not known yet stays apart for a moment: until its controller, its topmost owner, its
PodGroup and its claims have been read, or for a set time where that does not come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from muster.core.reasons.waiting import NO_PLAN
from muster.core.state.in_flight import IDLE
from muster.core.state.job_builder import is_alive
from muster.core.state.job_state import JobState, fresh_start, reopened
from muster.core.state.reservation_usage import charge_holds, charge_pod, set_holds
from muster.core.state.state import LedgerState
from muster.core.state.trust import of_its_namespace, trust_again, trusted
from muster.core.state.unreadable import taken_in
from muster.core.workload import identity
from muster.core.workload.owners import watched
from muster.core.workload.unfinished_eviction import half_done
from muster.core.workload.volumes import CLAIM_PATIENCE
from muster.types import ClaimSeen, JobKey, Owner, Phase, PodRecord, Shape

OWNER_PATIENCE = 5.0
"""Seconds after which a pod whose controller, or whose PodGroup, was never seen is taken as it is."""

UNREAD_PATIENCE = 30.0
"""Seconds after which a gated pod whose custom owner could not be read is taken as it is: nobody knows the size
of its job then, and before it would start in part."""


def pod_seen(state: LedgerState, pod: PodRecord, now: float, *, new: bool = False) -> None:
    """A pod as the watch, or the answer to a patch, has it; of pods that are not ours only what they use counts.
    new: the watch tells of its creation."""
    taken_in(state, pod, partial(_seen, state, pod, now, new=new), now)


def _seen(state: LedgerState, pod: PodRecord, now: float, *, new: bool) -> None:
    if pod.uid in state.gone:
        return  # the answer to a patch, read after the watch has told the end: uids never come back
    version = int(pod.version) if pod.version.isdigit() else 0
    known = state.versions.get(pod.uid, 0)
    # What a patch of ours answered comes by the watch, too: once is enough.
    if version and (version < known or (version == known and pod.uid in state.job_of)):
        return
    state.versions[pod.uid] = version
    if not pod.ours:
        state.charges.charge(pod.uid, pod.node if pod.phase.on_node else "", pod.shape, ours=False)
        return
    state.volumes.follow(pod)
    pod = state.volumes.settled(pod)
    key = state.job_of.get(pod.uid)
    before = state.entries[key].pods[pod.uid] if key is not None else None
    if (
        key is not None
        and before is not None
        and before.phase is pod.phase  # else the copy is for nothing, and it is most of this function
        and replace(before, version=pod.version) == pod
    ):
        state.entries[key].pods[pod.uid] = pod  # a status that nobody reads: only its version is news
        return
    first = before is None and pod.uid not in state.orphans
    if new and first:
        _born(state, pod)
    elif first and pod.phase is Phase.UNGATED and not pod.pin and identity.EXPOSED not in pod.annotations:
        state.created_ungated.add(pod.uid)
        state.unsaid.add(pod.uid)
    pinned = bool(pod.pin) and pod.uid not in state.came_open
    if pod.phase is Phase.UNGATED and pod.refusal and (pinned or NO_PLAN not in pod.refusal):
        state.refused_at.setdefault(pod.uid, now)
    else:
        state.refused_at.pop(pod.uid, None)
    _place_pod(state, pod, now)
    if before is not None and is_alive(before) and not is_alive(pod):
        job_state = state.entries[state.job_of[pod.uid]]
        if pod.uid in job_state.desired.leaving:
            job_state.returning = now  # its owner may make the next pod before this one is gone


def _born(state: LedgerState, pod: PodRecord) -> None:
    """A pod that this replica saw come: without our gate nobody of ours has opened it, whatever is written on it."""
    if pod.foreign:
        state.came_open.add(pod.uid)
    elif pod.phase in (Phase.UNGATED, Phase.RELEASED):
        state.came_open.add(pod.uid)
        state.created_ungated.add(pod.uid)
        state.unsaid.add(pod.uid)
    elif pod.phase.on_node:
        state.came_open.add(pod.uid)
        state.came_bound.add(pod.uid)


def claim_seen(state: LedgerState, found: ClaimSeen, now: float) -> None:
    """Whether a volume claim is an obstacle is known now: its pods are what they are with it."""
    for uid in state.volumes.seen(found):
        key = state.job_of.get(uid)
        if key is not None:
            pod = state.entries[key].pods[uid]
            taken_in(state, pod, partial(_settle, state, pod), now)
        elif uid in state.orphans:
            place_orphans(state, [state.orphans[uid][0]], now)


def _settle(state: LedgerState, pod: PodRecord) -> None:
    join(state, state.volumes.settled(pod))


def place_orphans(state: LedgerState, pods: Iterable[PodRecord], now: float) -> None:
    """Pods that stand apart are looked at again."""
    for pod in pods:
        taken_in(state, pod, partial(_place_pod, state, pod, now), now)


def _place_pod(state: LedgerState, pod: PodRecord, now: float) -> None:
    """Under its job, or apart for a moment while what decides its job's name and size is on its way."""
    pod = of_its_namespace(state, pod)
    state.owners.follow(pod)
    pod = state.volumes.settled(pod)
    since = state.orphans.get(pod.uid, (pod, now))[1]
    until = _apart_until(state, pod, since)
    if pod.uid not in state.job_of and now < until:
        state.orphans[pod.uid] = (pod, since)
        state.requeue_at.add(until)
        if pod.phase.on_node:  # whoever's it is, and although its owner is gone: what it uses counts at once
            state.charges.charge(pod.uid, pod.node if is_alive(pod) else "", pod.shape, ours=True)
        return
    state.orphans.pop(pod.uid, None)
    join(state, pod)


def _apart_until(state: LedgerState, pod: PodRecord, since: float) -> float:
    """How long a pod that was first seen at `since` may stay apart; 0 where all is known."""
    owner, waiting = pod.controller, pod.phase in (Phase.GATED, Phase.HELD)
    if owner is not None and watched(owner) and owner.uid not in state.owners.records:
        return (since if waiting else pod.created) + OWNER_PATIENCE
    if not waiting:
        return 0.0  # it may be on a node already: what it uses counts at once
    top = state.owners.topmost(pod)
    if top is not None and not watched(top):
        known = state.owners.records.get(top.uid)
        if (
            known is None or known.namespace != pod.namespace
        ):  # somebody of another namespace refers to it, too
            return since + UNREAD_PATIENCE
    group = identity.group_of(pod)
    if group and (pod.namespace, group) not in state.groups:
        return since + OWNER_PATIENCE
    if state.volumes.unread(pod):
        return since + CLAIM_PATIENCE
    return 0.0


def join(state: LedgerState, pod: PodRecord) -> None:
    """Put a pod under its job, and its charge where it stands."""
    pod = of_its_namespace(state, pod)
    before = state.job_of.get(pod.uid)
    key = _key(state, pod, before)
    if before is not None and pod.controller is not None and pod.controller.uid not in state.owners.records:
        key = before  # its owner goes first (a ReplicaSet before its pods): it stays of the job that it was
    if before is not None and before != key:
        _leave(state, pod.uid, before)
    state.owners.joined(pod)
    job_state = state.entries.get(key)
    if job_state is None:
        job_state = state.entries[key] = JobState(key)
    top = state.owners.topmost(pod)
    if top is not None and (_is_of(state, key, top) or (identity.leads(pod) and not key.uid)):
        belongs(state, job_state, top)
    if pod.uid not in job_state.pods:
        live = any(not p.phase.ended for p in job_state.pods.values())
        if (
            job_state.ended_at and not live and not job_state.desired.sent_back
        ):  # the same name after the job ended: a new job
            state.entries[key] = job_state = fresh_start(job_state)
        job_state.submitted = min(job_state.submitted or pod.created, pod.created)
        job_state.newest_pod = max(job_state.newest_pod, pod.created)
    if before is not None and before != key:
        _hand_over(state, pod.uid, state.entries[before], job_state)
    pod = trusted(state, job_state, pod)
    job_state.pods[pod.uid] = pod
    if pod.carries and pod.phase in (Phase.UNGATED, Phase.BOUND) and _later(job_state, pod):
        job_state.recorded.carrier = pod.uid
        trust_recorded(state, job_state)
    (state.released.add if pod.phase is Phase.RELEASED else state.released.discard)(pod.uid)
    (state.half_done.add if half_done(pod) else state.half_done.discard)(pod.uid)
    if pod.phase is Phase.SUCCEEDED and not pod.deleting:
        state.done.add(pod.uid)
    state.job_of[pod.uid] = key
    charge_pod(state, job_state, pod)
    if not is_alive(pod) and any(reservation.uid == pod.uid for reservation in job_state.planned):
        charge_holds(state, job_state)
    state.dirty.add(key)


def _hand_over(state: LedgerState, uid: str, before: JobState, job_state: JobState) -> None:
    """What is wanted of a pod, and in flight for it, goes with it to the job that it is of now."""
    job_state.in_flight.keep(uid, before.in_flight.pods.pop(uid, IDLE))
    if uid in before.desired.leaving:
        before.desired.leaving -= {uid}
        job_state.desired.leaving |= {uid}
        state.shrinking.add(job_state.key)


def _key(state: LedgerState, pod: PodRecord, before: JobKey | None) -> JobKey:
    """The key of the pod's job. One that is named after what stands above its owner (a TrainJob above its JobSet)
    keeps the name that its Gang has until it ends, whatever can be read of its owner now: an older version named it
    after the JobSet, as we do where that can't be read."""
    key = identity.job_key(pod, state.owners.records)
    top = identity.topmost(pod, state.owners.records)
    if top is None or not key.uid:
        return key
    jobs = state.owners.jobs_of(top.uid)
    if not jobs or (len(jobs) == 1 and key in jobs):  # nearly every pod
        return key
    plain = identity.plain_key(pod, top)
    others = [
        other
        for other in jobs
        if other.namespace == pod.namespace
        and other != key
        and (other == plain or other.uid not in ("", top.uid))
    ]
    ended = pod.phase.ended  # what becomes of it is still of the job that it was of
    recorded = [each for each in (plain, key, *others) if _recorded(state.entries.get(each), ended)]
    unread = top.uid not in state.owners.records
    return recorded[0] if recorded else before if unread and before in others else key


def _recorded(job_state: JobState | None, ended: bool) -> bool:
    """Whether a Gang of the job is on the API, or on its way there, and does not say that it has ended. ended: one
    that says so counts, too."""
    if job_state is None:
        return False
    gang = job_state.recorded.gang
    return job_state.in_flight.gang.sent is not None if gang is None else ended or not gang.ended


def _is_of(state: LedgerState, key: JobKey, owner: Owner) -> bool:
    """Whether a job is this owner's."""
    above = state.owners.named_after(owner, key.namespace)
    return key.uid in (owner.uid, above.uid if above is not None else owner.uid)


def belongs(state: LedgerState, job_state: JobState, owner: Owner) -> None:
    """The job is this owner's, as long as it is known: the owner is read although the job may have no pod."""
    if job_state.owner is None or job_state.owner.uid != owner.uid:
        state.owners.forgotten(job_state.key, job_state.owner)
        job_state.owner = owner
        state.owners.begun(job_state.key, job_state.key.namespace, owner)


def rejoin(state: LedgerState, owner: Owner, namespace: str) -> None:
    """Whose the owner's pods are may be known better now: its own record has come, or a Gang that names the job."""
    for uid in state.owners.pods_below(owner.uid, namespace):
        key = state.job_of.get(uid)
        if key is not None:
            join(state, state.entries[key].pods[uid])


def trust_recorded(state: LedgerState, job_state: JobState) -> None:
    """More of the job's places is recorded: pins that wait for that count from now on."""
    for pod in trust_again(state, job_state):
        join(state, pod)


def _later(job_state: JobState, pod: PodRecord) -> bool:
    """Whether no pod of a later start carries its placement."""
    return not job_state.recorded.carrier or pod.created >= job_state.pods[job_state.recorded.carrier].created


def pod_gone(state: LedgerState, uid: str, now: float) -> None:
    """All that is kept of a pod goes; a place of it stays open for its successor, which comes from now on."""
    state.gone.add(uid)
    state.versions.pop(uid, None)
    state.orphans.pop(uid, None)
    state.refused_at.pop(uid, None)
    state.came_open.discard(uid)
    state.came_bound.discard(uid)
    state.done.discard(uid)
    state.created_ungated.discard(uid)
    state.unsaid.discard(uid)
    state.released.discard(uid)
    state.half_done.discard(uid)
    state.charges.charge(uid, "", Shape(), ours=False)
    key = state.job_of.get(uid)
    if key is not None:
        job_state = state.entries[key]
        job_state.in_flight.pods.pop(uid, None)
        if uid in job_state.desired.leaving:
            job_state.desired.leaving -= {uid}
            job_state.returning = now
        _leave(state, uid, key)
    state.owners.leave(uid)
    state.volumes.leave(uid)


def _leave(state: LedgerState, uid: str, key: JobKey) -> None:
    state.job_of.pop(uid, None)
    job_state = state.entries[key]
    pod = job_state.pods.pop(uid, None)
    job_state.given_up.pop(uid, None)
    if job_state.recorded.carrier == uid:
        job_state.recorded.carrier = ""
    if pod is not None:
        state.owners.left(pod)
    if job_state.desired.reservations is not None and any(
        h.uid == uid for h in job_state.desired.reservations
    ):
        set_holds(state, job_state, reopened(job_state.desired.reservations, {uid}))
    state.dirty.add(key)
