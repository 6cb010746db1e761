"""Pods come, join their job, and go. Each is charged where it stands (core.state.reservation_usage).

A pod whose job's name or size is not known yet stays apart for a moment: until its controller, its topmost owner, its
PodGroup and its claims have been read, or for a set time where that does not come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from muster.core.reasons.waiting import NO_PLAN
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


def pod_seen(memory: LedgerState, pod: PodRecord, now: float, *, new: bool = False) -> None:
    """A pod as the watch, or the answer to a patch, has it; of pods that are not ours only what they use counts.
    new: the watch tells of its creation."""
    taken_in(memory, pod, partial(_seen, memory, pod, now, new=new), now)


def _seen(memory: LedgerState, pod: PodRecord, now: float, *, new: bool) -> None:
    if pod.uid in memory.gone:
        return  # the answer to a patch, read after the watch has told the end: uids never come back
    version = int(pod.version) if pod.version.isdigit() else 0
    known = memory.versions.get(pod.uid, 0)
    # What a patch of ours answered comes by the watch, too: once is enough.
    if version and (version < known or (version == known and pod.uid in memory.job_of)):
        return
    memory.versions[pod.uid] = version
    if not pod.ours:
        memory.charges.charge(pod.uid, pod.node if pod.phase.on_node else "", pod.shape, ours=False)
        return
    memory.volumes.follow(pod)
    pod = memory.volumes.settled(pod)
    key = memory.job_of.get(pod.uid)
    before = memory.entries[key].pods[pod.uid] if key is not None else None
    if (
        key is not None
        and before is not None
        and before.phase is pod.phase  # else the copy is for nothing, and it is most of this function
        and replace(before, version=pod.version) == pod
    ):
        memory.entries[key].pods[pod.uid] = pod  # a status that nobody reads: only its version is news
        return
    first = before is None and pod.uid not in memory.orphans
    if new and first:
        _born(memory, pod)
    elif first and pod.phase is Phase.UNGATED and not pod.pin and identity.EXPOSED not in pod.annotations:
        memory.created_ungated.add(pod.uid)
        memory.unsaid.add(pod.uid)
    pinned = bool(pod.pin) and pod.uid not in memory.came_open
    if pod.phase is Phase.UNGATED and pod.refusal and (pinned or NO_PLAN not in pod.refusal):
        memory.refused_at.setdefault(pod.uid, now)
    else:
        memory.refused_at.pop(pod.uid, None)
    _place_pod(memory, pod, now)


def _born(memory: LedgerState, pod: PodRecord) -> None:
    """A pod that this replica saw come: without our gate nobody of ours has opened it, whatever is written on it."""
    if pod.foreign:
        memory.came_open.add(pod.uid)
    elif pod.phase in (Phase.UNGATED, Phase.RELEASED):
        memory.came_open.add(pod.uid)
        memory.created_ungated.add(pod.uid)
        memory.unsaid.add(pod.uid)
    elif pod.phase.on_node:
        memory.came_open.add(pod.uid)
        memory.came_bound.add(pod.uid)


def claim_seen(memory: LedgerState, found: ClaimSeen, now: float) -> None:
    """Whether a volume claim is an obstacle is known now: its pods are what they are with it."""
    for uid in memory.volumes.seen(found):
        key = memory.job_of.get(uid)
        if key is not None:
            pod = memory.entries[key].pods[uid]
            taken_in(memory, pod, partial(_settle, memory, pod), now)
        elif uid in memory.orphans:
            place_orphans(memory, [memory.orphans[uid][0]], now)


def _settle(memory: LedgerState, pod: PodRecord) -> None:
    join(memory, memory.volumes.settled(pod))


def place_orphans(memory: LedgerState, pods: Iterable[PodRecord], now: float) -> None:
    """Pods that stand apart are looked at again."""
    for pod in pods:
        taken_in(memory, pod, partial(_place_pod, memory, pod, now), now)


def _place_pod(memory: LedgerState, pod: PodRecord, now: float) -> None:
    """Under its job, or apart for a moment while what decides its job's name and size is on its way."""
    pod = of_its_namespace(memory, pod)
    memory.owners.follow(pod)
    pod = memory.volumes.settled(pod)
    since = memory.orphans.get(pod.uid, (pod, now))[1]
    until = _apart_until(memory, pod, since)
    if pod.uid not in memory.job_of and now < until:
        memory.orphans[pod.uid] = (pod, since)
        memory.requeue_at.add(until)
        return
    memory.orphans.pop(pod.uid, None)
    join(memory, pod)


