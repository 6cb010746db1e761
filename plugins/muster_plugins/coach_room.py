"""What `coach` takes to be free: a guess of places that the core will find, not a promise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from muster.types import IntArray, Job, Nodes, Role, Snapshot


def _request(role: Role, nodes: Nodes) -> IntArray:
    row = np.zeros(len(nodes.resources), dtype=np.int64)
    for resource, amount in (*role.shape.requests, ("pods", 1)):
        if resource in nodes.resource_index:
            row[nodes.resource_index[resource]] = amount
    return row


def take(free: IntArray, roles: Mapping[str, int], job: Job, nodes: Nodes) -> bool:
    """Places for so many replicas, most demanding role first, on the first node with room; all or nothing. A guess
    of what the core will find, not a promise."""
    before = free.copy()
    ordered = sorted(job.roles, key=lambda r: (-r.shape.gpus, -r.shape.request("cpu"), r.name))
    for role in ordered:
        ask = _request(role, nodes)
        for _ in range(roles.get(role.name, 0)):
            fits = np.flatnonzero((free >= ask).all(axis=1) & nodes.open)
            if not len(fits):
                free[:] = before
                return False
            free[fits[0]] -= ask
    return True


def unused(snapshot: Snapshot) -> IntArray:
    """(N, R) what is free; in a simulation without places, where `free` is all there is, what our jobs leave."""
    used = np.zeros_like(snapshot.free)
    for job in snapshot.jobs.values():
        if job.started:
            give_back(used, job, snapshot.nodes)
    left: IntArray = np.minimum(snapshot.free, snapshot.nodes.total - used)
    return left


def give_back(free: IntArray, job: Job, nodes: Nodes) -> None:
    """What a job at a boundary uses counts as free for it, with places that replicas of it are about to take."""
    for role in job.roles:
        ask = _request(role, nodes)
        on = {member.uid for member in role.members if member.phase.on_node}
        places = [member.node for member in role.members if member.uid in on]
        places += [held.node for held in job.reservations if held.role == role.name and held.uid not in on]
        for node in places:
            if node in nodes.index:
                free[nodes.index[node]] += ask
