"""What the plain default scheduler would do: pod by pod, no gangs, no plan. Only in simulations (`kube-default`).

A queue of pods, not of jobs: by priority, then by creation; of jobs created in the same second the pods come as the
API happens to deliver them, here in a seeded order. Each pod is bound as soon as a node has room for it, others are
skipped over; so the replicas of a job start one by one and hold their nodes while the rest waits. Two such
jobs can wait for each other for ever: a deadlock, which the simulation shows.

Among the nodes with room the least allocated is taken (kube-scheduler's NodeResourcesFit with its default
strategy LeastAllocated over cpu and memory, whole percents, a container that asks for nothing counting as
100m and 200 MiB); of equals a random one, seeded. Left out: the scores that need what no trace has (images, spreading
by zone, affinities), the back-off of pods that were refused (1 to 10 s), and preemption.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from muster.core.placement.capacity import Capacity
from muster.types import (
    IntArray,
    Job,
    JobKey,
    Member,
    Phase,
    Plan,
    Reason,
    Reservation,
    Role,
    Shape,
    Snapshot,
    State,
    Status,
)

NAME = "kube-default"
DEFAULTS = {"cpu": 100, "memory": 200 << 20}
"""What kube-scheduler scores a container by that asks for nothing: millicores, bytes."""


def plan(snapshot: Snapshot, wanted: Mapping[JobKey, Mapping[str, int]]) -> Plan:
    """Places for every pod that finds one, in the queue's order. wanted: replicas by role that owners made."""
    capacity = Capacity(snapshot)
    scorer = _LeastAllocated(snapshot, capacity)
    queue: list[tuple[tuple[object, ...], Job, Role, Member]] = []
    for job in snapshot.jobs.values():
        for role in job.roles:
            waiting = [m for m in role.members[: wanted[job.key][role.name]] if m.phase is Phase.GATED]
            queue += [(_turn(job, member, snapshot.seed), job, role, member) for member in waiting]
    queue.sort(key=lambda each: each[0])
    refused: set[Shape] = set()  # what did not fit once does not fit later in the same pass
    reservations: dict[JobKey, list[Reservation]] = {}
    for _, job, role, member in queue:
        if role.shape in refused:
            continue
        fits = capacity.fits(role.shape)
        if not fits.any():
            refused.add(role.shape)
            continue
        row = scorer.best(role.shape, fits)
        capacity.take(row, role.shape)
        scorer.taken(row, role.shape)
        reservations.setdefault(job.key, []).append(
            Reservation(role.name, snapshot.nodes.names[row], member.pod, member.uid)
        )
    return Plan(
        reservations={key: tuple(places) for key, places in reservations.items()},
        statuses={
            key: _status(job, wanted[key], len(reservations.get(key, ())))
            for key, job in snapshot.jobs.items()
        },
    )


def _turn(job: Job, member: Member, seed: int) -> tuple[object, ...]:
    """Where a pod stands in the queue."""
    return (-job.priority, int(job.submitted), _drawn(seed, member.uid), member.uid)


@lru_cache(maxsize=1 << 16)
def _drawn(seed: int, uid: str) -> bytes:
    """A pod's place among those of the same second, as if at random."""
    return blake2b(f"{seed}/{uid}".encode(), digest_size=8).digest()


class _LeastAllocated:
    """(N,) whole percents left of cpu and memory, on average, if the pod were there too."""

    def __init__(self, snapshot: Snapshot, capacity: Capacity) -> None:
        nodes = self.nodes = snapshot.nodes
        self.room = capacity
        self.columns = [nodes.resource_index[name] for name in DEFAULTS]
        self.total = np.maximum(nodes.total[:, self.columns], 1)
        self.unasked = np.zeros((len(nodes), len(self.columns)), dtype=np.int64)
        self.rng = snapshot.rng(NAME)
        for job in snapshot.jobs.values():
            for role in job.roles:
                extra = unasked(role.shape)
                if extra.any():
                    for member in role.members:
                        if member.phase.on_node:
                            self.unasked[nodes.index[member.node]] += extra

    def best(self, shape: Shape, fits: IntArray) -> int:
        """The row of the best node that has room; a random one of equals."""
        asked = np.array([shape.request(name) for name in DEFAULTS]) + unasked(shape)
        used = self.nodes.total[:, self.columns] - self.room.free[:, self.columns] + self.unasked
        left = np.maximum(0, self.total - used - asked) * 100 // self.total
        scores = np.where(fits > 0, left.sum(axis=1) // len(self.columns), -1)
        ties = np.flatnonzero(scores == scores.max())
        return int(ties[self.rng.integers(len(ties))] if len(ties) > 1 else ties[0])

    def taken(self, row: int, shape: Shape) -> None:
        """A pod of the shape is there now."""
        self.unasked[row] += unasked(shape)


def unasked(shape: Shape) -> IntArray:
    """What a pod counts for that does not ask for it."""
    return np.array([0 if shape.request(name) else v for name, v in DEFAULTS.items()], dtype=np.int64)


def _status(job: Job, wanted: Mapping[str, int], found: int) -> Status:
    have = job.running + found
    if have >= sum(wanted.values()):
        return Status(State.RUNNING, Reason.OK, "all replicas have a node")
    return Status(
        State.WAITING if not have else State.STARTING,
        Reason.RESOURCES,
        f"{have} of {sum(wanted.values())} replicas have a node; each waits for itself, and holds it meanwhile",
    )
