"""Events in. Owners, PodGroups and reports are here; pods, Gangs, budgets and outcomes in modules of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from muster.core.actions.outcomes import answered
from muster.core.progress import batch, report_filter
from muster.core.progress.measure import unmeasured
from muster.core.state.blockers import budgets_seen
from muster.core.state.job_state import JobState
from muster.core.state.neighbours import trains_beside
from muster.core.state.node_use import use_seen
from muster.core.state.pods import claim_seen, join, place_orphans, pod_gone, pod_seen, rejoin
from muster.core.state.quarantine import set_aside, stumbled
from muster.core.state.restore import gang_gone, gang_seen
from muster.core.state.state import LedgerState
from muster.core.state.unreadable import read_again, taken_in, unreadable
from muster.core.workload import identity
from muster.types import (
    BudgetsSeen,
    ClaimSeen,
    Event,
    GangGone,
    GangSeen,
    Gone,
    GroupSeen,
    JobKey,
    LearnedSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    Outcome,
    OwnerGone,
    OwnerRecord,
    OwnerSeen,
    Phase,
    PodGone,
    PodRecord,
    PodSeen,
    QuotasSeen,
    Report,
    Reported,
    TurnsSeen,
    Unreadable,
    UseSeen,
)


def apply(state: LedgerState, event: Event, now: float) -> None:
    """Learn one event, and what became of an action of ours. Late and repeated events are harmless.

    Raises nothing: jobs of an event that can't be taken in are put aside (core.state.quarantine).
    """
    try:
        _learn(state, event, now)
    except Exception as error:
        keys = _jobs_of(state, event)
        for key in keys:
            set_aside(state, key, "apply", error, now)
        if not keys:
            stumbled(state, "apply", error)
        if isinstance(event, Outcome):
            _answered_anyhow(state, event)


def _jobs_of(state: LedgerState, event: Event) -> set[JobKey]:
    """Jobs that an event is about, as far as they are known."""
    match event:
        case GangSeen(gang):
            return {gang.key}
        case Outcome(action):
            return {action.job}
        case PodGone(uid) | Reported(uid):
            return {state.job_of[uid]} if uid in state.job_of else set()
        case OwnerSeen(owner):
            return _jobs_below(state, owner)
        case OwnerGone(uid):
            return _jobs_below(state, state.owners.records.get(uid))
    return set()


def _jobs_below(state: LedgerState, owner: OwnerRecord | None) -> set[JobKey]:
    """Jobs with pods that an owner controls, itself or by what it owns."""
    below = state.owners.pods_below(owner.owner.uid, owner.namespace) if owner is not None else ()
    return {state.job_of[uid] for uid in below if uid in state.job_of}


def _answered_anyhow(state: LedgerState, outcome: Outcome) -> None:
    """No request of the job's is under way any more, whatever its answer did."""
    job_state = state.entries.get(outcome.action.job)
    if job_state is not None:
        job_state.in_flight.drop()


def _named(event: Event) -> Gone | None:
    """The object that an event is about, by what would tell its end."""
    match event:
        case PodSeen(pod):
            return PodGone(pod.uid)
        case OwnerSeen(owner):
            return OwnerGone(owner.owner.uid)
        case GangSeen(gang):
            return GangGone(gang.key.namespace, gang.name, gang.object_uid)
        case GroupSeen(namespace, name):
            return GroupSeen(namespace, name, 0)
        case NodeSeen(node):
            return NodeGone(node.name)
        case NamespaceSeen(name):
            return NamespaceGone(name)
        case PodGone() | OwnerGone() | GangGone() | NodeGone() | NamespaceGone():
            return event
    return None


def _learn(state: LedgerState, event: Event, now: float) -> None:
    if state.unread and (gone := _named(event)) is not None:
        read_again(state, gone)
    match event:
        case PodSeen(pod, new):
            pod_seen(state, state.counting.pod(pod), now, new=new)
        case PodGone(uid):
            pod_gone(state, uid, now)
        case NodeSeen(node):
            state.charges.node_seen(node)
        case NodeGone(name):
            state.charges.node_gone(name)
        case OwnerSeen(owner):
            _owner_seen(state, state.counting.owner(owner), now)
        case OwnerGone(uid):
            _touch_owned(state, uid, now)
            state.owners.gone(uid)
        case GangSeen(gang):
            gang_seen(state, gang, now)
        case GangGone(namespace, name, object_uid):
            gang_gone(state, namespace, name, object_uid)
        case GroupSeen(namespace, name, min_count):
            _group_seen(state, namespace, name, min_count, now)
        case NamespaceSeen(name, labels):
            _namespace_seen(state, name, labels)
        case NamespaceGone(name):
            state.namespaces.pop(name, None)
        case ClaimSeen():
            claim_seen(state, event, now)
        case QuotasSeen(namespace, quotas, refused):
            if state.quotas.get(namespace) != quotas or refused != (namespace in state.quotas_refused):
                state.quotas[namespace] = quotas
                state.quotas_refused -= {namespace}
                state.quotas_refused |= {namespace} if refused else set()
                waits = state.short_jobs | (
                    set(state.in_place.sizes) if state.in_place is not None else set()
                )
                state.dirty |= {key for key in waits if key.namespace == namespace}
        case BudgetsSeen(namespace, found):
            budgets_seen(state, namespace, found, now)
        case UseSeen(use):
            use_seen(state, use)
        case Unreadable():
            unreadable(state, event, partial(join, state), now)
        case Reported(uid, report):
            _reported(state, uid, report, now)
        case LearnedSeen(lessons):
            state.lessons.read(lessons)
        case TurnsSeen(turns):
            state.turns = turns
            state.requeue_at.add(now)
        case Outcome():
            answered(state, event, now)


