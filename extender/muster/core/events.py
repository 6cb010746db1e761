"""Events in. Owners, PodGroups and reports are here; pods, Gangs, budgets and outcomes in modules of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from muster.core.actions.outcomes import answered
from muster.core.progress import report_filter
from muster.core.state.blockers import budgets_seen
from muster.core.state.pods import claim_seen, join, place_orphans, pod_gone, pod_seen
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
    Unreadable,
)

HEARD = 5.0
"""Seconds after which reports that tell little (one more step) are looked at."""


def apply(memory: LedgerState, event: Event, now: float) -> None:
    """Learn one event, and what became of an action of ours. Late and repeated events are harmless.

    Raises nothing: jobs of an event that can't be taken in are put aside (core.state.quarantine).
    """
    try:
        _learn(memory, event, now)
    except Exception as error:
        keys = _jobs_of(memory, event)
        for key in keys:
            set_aside(memory, key, "apply", error, now)
        if not keys:
            stumbled(memory, "apply", error)
        if isinstance(event, Outcome):
            _answered_anyhow(memory, event)


def _jobs_of(memory: LedgerState, event: Event) -> set[JobKey]:
    """Jobs that an event is about, as far as they are known."""
    match event:
        case GangSeen(gang):
            return {gang.key}
        case Outcome(action):
            return {action.job}
        case PodGone(uid) | Reported(uid):
            return {memory.job_of[uid]} if uid in memory.job_of else set()
        case OwnerSeen(owner):
            return {memory.job_of[p] for p in memory.owners.pods_below(owner.owner.uid) if p in memory.job_of}
        case OwnerGone(uid):
            return {memory.job_of[p] for p in memory.owners.pods_below(uid) if p in memory.job_of}
    return set()


def _answered_anyhow(memory: LedgerState, outcome: Outcome) -> None:
    """No request of the job's is under way any more, whatever its answer did."""
    entry = memory.entries.get(outcome.action.job)
    if entry is not None:
        entry.in_flight.gang = entry.in_flight.start = entry.in_flight.nodes = False
        memory.in_flight -= {one for one in memory.in_flight if one[1] in entry.pods}


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


def _learn(memory: LedgerState, event: Event, now: float) -> None:
    if memory.unread and (gone := _named(event)) is not None:
        read_again(memory, gone)
    match event:
        case PodSeen(pod, new):
            pod_seen(memory, pod, now, new=new)
        case PodGone(uid):
            pod_gone(memory, uid)
        case NodeSeen(node):
            memory.charges.node_seen(node)
        case NodeGone(name):
            memory.charges.node_gone(name)
        case OwnerSeen(owner):
            _owner_seen(memory, owner, now)
        case OwnerGone(uid):
            _touch_owned(memory, uid)
            memory.owners.gone(uid)
        case GangSeen(gang):
            gang_seen(memory, gang)
        case GangGone(namespace, name, object_uid):
            gang_gone(memory, namespace, name, object_uid)
        case GroupSeen(namespace, name, min_count):
            _group_seen(memory, namespace, name, min_count, now)
        case NamespaceSeen(name, labels):
            _namespace_seen(memory, name, labels)
        case NamespaceGone(name):
            memory.namespaces.pop(name, None)
        case ClaimSeen():
            claim_seen(memory, event, now)
        case QuotasSeen(namespace, quotas):
            if memory.quotas.get(namespace) != quotas:
                memory.quotas[namespace] = quotas
                memory.dirty |= {key for key in memory.short_jobs if key.namespace == namespace}
        case BudgetsSeen(namespace, found):
            budgets_seen(memory, namespace, found, now)
        case Unreadable():
            unreadable(memory, event, partial(join, memory), now)
        case Reported(uid, report):
            _reported(memory, uid, report, now)
        case LearnedSeen(lessons):
            memory.lessons.read(lessons)
        case Outcome():
            answered(memory, event, now)


def _owner_seen(memory: LedgerState, owner: OwnerRecord, now: float) -> None:
    """An owner's size, or its own owner: pods below it may join another job, or leave those that stand apart."""
    uid = owner.owner.uid
    if not memory.owners.wanted(owner.owner):
        return  # read while its last pod went
    before = memory.owners.seen(owner)
    if before is None or before.parent != owner.parent:
        for pod_uid in list(memory.owners.pods_of(uid)):
            key = memory.job_of.get(pod_uid)
            if key is not None:
                pod = memory.entries[key].pods[pod_uid]
                taken_in(memory, pod, partial(_follow, memory, pod), now)
    if before is None:
        led = memory.owners.waiting_for(uid)
        place_orphans(
            memory,
            [
                pod
                for pod, _ in memory.orphans.values()
                if pod.uid in led or (pod.controller is not None and pod.controller.uid == uid)
            ],
            now,
        )
    if before != owner:
        _touch_owned(memory, owner.owner.uid)


def _follow(memory: LedgerState, pod: PodRecord) -> None:
    memory.owners.follow(pod)
    join(memory, pod)


def _touch_owned(memory: LedgerState, owner_uid: str) -> None:
    """Jobs with pods below the owner are made again."""
    memory.dirty.update(memory.owners.jobs_of(owner_uid))
    record = memory.owners.records.get(owner_uid)
    if record is not None and record.parent is not None:
        memory.dirty.update(memory.owners.jobs_of(record.parent.uid))
    for uid in memory.owners.pods_below(owner_uid):
        if uid in memory.job_of:
            memory.dirty.add(memory.job_of[uid])


def _group_seen(memory: LedgerState, namespace: str, name: str, min_count: int, now: float) -> None:
    """A PodGroup's minimum, 0 where it is gone. Its pods know the size of their job now."""
    if min_count > 0:
        memory.groups[(namespace, name)] = min_count
    else:
        memory.groups.pop((namespace, name), None)
    memory.dirty |= {k for k in memory.entries if k.namespace == namespace and k.name.endswith(name)}
    place_orphans(
        memory,
        [
            pod
            for pod, _ in memory.orphans.values()
            if (pod.namespace, identity.group_of(pod)) == (namespace, name)
        ],
        now,
    )


def _namespace_seen(memory: LedgerState, name: str, labels: Mapping[str, str]) -> None:
    """Its labels, which may say that it has opted in, or that it has not: what its pods say counts accordingly."""
    before, memory.namespaces[name] = memory.namespaces.get(name), labels
    if before == labels:
        return
    for entry in [e for e in memory.entries.values() if e.key.namespace == name]:
        memory.dirty.add(entry.key)
        for pod in list(entry.pods.values()):
            join(memory, pod)


def _reported(memory: LedgerState, uid: str, report: Report, now: float) -> None:
    """What training says counts while its pod runs. A cycle follows at once where it tells something new, else
    with the next one, HEARD seconds later at most: a thousand jobs report each second."""
    key = memory.job_of.get(uid)
    entry = memory.entries.get(key) if key is not None else None
    if key is None or entry is None or entry.pods[uid].phase is not Phase.BOUND:
        return
    before = entry.track
    entry.track = report_filter.follow(before, report, before.config, now)
    if report_filter.worth_telling(before, entry.track):
        memory.dirty.add(key)
        memory.told.append(now)
    elif entry.track is not before:
        if not memory.heard:
            memory.requeue_at.add(now + HEARD)
        memory.heard.add(key)
