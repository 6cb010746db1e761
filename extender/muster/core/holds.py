"""Places that replicas have: counting them, handing them to members, and where they are.

A hold is a place from the plan until the pod is bound; a bound member needs none any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from muster.core.place import Spot
from muster.types import Hold, Job, Member, Nodes, Phase, Role


def assign(job: Job, holds: Sequence[Hold]) -> list[Hold]:
    """Open holds go to members that have none, lowest index first (the running set is a prefix)."""
    result = list(holds)
    taken = {h.uid for h in result if h.uid}
    for role in job.roles:
        open_at = [i for i, h in enumerate(result) if h.role == role.name and not h.uid]
        if not open_at:
            continue
        free = [m for m in role.members if m.uid not in taken and m.ready]
        if job.coming:  # the running set stays a prefix: nobody takes the place of a lower index on its way
            free = _next(role, free)
        for i, member in zip(open_at, free, strict=False):
            result[i] = replace(result[i], uid=member.uid, pod=member.pod)
    return result


def _next(role: Role, free: Sequence[Member]) -> list[Member]:
    """Those of which every lower index is there, or has ended well; one that is leaving is not, its successor is."""
    there = sorted({m.index for m in role.members if m.index >= 0 and m.phase is not Phase.ENDING})
    return [m for m in free if m.index < 0 or m.index - bisect_left(there, m.index) <= role.ended]


def placed(role: Role, holds: Sequence[Hold]) -> int:
    """Replicas of a role that are bound or have a hold."""
    if not holds:
        return role.bound
    held = [h for h in holds if h.role == role.name]
    uids = {h.uid for h in held if h.uid}
    return len(held) + sum(1 for m in role.members if m.phase is Phase.BOUND and m.uid not in uids)


def own_rows(nodes: Nodes, job: Job, holds: Sequence[Hold]) -> dict[int, int]:
    """Replicas of the job by node row."""
    if holds:
        places = {h.uid or f"{h.role}/{i}": h.node for i, h in enumerate(holds)}
        for role in job.roles:
            places |= {m.uid: m.node for m in role.on}
        names: Iterable[str] = places.values()
    else:
        names = (m.node for role in job.roles for m in role.on)
    return {nodes.index[name]: count for name, count in Counter(names).items() if name in nodes.index}


def open_holds(nodes: Nodes, spots: Sequence[Spot]) -> list[Hold]:
    """Holds for spots that no member has yet."""
    return [Hold(role, nodes.names[row]) for role, row, count in spots for _ in range(count)]
