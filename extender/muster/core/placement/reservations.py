"""Places that replicas have: counting them, handing them to members, and where they are.

A hold is a place from the plan until the pod is bound; a bound member needs none any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from muster.core.placement.place import Assignment
from muster.points import Profile
from muster.types import Job, Member, Nodes, Phase, Reservation, Role


def assign(job: Job, reservations: Sequence[Reservation]) -> list[Reservation]:
    """Open holds go to members that have none, lowest index first (the running set is a prefix)."""
    result = list(reservations)
    taken = {h.uid for h in result if h.uid}
    for role in job.roles:
        open_at = [i for i, h in enumerate(result) if h.role == role.name and not h.uid]
        if not open_at:
            continue
        free = [m for m in role.members if m.uid not in taken and m.ready]
        # the running set stays a prefix: nobody takes the place of a lower index on its way, of index 0 however long
        # that takes
        if job.returning or any(m.index == 0 and m.phase is Phase.ENDING for m in role.members):
            free = _next(role, free)
        for i, member in zip(open_at, free, strict=False):
            result[i] = replace(result[i], uid=member.uid, pod=member.pod)
    return result


def _next(role: Role, free: Sequence[Member]) -> list[Member]:
    """Those of which every lower index is there, or has ended well; one that is leaving is not, its successor is."""
    there = sorted({m.index for m in role.members if m.index >= 0 and m.phase is not Phase.ENDING})
    return [m for m in free if m.index < 0 or m.index - bisect_left(there, m.index) <= role.ended]


def placed(role: Role, reservations: Sequence[Reservation]) -> int:
    """Replicas of a role that are bound or have a hold."""
    if not reservations:
        return role.bound
    held = [h for h in reservations if h.role == role.name]
    uids = {h.uid for h in held if h.uid}
    return len(held) + sum(1 for m in role.members if m.phase is Phase.BOUND and m.uid not in uids)


def own_rows(nodes: Nodes, job: Job, reservations: Sequence[Reservation]) -> dict[int, int]:
    """Replicas of the job by node row; GPUs in place are none."""
    roles = [role for role in job.roles if not role.devices]
    if reservations:
        known = {role.name for role in job.roles if role.devices}
        places = {h.uid or f"{h.role}/{i}": h.node for i, h in enumerate(reservations) if h.role not in known}
        for role in roles:
            places |= {m.uid: m.node for m in role.on}
        names: Iterable[str] = places.values()
    else:
        names = (m.node for role in roles for m in role.on)
    return {nodes.index[name]: count for name, count in Counter(names).items() if name in nodes.index}


def open_holds(nodes: Nodes, assignments: Sequence[Assignment]) -> list[Reservation]:
    """Holds for spots that no member has yet."""
    return [Reservation(role, nodes.names[row]) for role, row, count in assignments for _ in range(count)]


def members_expected(job: Job, now: float, profile: Profile) -> bool:
    """Whether replicas that do not exist yet may be planned for: their owner makes them, and has not stopped to."""
    return job.expects and (job.returning or now - job.newest_pod < profile.owner_pause)
