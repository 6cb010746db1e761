"""In place: what the plan grants each pod of a job."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from muster.types import Grant, Job, JobKey, Phase, Plan

T = TypeVar("T")

PARTS = "/"
"""Between a pod's uid and the number of its slot, in a slot's uid."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Devices that a pod is to have on its node. trains: on so many of them it is to train for the moment, to be
    measured, 0 = on all; the others are kept for it."""

    pod: str
    node: str
    count: int
    trains: int = 0

    @property
    def uses(self) -> int:
        """Those that it is to use now."""
        return self.trains or self.count


Grants = Mapping[JobKey, tuple[Granted, ...]]
"""By job in place: what each of its pods is to have, all of them alike."""
Sizes = Mapping[JobKey, tuple[int, ...]]
"""By job in place: numbers of GPUs that each of its pods can train on, rising."""
Uses = Mapping[str, Mapping[str, int]]
"""GPUs that each pod uses, by its uid and the node. One that two jobs share counts for both."""


def standing(
    jobs: Mapping[JobKey, Job], sizes: Sizes, granted: Grants, used: Mapping[tuple[str, str], int]
) -> dict[JobKey, tuple[Granted, ...]]:
    """What of the grants still holds: their pod is there, and on its way to that node or on it. A pod that runs and
    has none (Muster was started again) has the largest of its sizes that it uses, and what is kept for it where it
    is measured at that one. used: devices by pod and node."""
    found: dict[JobKey, tuple[Granted, ...]] = {}
    for key, of in sizes.items():
        job, before = jobs.get(key), granted.get(key, ())
        if job is not None and job.quarantined and before:
            found[key] = before  # an error of ours: what runs of it goes on
        if job is None or job.invalid or job.preempted:
            continue
        places = {h.uid: h.node for h in job.reservations}
        members = [m for role in job.roles for m in role.members if m.phase is not Phase.ENDING]
        on = {m.uid: node for m in members if (node := m.node or places.get(m.uid, ""))}
        kept = tuple(grant for grant in before if on.get(grant.pod) == grant.node)
        if not kept:
            uses = {pod: used.get((pod, node), 0) for pod, node in on.items()}
            fewest = min((count for count in uses.values() if count), default=0)
            count = max((n for n in of if n <= fewest), default=0)
            kept = tuple(Granted(pod, node, count) for pod, node in on.items() if uses[pod] >= count > 0)
            kept = measured_with(kept, job.grant, of)
        if kept:
            found[key] = kept
    return found


def measured_with(
    grants: tuple[Granted, ...], grant: Grant | None, sizes: tuple[int, ...]
) -> tuple[Granted, ...]:
    """What each pod has, where what it uses is what it is measured at: that, and what is kept for it meanwhile."""
    count = sum(one.count for one in grants)
    if grant is None or not count or grant.measure != count:
        return grants
    each = (grant.measure + grant.kept) // len(grants)
    return tuple([replace(one, count=each, trains=one.count) for one in grants]) if each in sizes else grants


def to_measure(grants: tuple[Granted, ...], grant: Grant | None, sizes: Sequence[int]) -> tuple[Granted, ...]:
    """What each pod has, and on how many of it it is to train for the moment."""
    grant = grant.within(sum(one.count for one in grants)) if grant is not None else None
    if grant is None or not grant.measure or grant.measure % len(grants):
        return grants
    each = grant.measure // len(grants)
    return tuple([replace(one, trains=each) for one in grants]) if each in sizes else grants


def idling(granted: Grants, used: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """GPUs by node that nobody uses, kept for pods that train on fewer than they have. used: as `to_give`."""
    found: dict[str, int] = {}
    for one in (one for grants in granted.values() for one in grants if one.trains):
        idle = min(one.count - one.trains, max(0, one.count - used.get((one.pod, one.node), 0)))
        found[one.node] = found.get(one.node, 0) + idle
    return found


def to_give(
    granted: Grants, due: Mapping[str, int], taken: Mapping[str, int], used: Mapping[tuple[str, str], int]
) -> dict[str, int]:
    """GPUs that each pod still uses beyond what it is to have, by its uid: on each node as many as nobody else there
    is granted. due, taken: GPUs that pods are to have, and that they use or may use, by node; used: by pod, too.

    They come free, and the plan counts on them: else who waits for them is granted nothing in the next one, the pod
    gets them back, and so on without an end.
    """
    left = {node: count - due.get(node, 0) for node, count in taken.items()}
    found: dict[str, int] = {}
    for _, grants in sorted(granted.items()):
        for one in grants:
            count = min(used.get((one.pod, one.node), 0) - one.count, left.get(one.node, 0))
            if count > 0:
                found[one.pod] = count
                left[one.node] -= count
    return found


def left_out(plan: Plan, jobs: Container[JobKey]) -> Plan:
    """The plan without these: they stay as they are."""

    def others(of: Mapping[JobKey, T]) -> dict[JobKey, T]:
        return {key: value for key, value in of.items() if key not in jobs}

    return replace(
        plan,
        reservations=others(plan.reservations),
        later=others(plan.later),
        statuses=others(plan.statuses),
        preempted=others(plan.preempted),
        back=others(plan.back),
        shrinks=tuple(s for s in plan.shrinks if s.job not in jobs),
    )