def _owner_seen(state: LedgerState, owner: OwnerRecord, now: float) -> None:
    """An owner's size, or its own owner: pods below it may join another job, or leave those that stand apart."""
    uid = owner.owner.uid
    if not state.owners.wanted(owner.owner):
        return  # read while its last pod went
    before = state.owners.seen(owner)
    if before is None or before.parent != owner.parent:
        for pod_uid in list(state.owners.pods_of(uid)):
            key = state.job_of.get(pod_uid)
            if key is not None:
                pod = state.entries[key].pods[pod_uid]
                taken_in(state, pod, partial(_follow, state, pod), now)
    if owner.named_after is not None and (before is None or before.named_after != owner.named_after):
        rejoin(state, owner.owner, owner.namespace)
    if before is None:
        led = state.owners.waiting_for(uid)
        place_orphans(
            state,
            [
                pod
                for pod, _ in state.orphans.values()
                if pod.uid in led or (pod.controller is not None and pod.controller.uid == uid)
            ],
            now,
        )
    if before != owner:
        _touch_owned(state, owner.owner.uid, 0.0 if before is None else now)


def _follow(state: LedgerState, pod: PodRecord) -> None:
    state.owners.follow(pod)
    join(state, pod)


def _touch_owned(state: LedgerState, owner_uid: str, moved: float) -> None:
    """Jobs with pods below the owner are made again. moved: when it changed, 0 = it is only known now."""
    record = state.owners.records.get(owner_uid)
    if record is None:
        return
    above = identity.above(record, state.owners.records)
    keys = set(state.owners.jobs_of(owner_uid)) | set(
        state.owners.jobs_of(above.uid if above is not None else "")
    )
    for key in [key for key in keys if record.namespace in (key.namespace, "")]:
        state.dirty.add(key)
        state.entries[key].owner_moved = max(state.entries[key].owner_moved, moved)
    state.dirty |= _jobs_below(state, record)


def _group_seen(state: LedgerState, namespace: str, name: str, min_count: int, now: float) -> None:
    """A PodGroup's minimum, 0 where it is gone. Its pods know the size of their job now."""
    if min_count > 0:
        state.groups[(namespace, name)] = min_count
    else:
        state.groups.pop((namespace, name), None)
    state.dirty |= {k for k in state.entries if k.namespace == namespace and k.name.endswith(name)}
    place_orphans(
        state,
        [
            pod
            for pod, _ in state.orphans.values()
            if (pod.namespace, identity.group_of(pod)) == (namespace, name)
        ],
        now,
    )


def _namespace_seen(state: LedgerState, name: str, labels: Mapping[str, str]) -> None:
    """Its labels, which may say that it has opted in, or that it has not: what its pods say counts accordingly."""
    before, state.namespaces[name] = state.namespaces.get(name), labels
    if before == labels:
        return
    for job_state in [e for e in state.entries.values() if e.key.namespace == name]:
        state.dirty.add(job_state.key)
        for pod in list(job_state.pods.values()):
            join(state, pod)


def _reported(state: LedgerState, uid: str, report: Report, now: float) -> None:
    """What training says counts while its pod runs. A cycle follows at once where it tells something new, else
    with the next one (`LedgerState.hear`)."""
    key = state.job_of.get(uid)
    job_state = state.entries.get(key) if key is not None else None
    if key is None or job_state is None or job_state.pods[uid].phase is not Phase.BOUND:
        return
    before = job_state.track
    job_state.track = report_filter.follow(before, report, before.config, now)
    if before.config.beside and not trains_beside(state, job_state, now):
        job_state.track = unmeasured(job_state.track)
    if report.batch:
        _reported_batch(state, job_state, report.batch, now)
    if report_filter.worth_telling(before, job_state.track):
        state.dirty.add(key)
        state.told.append(now)
    elif job_state.track is not before:
        state.hear(key, now)


def _reported_batch(state: LedgerState, job_state: JobState, reported: int, now: float) -> None:
    """A job that goes on with its own batch size for long although it is told another one takes none."""
    job, desired = job_state.job, job_state.desired
    if job is None or desired.batch_since is None or job_state.facts.batch_ignored:
        return
    if not batch.differs(job, reported):
        desired.batch_differs = None
        return
    if desired.batch_differs is None:
        desired.batch_differs = now
    if batch.ignores(job, desired.batch_since, desired.batch_differs, now):
        job_state.facts = replace(job_state.facts, batch_ignored=True)
        state.dirty.add(job_state.key)
