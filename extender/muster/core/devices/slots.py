"""In place in the plan: a job whose GPUs change is planned as two roles, its pods and slots of a GPU each.

Every pod has as many slots, on its own node (`core.placement.together`). What was granted stands in the next snapshot
as bound; so they are always whole, their shrink and growth are the planner's as any replica's, and a plan's slots
become the number of devices that the Coordinator is to see to (`core.devices.hand_over`). What the planner is told of
free GPUs leaves holders out: on each node count what is granted or, where that is more, what is still used. What a
pod is to give and still uses are slots that end, as replicas do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from muster.core.devices.charged import Allowed, pods_of
from muster.core.devices.coordinator import Change
from muster.core.devices.ending import that_end, to_free, with_devices
from muster.core.devices.granted import PARTS, Granted, Grants, Sizes, Uses, idling, to_give, to_measure
from muster.core.devices.pairs import Pairs, as_it_stands
from muster.core.devices.room import early
from muster.core.devices.words import LATE, givers_of, not_made, told, waits_for
from muster.types import (
    GPU,
    HOSTNAME,
    Job,
    JobKey,
    Member,
    Phase,
    Plan,
    Reservation,
    Role,
    Shape,
    Snapshot,
)

SLOT = Shape(requests=((GPU, 1),))
SUFFIX = ".gpus"


class Made(NamedTuple):
    """A job with slots, and of what it was made."""

    job: Job
    inputs: tuple[tuple[int, ...], tuple[Granted, ...], Allowed | None, tuple[int, ...], tuple[int, ...]]
    slotted: Job


def with_slots(
    snapshot: Snapshot,
    sizes: Sizes,
    granted: Grants,
    taken: Mapping[str, int],
    held: Mapping[str, int],
    allowed: Mapping[JobKey, Allowed] = MappingProxyType({}),
    beside: Pairs = MappingProxyType({}),
    used: Mapping[tuple[str, str], int] = MappingProxyType({}),
    before: dict[JobKey, Made] | None = None,
) -> Snapshot:
    """The snapshot as the planner is to see it. taken: GPUs that jobs in place use or may use, by node; held: GPUs of
    holders that are charged; allowed: what quotas leave jobs; beside: jobs that share, whose GPUs count once; used:
    those of `taken` by pod and node; before: jobs as the last call made them, then as this one does: the same object
    where nothing of a job has changed."""
    if not sizes and not held:
        return snapshot
    jobs = dict(snapshot.jobs)
    due: dict[str, int] = {}
    for grant in (one for key, grants in granted.items() if key not in beside for one in grants):
        due[grant.node] = due.get(grant.node, 0) + grant.count
    idle = idling(granted, used)
    taken = {node: taken.get(node, 0) + idle.get(node, 0) for node in {**taken, **idle}}
    giving = to_give(granted, due, taken, used)
    left = to_free([jobs[key] for key in sizes if key in jobs], granted, due, taken, giving, used)
    made: dict[JobKey, Made] = {}
    for key, of in sizes.items():
        if key in jobs and not jobs[key].quarantined:
            mine = tuple(granted.get(key, ()))
            gives = tuple(giving.get(one.pod, 0) for one in mine)
            frees = tuple([left.get(pod.uid, 0) for pod in that_end(jobs[key])])
            known = before.get(key) if before is not None else None
            inputs = of, mine, allowed.get(key), gives, frees
            if known is None or known.job is not jobs[key] or known.inputs != inputs:
                known = Made(jobs[key], inputs, _slotted(jobs[key], *inputs))
            made[key] = known
            jobs[key] = as_it_stands(known.slotted, jobs, granted, beside)
    if before is not None:
        before.clear()
        before.update(made)
    nodes, free = snapshot.nodes, snapshot.free.copy()
    if GPU in nodes.resources:
        column = nodes.resources.index(GPU)
        for node in {*held, *taken, *due} & nodes.index.keys():
            row = nodes.index[node]
            free[row, column] += held.get(node, 0) - max(taken.get(node, 0), due.get(node, 0))
    return replace(snapshot, jobs=jobs, free=free)


def _slotted(
    job: Job,
    sizes: tuple[int, ...],
    granted: Sequence[Granted],
    allowed: Allowed | None,
    gives: Sequence[int],
    frees: Sequence[int],
) -> Job:
    """gives: slots that each pod has yet and is to give; frees: that each pod that ends has yet."""
    if job.invalid or not job.roles:
        return job
    why = _unplannable(job)
    if why:
        return replace(job, invalid=f"muster.dev/gpus: {why}; request GPUs in its pods instead")
    (pods,) = job.roles
    pods = replace(pods, max=pods_of(job, ()), grows=0) if pods.max > 1 else pods
    pods = with_devices(pods, frees)
    number = pods_of(job, granted)
    members = tuple(
        Member(
            f"{one.pod}{PARTS}{i}", "", Phase.BOUND, SLOT, index=i * len(granted) + at, node=one.node
        )  # the last ones that it gets are the first ones to go: of each pod as many
        for i in range(granted[0].count if granted else 0)
        for at, one in enumerate(granted)
    )
    members += tuple(  # releasing, as replicas that leave their node
        Member(f"{one.pod}{PARTS}{one.count + i}", "", Phase.ENDING, SLOT, node=one.node)
        for one, count in zip(granted, gives, strict=True)
        for i in range(count)
    )
    counts = tuple(number * size for size in sizes)
    if 0 < len(granted) < number:  # pods that it lost come back with as many as the others have
        counts = (number * granted[0].count,)
    quota = job.quota
    if allowed is not None and number:
        within = tuple(count for count in counts if count <= allowed.gpus)
        if not within and not quota[0]:
            quota = (
                f"needs {counts[0]} GPU{'s' if counts[0] > 1 else ''} in place; {allowed.why}",
                "",
                False,
            )
        counts = within or counts
    slots = slots_of(pods, counts if number else (0,), members)
    # Nobody but Muster makes slots, so no pause of an owner says that there will be no more of them.
    return replace(
        job,
        roles=(pods, slots),
        topology_required=job.topology_required if number > 1 else HOSTNAME,
        expects=True,
        newest_pod=math.inf,
        quota=quota,
        request=job.request * number if job.request in sizes else 0,
        shareable=job.gpu_memory > 0 and number <= 1,
    )


def slots_of(pods: Role, counts: tuple[int, ...], members: tuple[Member, ...]) -> Role:
    """The slots of these pods, a GPU each. counts: numbers of slots that can train, rising."""
    return Role(
        pods.name + SUFFIX,
        counts[0],
        counts[-1],
        SLOT,
        sizes=counts,
        members=members,
        ordered=True,
        devices=True,
    )


def _unplannable(job: Job) -> str:
    """Why a job can't be planned with slots, "" where it can."""
    if len(job.roles) != 1:
        return f"expected pods of one role, found {', '.join(role.name for role in job.roles)}"
    (pods,) = job.roles
    if pods.max > 1 and pods.min + pods.grows != pods.max:
        return f"expected a number of pods that does not change, since their GPUs do, found {pods.min} to {pods.max}"
    return ""


