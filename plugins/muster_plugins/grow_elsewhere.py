"""Rebalance `grow-elsewhere`: a job in place goes where more GPUs idle than its own node has (design, second lever).

The GPUs of a job in place are of its pod's node. When nobody waits for a place, that node has none free for the next
number of GPUs that the job can train on, and another one has idle ones for more than it uses, its pod ends and starts
there: the first lever, where the second doesn't reach. Once it is there its share grows, without a restart.

Gain: (v' - v) / v of the time that it still runs, `horizon` at most, v' at the largest number that the other node
takes; cost: what a change costs the job, as measured, else `cost`. It moves if it gains more, one job at a time, the
one that gains most first.

Never moved: a job that ends within `ending` s or changed within `cooldown` s (a hand-over is no change), that can't
change, shares a GPU, or has several pods (each has as many GPUs, of a node of its own).

Choices: GPUs that idle are wanted by nobody else on that cluster: policies hand out what somebody can take up, and a
job that is hemmed in passes its part on (`core.sharing.work_conserving`). Source: none; issue 13 has the lever only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Need, place
from muster.core.reasons.words import plural
from muster.core.sharing.moving import (
    can_change,
    changed_at,
    leave,
    leaves,
    move_to,
    on_shared_gpus,
    rows_of,
    rows_on,
    waits_for_room,
)
from muster.types import Job, Move, SharingSnapshot
from muster_plugins.defragment_terms import PACKED, Terms


@dataclass(frozen=True, slots=True)
class GrowElsewhere:
    """horizon: s over which a gain is counted. cost: s of a change of a job of which none was measured. ending: s
    before its end within which a job stays. cooldown: s after a start or a change within which it stays."""

    horizon: float = 3600.0
    cost: float = 60.0
    ending: float = 600.0
    cooldown: float = 600.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) < 0.0:
                raise ValueError(f"{name}: must be 0 or more; found {getattr(self, name)}")

    def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]:
        """The job in place that gains most where more GPUs idle than it has."""
        below = self._below(snapshot)
        jobs = [job for job in below if snapshot.now >= changed_at(job) + self.cooldown]
        if not jobs or any(waits_for_room(job, snapshot.now) for job in snapshot.jobs.values()):
            return []
        if any(leaves(job) for job in snapshot.jobs.values()):
            return []
        shared = on_shared_gpus(snapshot)
        terms = Terms(snapshot, self.horizon, self.cost, most=1, rack="")
        found = [
            move
            for job in jobs
            if can_change(job, shared) and terms.left(job) > self.ending
            if (move := _move(job, terms)) is not None
        ]
        return sorted(found, key=lambda move: (move.cost - move.gain, move.job))[:1]

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next job's cooldown is over."""
        ends = [changed_at(job) + self.cooldown for job in self._below(snapshot)]
        return min((end for end in ends if end > snapshot.now), default=None)

    def _below(self, snapshot: SharingSnapshot) -> list[Job]:
        """Jobs in place of one pod that could train on more GPUs than they have."""
        jobs = [snapshot.jobs[key] for key in snapshot.table.keys]
        return [
            job
            for job in jobs
            if job.elastic is not None and job.elastic.devices and job.started
            if 0 < job.elastic.bound < job.elastic.max
            and sum(r.bound for r in job.roles if not r.devices) == 1
        ]


def _move(job: Job, terms: Terms) -> Move | None:
    """To the node that takes most of its numbers of GPUs; None where that is its own, or not worth it."""
    snapshot, slots = terms.snapshot, job.elastic
    assert slots is not None
    have, row = slots.bound, snapshot.table.row[job.key]
    more = [size for size in slots.sizes or range(have + 1, slots.max + 1) if size > have]
    capacity = Capacity(snapshot)
    most = int(capacity.fits(slots.shape).max(initial=0))
    here = rows_on(job, snapshot.nodes)
    if not more or more[0] > most:
        return None
    leave(capacity, job, snapshot.nodes)
    mark = capacity.mark()
    for size in reversed(more):
        if size > most + have:
            continue
        needs = [Need(role, size if role is slots else role.bound) for role in job.roles if role.bound]
        found = place(capacity, job, needs, PACKED, snapshot)
        if found is None:
            continue
        capacity.undo(mark)
        if rows_of(found).keys() == here.keys():
            return None  # it grows where it is
        curve = snapshot.table.curves[snapshot.table.curve[row]]
        now, then = float(curve[have]), float(curve[size])
        gain = (then - now) / now * min(terms.horizon, terms.left(job)) if now > 0.0 else 0.0
        cost = terms.cost_of(job)
        words = (
            f"its node has no more GPUs for it, and another one takes {plural(size, 'GPU')} in place of its {have}: "
            f"it would gain {gain:.0f} s within {terms.horizon:.0f} s, a change costs {cost:.0f} s"
        )
        return move_to(job, found, snapshot.nodes, gain, cost, words) if gain > cost else None
    return None
