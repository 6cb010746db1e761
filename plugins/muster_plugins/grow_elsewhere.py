"""Rebalance `grow-elsewhere`: a job in place goes where more GPUs idle than its own node has (design, second lever).

The GPUs of a job in place are of its pod's node. When the policy grants it more than it has, its node has none free
for the next number that it can train on, and another node has idle ones for a larger number than it uses, its pod
ends and starts there: the first lever, where the second doesn't reach. Nobody may wait for room that the empty
cluster has.

Gain: (v' - v) / v of the time that it still runs, `horizon` at most; v' at that number of GPUs, up to what it is
granted, at which it gains most. Cost: what a change costs it as measured, but `cost` at least, since what was
measured of a job in place may be hand-overs. It moves if it gains more, one job at a time, the one that gains most
first.

Never moved: a job that ends within `ending` s or started within `cooldown` s; one that can't change, that starts
again for each change anyhow (`muster.dev/resize: restart`), shares a GPU, or has several pods (each has as many GPUs,
of a node of its own). Never to another GPU product: speeds are of the one it has.

Choices: `TRIES` jobs are looked at in a cycle at most, others in each second. A job that goes starts anew, with all
that it is granted, when its pod is back: meanwhile its room is kept by nothing but that nobody waits for it. Source:
none; issue 13 has the lever only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    rows_on,
    waits_for_room,
)
from muster.policylib import greedy
from muster.types import PRODUCT, BoolArray, Job, JobKey, Move, SharingSnapshot, elastic_role
from muster_plugins.defragment_terms import PACKED, Terms

TRIES = 16


@dataclass(frozen=True, slots=True)
class GrowElsewhere:
    """horizon: s over which a gain is counted. cost: least s that a restart is taken to cost. ending: s before its
    end within which a job stays. cooldown: s after its start within which it stays."""

    horizon: float = 3600.0
    cost: float = 60.0
    ending: float = 600.0
    cooldown: float = 600.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name}: must be 0 or more; found {getattr(self, name)}")

    def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]:
        """The job in place that gains most where more GPUs idle than it has."""
        jobs = [job for job in self._below(snapshot) if snapshot.now >= changed_at(job) + self.cooldown]
        if not jobs or self._busy(snapshot):
            return []
        shared = on_shared_gpus(snapshot)
        terms = Terms(snapshot, self.horizon, self.cost, most=1, rack="")
        jobs = [job for job in jobs if can_change(job, shared) and terms.left(job) > self.ending]
        trial = _Trial(terms)
        wishes = sorted(
            (wish for job in jobs for wish in trial.wishes(job)), key=lambda w: (w.cost - w.gain, w.key)
        )
        some = _some(list(dict.fromkeys(wish.key for wish in wishes)), snapshot.now)
        for wish in wishes:
            if wish.key in some and (move := trial.move(wish)) is not None:
                return [move]
        return []

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
            if job.elastic is not None and job.elastic.devices and job.started and job.resize != "restart"
            if 0 < job.elastic.bound < job.elastic.max
            and sum(r.bound for r in job.roles if not r.devices) == 1
        ]

    def _busy(self, snapshot: SharingSnapshot) -> bool:
        """Whether a job waits that the empty cluster would take, or one in place is on its way out, or gone until its
        owner makes its pod again."""
        jobs, rows = snapshot.jobs, snapshot.table.row
        for key, job in jobs.items():
            shared = job.elastic is not None and job.elastic.shape.gpus  # whoever would never fit is no row
            if (key in rows or not shared) and waits_for_room(job, snapshot.now):
                return True
            if job.elastic is None or not job.elastic.devices:
                continue
            away = job.expects and not any(role.members for role in job.roles)
            if leaves(job) or (away and snapshot.now < changed_at(job) + self.cooldown):
                return True
        return False


def _some(keys: Sequence[JobKey], now: float) -> Sequence[JobKey]:
    """TRIES of them, others in each second: no node may have room for the first ones."""
    if len(keys) <= TRIES:
        return keys
    first = int(now) % -(-len(keys) // TRIES) * TRIES
    return keys[first : first + TRIES]


class _Wish(NamedTuple):
    """What a job would gain by so many GPUs, and what a restart costs it (s)."""

    key: JobKey
    gpus: int
    gain: float
    cost: float


class _Trial:
    """Room on nodes of one cycle."""

    def __init__(self, terms: Terms) -> None:
        self._terms, self._snapshot = terms, terms.snapshot
        self._capacity = Capacity(terms.snapshot)
        self._products, _ = terms.snapshot.nodes.domains(PRODUCT)

    def wishes(self, job: Job) -> Iterator[_Wish]:
        """Numbers of GPUs, up to what it is granted, by which a job gains more than a restart costs; none where it
        has room to grow on its own node, or no other has as many free."""
        snapshot, table, slots = self._snapshot, self._snapshot.table, elastic_role(job)
        if snapshot.granted is None:
            return
        row, have = table.row[job.key], slots.bound
        granted = int(snapshot.granted.replicas[row])
        more = [count for count in greedy.steps(table, row) if have < count <= granted]
        fits = self._capacity.fits(slots.shape)
        here = [*rows_on(job, snapshot.nodes)]
        if not more or not here or int(fits[here[0]]) >= more[0] - have:
            return
        most = int(fits.max(where=self._elsewhere(here[0]), initial=0))
        curve = table.curves[table.curve[row]]
        now, left = float(curve[have]), min(self._terms.horizon, self._terms.left(job))
        cost = max(self._terms.cost, self._terms.cost_of(job))
        for count in more:
            if count <= most and now > 0.0:
                gain = (float(curve[count]) - now) / now * left
                if gain > cost:
                    yield _Wish(job.key, count, gain, cost)

    def move(self, wish: _Wish) -> Move | None:
        """To a node that takes the job with so many GPUs; None where none does."""
        snapshot = self._snapshot
        job = snapshot.jobs[wish.key]
        slots = elastic_role(job)
        (row,) = {*rows_on(job, snapshot.nodes)}
        needs = [Need(role, wish.gpus if role is slots else role.bound) for role in job.roles if role.bound]
        mark = self._capacity.mark()
        leave(self._capacity, job, snapshot.nodes)  # for who must not stand beside its like
        found = place(self._capacity, job, needs, PACKED, snapshot, allowed=self._elsewhere(row))
        self._capacity.undo(mark)
        if found is None:
            return None
        words = (
            f"it is granted more GPUs than its node has for it, and another one takes {wish.gpus} in place of "
            f"{plural(slots.bound, 'GPU')}: it would gain {wish.gain:.0f} s within {self._terms.horizon:.0f} s, "
            f"a restart costs {wish.cost:.0f} s"
        )
        return move_to(job, found, snapshot.nodes, wish.gain, wish.cost, words, replicas=wish.gpus)

    def _elsewhere(self, row: int) -> BoolArray:
        """Open nodes with the same product as this one, but not this one."""
        others: BoolArray = self._snapshot.nodes.open & (self._products == self._products[row])
        others[row] = False
        return others
