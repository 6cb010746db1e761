"""Events in. Owners, PodGroups and reports are here; pods, Gangs, budgets and outcomes in modules of their own."""

from __future__ import annotations

from muster.core import identity, reports
from muster.core.memory import Memory
from muster.core.obstacles import budgets_seen
from muster.core.outcomes import answered
from muster.core.pods import claim_seen, join, place_orphans, pod_gone, pod_seen
from muster.core.recall import gang_gone, gang_seen
from muster.types import (
    BudgetsSeen,
    ClaimSeen,
    Event,
    GangGone,
    GangSeen,
    GroupSeen,
    LearnedSeen,
    NodeGone,
    NodeSeen,
    Outcome,
    OwnerGone,
    OwnerRecord,
    OwnerSeen,
    Phase,
    PodGone,
    PodSeen,
    QuotasSeen,
    Report,
    Reported,
)

HEARD = 5.0
"""Seconds after which reports that tell little (one more step) are looked at."""


def apply(memory: Memory, event: Event, now: float) -> None:
    """Learn one event, and what became of an action of ours. Late and repeated events are harmless."""
    match event:
        case PodSeen(pod):
            pod_seen(memory, pod, now)
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
        case ClaimSeen(namespace, name, anywhere):
            claim_seen(memory, (namespace, name), anywhere, now)
        case QuotasSeen(namespace, quotas):
            if memory.quotas.get(namespace) != quotas:
                memory.quotas[namespace] = quotas
                memory.dirty |= {key for key in memory.short_jobs if key.namespace == namespace}
        case BudgetsSeen(namespace, found):
            budgets_seen(memory, namespace, found, now)
        case Reported(uid, report):
            _reported(memory, uid, report, now)
        case LearnedSeen(lessons):
            memory.lessons.read(lessons)
        case Outcome():
            answered(memory, event, now)


def _owner_seen(memory: Memory, owner: OwnerRecord, now: float) -> None:
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
                memory.owners.follow(pod)
                join(memory, pod)
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


def _touch_owned(memory: Memory, owner_uid: str) -> None:
    """Jobs with pods below the owner are made anew."""
    for uid in memory.owners.pods_below(owner_uid):
        memory.dirty.add(memory.job_of[uid])


def _group_seen(memory: Memory, namespace: str, name: str, min_count: int, now: float) -> None:
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


def _reported(memory: Memory, uid: str, report: Report, now: float) -> None:
    """What training says counts while its pod runs. A cycle follows at once where it tells something new, else
    with the next one, HEARD seconds later at most: a thousand jobs report each second."""
    key = memory.job_of.get(uid)
    entry = memory.entries.get(key) if key is not None else None
    if key is None or entry is None or entry.pods[uid].phase is not Phase.BOUND:
        return
    before = entry.track
    entry.track = reports.follow(before, report, before.config, now)
    if reports.worth_telling(before, entry.track):
        memory.dirty.add(key)
        memory.told.append(now)
    elif entry.track is not before:
        if not memory.heard:
            memory.wakes.add(now + HEARD)
        memory.heard.add(key)
