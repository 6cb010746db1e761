"""Which gangs of lower priority go back to the gate, each whole, so that the head of the queue fits.

Victims: lowest priority first, then the latest started, then the key; those that turn out not to be needed are
spared. What is ending already counts as free, so nobody is ended twice for the same head. A gang with a replica
that nothing re-creates is never a victim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Assignment, Need, place
from muster.points import Profile
from muster.types import Job, JobKey, Nodes, Phase, Reservation, Shape, Snapshot

ON_NODES = (Phase.BOUND, Phase.ENDING, Phase.UNGATED)
OUT = (Phase.BOUND, Phase.UNGATED)


def in_use(job: Job, nodes: Nodes, phases: tuple[Phase, ...] = ON_NODES) -> list[tuple[int, Shape]]:
    """Row and shape of each replica that uses a node or is on its way to one."""
    index = nodes.index
    return [
        (index[member.node], member.shape)
        for role in job.roles
        for member in role.members
        if member.node in index and member.phase in phases
    ]


def releasing(snapshot: Snapshot) -> list[tuple[int, Shape]]:
    """Row and shape of what comes free without anything more being ended: of replicas that are leaving their node,
    and of gangs that go back whole, whose evictions may not have been answered yet."""
    nodes = snapshot.nodes
    found: list[tuple[int, Shape]] = []
    for job in snapshot.jobs.values():
        if job.preempted or job.running > job.bound:
            found += in_use(job, nodes, (*OUT, Phase.ENDING) if job.preempted else (Phase.ENDING,))
    return found


def kept_for(job: Job, reservations: Iterable[Reservation], nodes: Nodes) -> list[tuple[int, Shape]]:
    """Row and shape of each of a job's reservations whose replica isn't there yet: `in_use` doesn't count them."""
    there = {m.uid for role in job.roles for m in role.members if m.phase in ON_NODES}
    shapes = {role.name: role.shape for role in job.roles}
    return [
        (nodes.index[one.node], shapes[one.role])
        for one in reservations
        if one.node in nodes.index and one.role in shapes and (not one.uid or one.uid not in there)
    ]


def make_way(
    capacity: Capacity,
    head: Job,
    needs: Sequence[Need],
    profile: Profile,
    snapshot: Snapshot,
    reservations: Mapping[JobKey, Sequence[Reservation]],
) -> tuple[tuple[Job, ...], list[Assignment]] | None:
    """The victims (none where what is ending is enough) and the head's spots; None where nothing helps.

    reservations: what jobs have by this cycle's plan so far. A gang that lost a replica has its place for the next
    one: a victim gives that up, too (a leader that takes over in the middle of a preemption finds its victim so).
    """
    now = replace(snapshot, free=capacity.free, ports=capacity.ports, ours_on=capacity.ours)
    ending = releasing(snapshot)

    def spots_without(victims: Iterable[Job]) -> list[Assignment] | None:
        later = Capacity(now)
        later.give_all(ending)
        for victim in victims:
            later.give_all(in_use(victim, snapshot.nodes, OUT))
            later.give_all(kept_for(victim, reservations.get(victim.key, ()), snapshot.nodes))
        return place(later, head, needs, profile, snapshot)

    chosen: list[Job] = []
    assignments = spots_without(chosen)
    lower = [
        job
        for job in snapshot.jobs.values()
        if job.started and not job.preempted and job.priority < head.priority and _returns(job)
    ]
    queue = iter(sorted(lower, key=lambda j: (j.priority, -j.started_at, j.key)))
    while assignments is None:
        victim = next(queue, None)
        if victim is None:
            return None
        chosen.append(victim)
        assignments = spots_without(chosen)
    for victim in list(chosen):
        others = [v for v in chosen if v is not victim]
        spared = spots_without(others)
        if spared is not None:
            chosen, assignments = others, spared
    return tuple(chosen), assignments


def _returns(job: Job) -> bool:
    """Whether every replica that runs may be evicted, and comes back to the gate."""
    return not job.shrink_blocked_by and all(
        m.evictable for r in job.roles for m in r.members if m.phase in OUT
    )