def number_of(job: Job) -> int:
    """Pods that share a job's slots."""
    pods, slots = job.roles
    return max(pods.max, len({member.uid.rpartition(PARTS)[0] for member in slots.members}))


# ---- a plan with slots ----


def taken_out(
    snapshot: Snapshot,
    sizes: Sizes,
    plan: Plan,
    changes: Mapping[str, tuple[Change, float]] | None = None,
    allowed: Mapping[JobKey, Allowed] = MappingProxyType({}),
    uses: Uses | None = None,
    since: Mapping[JobKey, float] = MappingProxyType({}),
    refused: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Plan, dict[JobKey, tuple[Granted, ...]]]:
    """The plan without slots, and what it grants. snapshot: the one with slots that it was made of; changes: the last
    one of each pod, and when that was, Unix s; allowed: what quotas leave jobs; uses: GPUs in use now, None: nobody
    knows; since: when jobs began to wait for what they are granted, Unix s; refused: why
    holders are not made, by node.

    A job whose GPUs others are still to give has its pods' places now, where there is room for all: they are to be
    there before anybody gives (`core.devices.hand_over`).
    """
    granted: dict[JobKey, tuple[Granted, ...]] = {}
    starts: set[JobKey] = set()
    reservations = dict(plan.reservations)
    later = dict(plan.later)
    statuses = dict(plan.statuses)
    for key, of in sizes.items():
        job = snapshot.jobs.get(key)
        if job is None or job.invalid or len(job.roles) != 2:
            continue
        pods, slots = job.roles
        now, then = reservations.get(key, ()), later.pop(key, ())
        mine = [h for h in now if h.role == pods.name]
        leaving = {m.uid for m in that_end(job)} | {s.uid for s in plan.shrinks if s.job == key}
        if then and not mine and not pods.on:
            mine = early(snapshot, plan, pods, [h for h in then if h.role == pods.name])
            if not mine and job.restart_on:
                later[key] = then  # its pods are not back yet, or have no room there
            then = then if mine else ()
        elif pods.on and {m.uid for m in pods.on} <= leaving:
            mine = []  # it is placed again: as a start, with all that it is granted, once its pods are back
            if then:
                later[key] = then  # where: the cycles until the next round ask no policy
        elif job.restart_on and not then and not any(h.uid for h in mine):
            mine, later[key] = [], now  # its pods are not back yet: still so
        if key in reservations or mine:
            reservations[key] = tuple(mine)
        if key in plan.preempted or key in plan.back:
            continue
        count = sum(h.role == slots.name for h in (*now, *then)) + slots.bound
        count -= sum(1 for s in plan.shrinks if s.job == key and s.role == slots.name)
        grant = plan.grants.get(key) if key in plan.shares else job.grant
        grants = to_measure(_shared_out(job, of, mine, count), grant, of)
        if grants:
            granted[key] = grants
            if then:
                starts.add(key)
    pod_of = {m.uid: key for key in sizes if key in snapshot.jobs for m in _pods(snapshot.jobs[key])}
    givers = givers_of(granted, uses or {}, pod_of)
    late = {key for key, at in since.items() if snapshot.now >= at + LATE}
    for key, grants in granted.items():
        job = snapshot.jobs[key]
        less = key in allowed and allowed[key].gpus < sizes[key][-1] * number_of(job)
        statuses[key] = told(
            statuses[key],
            grants,
            _gpus_of(snapshot, grants[0].node),
            job.roles[0].bound >= len(grants),
            starts=key in starts,
            changes=[changes[one.pod] for one in grants if one.pod in changes] if changes else [],
            uses=uses,
            waits=waits_for(key, grants, uses or {}, givers) if key in late else "",
            limit="; ".join(
                filter(None, (allowed[key].why if less else "", not_made(grants, uses or {}, refused)))
            ),
        )
    return (
        replace(
            plan,
            reservations=reservations,
            later=later,
            statuses=statuses,
            shrinks=tuple(s for s in plan.shrinks if s.job not in granted or not s.role.endswith(SUFFIX)),
        ),
        granted,
    )


def _shared_out(
    job: Job, sizes: Sequence[int], places: Sequence[Reservation], count: int
) -> tuple[Granted, ...]:
    """What each pod has of the job's slots. places: of pods that are not bound yet; count: slots by the plan."""
    pods, slots = job.roles
    stay = {m.uid: m.node for m in pods.on if m.phase is not Phase.ENDING}
    on = {h.uid: h.node for h in places if h.uid} | stay or {m.uid: m.node for m in pods.on}
    each = count // max(1, number_of(job))
    had = len({m.uid.rpartition(PARTS)[0] for m in slots.members})  # each has one that is bound
    if 0 < had < number_of(job) and count:
        each = slots.bound // had  # what it lost isn't placed yet: the others go on as they are
    each = max((size for size in sizes if size <= each), default=0)
    return tuple(Granted(uid, node, each) for uid, node in on.items()) if each else ()


def _pods(job: Job) -> tuple[Member, ...]:
    return job.roles[0].members if job.roles else ()


def _gpus_of(snapshot: Snapshot, node: str) -> int:
    nodes = snapshot.nodes
    row, column = nodes.index.get(node), nodes.resource_index.get(GPU)
    return int(nodes.total[row, column]) if row is not None and column is not None else 0
