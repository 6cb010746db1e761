"""The first half of `defragment`: moves after which a waiting job finds whole places."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Assignment, Need, place
from muster.core.sharing.moving import (
    as_bound,
    by_node,
    come_free,
    gpus_of,
    least_of,
    leave,
    move_to,
    rows_of,
    rows_on,
)
from muster.types import Job, JobKey, Move, Nodes
from muster_plugins.defragment_terms import PACKED, Terms


def room_for(head: Job, movable: Mapping[JobKey, Job], terms: Terms) -> list[Move]:
    """Moves after which the head's minimum fits, [] where there are none that are worth it."""
    snapshot = terms.snapshot
    capacity = Capacity(snapshot)
    come_free(capacity, snapshot)  # what was moved for it, for one
    needs = least_of(head)
    mark = capacity.mark()
    if place(capacity, head, needs, PACKED, snapshot) is not None:
        capacity.undo(mark)
        return []  # it waits for something else than room
    nodes = snapshot.nodes
    cleared: list[Job] = []
    standing = by_node(movable)
    for row in _clearings(needs, standing, capacity, nodes):
        for job in standing[nodes.names[row]]:
            if job not in cleared:
                leave(capacity, job, nodes)
                cleared.append(job)
        if len(cleared) > terms.most:
            break
        assignments = _both(head, needs, cleared, capacity, terms)
        if assignments is not None:
            return _worth(head, needs, cleared, assignments, terms)
    capacity.undo(mark)
    return []


def _clearings(
    needs: Sequence[Need], standing: Mapping[str, Sequence[Job]], capacity: Capacity, nodes: Nodes
) -> Iterator[int]:
    """Nodes that would take more of the head without their movable jobs, fewest GPUs to clear first."""
    largest = needs[0].role.shape
    fits = capacity.fits(largest).copy()
    found = []
    for name, jobs in standing.items():
        row = nodes.index.get(name)
        if row is None or not nodes.open[row]:
            continue
        mark = capacity.mark()
        for job in jobs:
            leave(capacity, job, nodes)
        more = int(capacity.fits(largest)[row] - fits[row])
        capacity.undo(mark)
        if more > 0:
            gpus = sum(m.shape.gpus for job in jobs for role in job.roles for m in role.on if m.node == name)
            found.append((gpus / more, name, row))
    for _, _, row in sorted(found):
        yield row


def _both(
    head: Job,
    needs: Sequence[Need],
    cleared: Sequence[Job],
    capacity: Capacity,
    terms: Terms,
) -> dict[JobKey, list[Assignment]] | None:
    """Spots of the cleared jobs beside the head, which is placed first; None where one finds none."""
    snapshot = terms.snapshot
    mark = capacity.mark()
    if place(capacity, head, needs, PACKED, snapshot) is None:
        capacity.undo(mark)
        return None
    assignments: dict[JobKey, list[Assignment]] = {}
    for job in sorted(cleared, key=lambda j: (-gpus_of(j), j.key)):
        found = place(capacity, job, as_bound(job), PACKED, snapshot)
        if found is None or len(rows_of(found)) > len(rows_on(job, snapshot.nodes)):
            capacity.undo(mark)
            return None
        assignments[job.key] = found
    capacity.undo(mark)
    return assignments


def _worth(
    head: Job,
    needs: Sequence[Need],
    cleared: Sequence[Job],
    assignments: Mapping[JobKey, Sequence[Assignment]],
    terms: Terms,
) -> list[Move]:
    """The moves, if the head gains more GPU-seconds than they cost; those that stay where they are left out."""
    snapshot = terms.snapshot
    moved = [job for job in cleared if rows_of(assignments[job.key]) != rows_on(job, snapshot.nodes)]
    sooner = min(terms.horizon, _until_room(head, needs, cleared, terms))
    gain = sooner * sum(need.count * need.role.shape.gpus for need in needs)
    cost = sum(terms.cost_of(job) * gpus_of(job) for job in moved)
    if not moved or gain <= cost:
        return []
    asks = sum(need.count * need.role.shape.gpus for need in needs)
    return [
        move_to(
            job,
            assignments[job.key],
            snapshot.nodes,
            sooner,
            terms.cost_of(job),
            f"makes room for {head.key.name}, whose {asks} GPUs are free but scattered: it starts up to "
            f"{sooner:.0f} s sooner, a change costs this job {terms.cost_of(job):.0f} s",
        )
        for job in moved
    ]


def _until_room(head: Job, needs: Sequence[Need], cleared: Sequence[Job], terms: Terms) -> float:
    """Seconds until the head would start anyhow: the first known end that makes room for it; infinite if none."""
    snapshot = terms.snapshot
    capacity = Capacity(snapshot)
    come_free(capacity, snapshot)
    waiting = {job.key for job in cleared}
    known = [
        (left, key)
        for key, job in snapshot.jobs.items()
        if job.bound and key not in waiting and (left := terms.left(job)) <= terms.horizon
    ]
    for left, key in sorted(known)[:32]:
        leave(capacity, snapshot.jobs[key], snapshot.nodes)
        mark = capacity.mark()
        if place(capacity, head, needs, PACKED, snapshot) is not None:
            return max(0.0, left)
        capacity.undo(mark)
    return math.inf