def _apart_until(memory: LedgerState, pod: PodRecord, since: float) -> float:
    """How long a pod that was first seen at `since` may stay apart; 0 where all is known."""
    owner, waiting = pod.controller, pod.phase in (Phase.GATED, Phase.HELD)
    if owner is not None and watched(owner) and owner.uid not in memory.owners.records:
        return (since if waiting else pod.created) + OWNER_PATIENCE
    if not waiting:
        return 0.0  # it may be on a node already: what it uses counts at once
    top = memory.owners.topmost(pod)
    if top is not None and not watched(top):
        known = memory.owners.records.get(top.uid)
        if (
            known is None or known.namespace != pod.namespace
        ):  # somebody of another namespace refers to it, too
            return since + UNREAD_PATIENCE
    group = identity.group_of(pod)
    if group and (pod.namespace, group) not in memory.groups:
        return since + OWNER_PATIENCE
    if memory.volumes.unread(pod):
        return since + CLAIM_PATIENCE
    return 0.0


def join(memory: LedgerState, pod: PodRecord) -> None:
    """Put a pod under its job, and its charge where it stands."""
    pod = of_its_namespace(memory, pod)
    key = identity.job_key(pod, memory.owners.records)
    before = memory.job_of.get(pod.uid)
    if before is not None and pod.controller is not None and pod.controller.uid not in memory.owners.records:
        key = before  # its owner goes first (a ReplicaSet before its pods): it stays of the job that it was
    if before is not None and before != key:
        _leave(memory, pod.uid, before)
    memory.owners.joined(pod)
    entry = memory.entries.get(key)
    if entry is None:
        entry = memory.entries[key] = JobState(key)
    top = memory.owners.topmost(pod)
    if top is not None and (top.uid == key.uid or (identity.leads(pod) and not key.uid)):
        belongs(memory, entry, top)
    if pod.uid not in entry.pods:
        live = any(not p.phase.ended for p in entry.pods.values())
        if (
            entry.ended_at and not live and not entry.desired.sent_back
        ):  # the same name after the job ended: a new job
            memory.entries[key] = entry = fresh_start(entry)
        entry.submitted = min(entry.submitted or pod.created, pod.created)
        entry.newest_pod = max(entry.newest_pod, pod.created)
    pod = trusted(memory, entry, pod)
    entry.pods[pod.uid] = pod
    if pod.carries and pod.phase in (Phase.UNGATED, Phase.BOUND) and _later(entry, pod):
        entry.recorded.carrier = pod.uid
        trust_recorded(memory, entry)
    (memory.released.add if pod.phase is Phase.RELEASED else memory.released.discard)(pod.uid)
    (memory.half_done.add if half_done(pod) else memory.half_done.discard)(pod.uid)
    memory.job_of[pod.uid] = key
    charge_pod(memory, entry, pod)
    if not is_alive(pod) and any(reservation.uid == pod.uid for reservation in entry.planned):
        charge_holds(memory, entry)
    memory.dirty.add(key)


def belongs(memory: LedgerState, entry: JobState, owner: Owner) -> None:
    """The job is this owner's, as long as it is known: the owner is read although the job may have no pod."""
    if entry.owner is None or entry.owner.uid != owner.uid:
        memory.owners.forgotten(entry.key, entry.owner)
        entry.owner = owner
        memory.owners.begun(entry.key, entry.key.namespace, owner)


def trust_recorded(memory: LedgerState, entry: JobState) -> None:
    """More of the job's places is recorded: pins that wait for that count from now on."""
    for pod in trust_again(memory, entry):
        join(memory, pod)


def _later(entry: JobState, pod: PodRecord) -> bool:
    """Whether no pod of a later start carries its placement."""
    return not entry.recorded.carrier or pod.created >= entry.pods[entry.recorded.carrier].created


def pod_gone(memory: LedgerState, uid: str) -> None:
    """All that is kept of a pod goes; a place of it stays open for its successor."""
    memory.bury(uid)
    memory.versions.pop(uid, None)
    memory.orphans.pop(uid, None)
    memory.refused_at.pop(uid, None)
    memory.retry.pop(uid, None)
    memory.refusals.pop(uid, None)
    memory.shrinking.discard(uid)
    memory.came_open.discard(uid)
    memory.came_bound.discard(uid)
    memory.created_ungated.discard(uid)
    memory.unsaid.discard(uid)
    memory.released.discard(uid)
    memory.half_done.discard(uid)
    memory.charges.charge(uid, "", Shape(), ours=False)
    key = memory.job_of.get(uid)
    if key is not None:
        _leave(memory, uid, key)
    memory.owners.leave(uid)
    memory.volumes.leave(uid)


def _leave(memory: LedgerState, uid: str, key: JobKey) -> None:
    memory.job_of.pop(uid, None)
    entry = memory.entries[key]
    pod = entry.pods.pop(uid, None)
    entry.given_up.pop(uid, None)
    if entry.recorded.carrier == uid:
        entry.recorded.carrier = ""
    if pod is not None:
        memory.owners.left(pod)
    if entry.desired.reservations is not None and any(h.uid == uid for h in entry.desired.reservations):
        set_holds(memory, entry, reopened(entry.desired.reservations, {uid}))
    memory.dirty.add(key)
