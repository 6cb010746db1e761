"""Share `themis`: finish-time fairness by auction and lease (Themis, NSDI 2020; papers/afs-coddl, 5.1 and 6).

A job's finish-time fairness is rho = (time in the shared cluster) / (time alone on 1/n of it, n = jobs now). GPUs are
leased for a fixed time; those whose lease is over, and those that are free, are auctioned:

1. the fraction 1 - f of the jobs that are treated worst (largest rho with what they keep) see the offer;
2. each values a number of GPUs at 1 / rho with them; GPUs are allotted so that the product of values is largest
   (one by one by the growth of the logarithm), and a winner gets only the part of its lot that its presence costs
   the others (Themis' partial allocation: c = product of the others' values with it / without it), rounded down;
3. what is left over goes one by one at random to jobs that can use it (footnote: "random distribution of leftover
   resources"), so no GPU idles.

Choices: where a length is unknown, rho is that of the work that is done by the end of the next lease, which is
footnote 13's throughput m/n; n is the present number of jobs, not its mean over time; an auction is at every event
with something to offer; a whole job's GPUs have one lease. The first GPU of a job that has none is worth most, larger
rho first. With nothing rho is infinite for all: between such jobs it is the rho that the fewest GPUs would give
them, so that those whose leases end together take turns with those that waited; then earlier submission. Greedy, so
for curves that are not concave the product may miss its largest value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.memory import Memory, remembers
from muster.policylib import greedy, quantum
from muster.policylib.quantum import Quanta
from muster.policylib.remembered import columns, folded
from muster.types import FloatArray, Grants, IntArray, Job, SharingSnapshot, Snapshot


@dataclass(frozen=True, slots=True)
class Themis:
    """fairness: f, the fraction of jobs that do not see an offer. lease: s (Themis' own evaluation: 20 minutes)."""

    RULE: ClassVar[str] = "those farthest behind their fair share come first, for a lease"

    fairness: float = 0.8
    lease: float = 1200.0
    memory: Memory[Quanta] = remembers(Quanta.read)

    def __post_init__(self) -> None:
        if not 0.0 <= self.fairness < 1.0:
            raise ValueError(f"fairness: must be from 0 to below 1; found {self.fairness}")
        if self.lease <= 0.0:
            raise ValueError(f"lease: must be above 0; found {self.lease}")

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Leases that go on, then the auction, then the leftovers."""
        table = snapshot.table
        memory = columns(snapshot, self.memory, quantum.FIELDS)
        if not folded(snapshot, self.memory):
            runs = quantum.under_way(snapshot)
            memory = quantum.fold(snapshot, memory, self.lease, renew=False, runs=runs)
        keep = (table.have > 0) & (memory["since"] < snapshot.now)
        granted, offer = quantum.within(table, keep, memory["since"])
        if offer <= 0:
            return Grants(granted)
        rho = self._rho(snapshot)
        now = rho[np.arange(len(table)), granted]
        least = rho[np.arange(len(table)), table.min]
        worst = np.lexsort((np.arange(len(table)), table.submitted, -least, -now))
        seen = worst[: max(1, math.ceil((1.0 - self.fairness) * len(table)))]
        won = self._auction(snapshot, granted, offer, rho, seen)
        left = table.gpus - int(greedy.cost(table, won)[won > 0].sum())
        return Grants(self._leftovers(snapshot, won, left))

    def _rho(self, snapshot: SharingSnapshot) -> FloatArray:
        """(J, K+1) finish-time fairness of each job with each number of replicas; inf with none."""
        table = snapshot.table
        speeds = table.curves[table.curve]
        fair = np.clip(table.gpus // max(1, len(table)) // table.unit, table.min, table.max)
        alone = speeds[np.arange(len(table)), fair]
        age = np.maximum(snapshot.now - table.submitted, 0.0)
        known = ~np.isnan(table.remaining)
        remaining = np.where(known, table.remaining, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            length = np.where(known[:, None], remaining[:, None] / speeds, self.lease)
            work = table.progress[:, None] + np.where(known[:, None], remaining[:, None], self.lease * speeds)
            rho: FloatArray = (age[:, None] + length) / (work / alone[:, None])
        rho[:, 0] = np.inf
        return np.where(np.isnan(rho), np.inf, rho)

    def _auction(
        self, snapshot: SharingSnapshot, granted: IntArray, offer: int, rho: FloatArray, seen: IntArray
    ) -> IntArray:
        """Proportionally fair lots for those who see the offer, less the part that each one's presence costs."""
        lots = _fair(snapshot, granted, offer, rho, seen)
        winners = np.flatnonzero(lots > granted)
        paid = granted.copy()
        for row in winners.tolist():
            others = seen[seen != row]
            without = _fair(snapshot, granted, offer, rho, others)
            with np.errstate(divide="ignore", invalid="ignore"):
                loss = np.log(rho[others, without[others]]) - np.log(rho[others, lots[others]])
            loss = loss[np.isfinite(loss)]  # who has nothing either way loses nothing that can be told
            part = math.exp(min(0.0, float(loss.sum())))
            count = int(granted[row] + math.floor((lots[row] - granted[row]) * part + 1e-9))
            fitting = [s for s in greedy.steps(snapshot.table, row) if s <= count]
            paid[row] = max(fitting[-1] if fitting else 0, granted[row])
        return paid

    def _leftovers(self, snapshot: SharingSnapshot, won: IntArray, left: int) -> IntArray:
        table = snapshot.table
        rng = snapshot.rng("themis")
        taking = np.arange(len(table))
        while left > 0 and len(taking):
            taking = rng.permutation(taking)
            after = greedy.level(table, taking[:left], left, won)
            used = int((greedy.cost(table, after)[after > 0]).sum() - greedy.cost(table, won)[won > 0].sum())
            if not used:
                taking = taking[left:]
            won, left = after, left - used
        return won

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """How many leases the job has used up, and when the present one began."""
        return quantum.observe(job, snapshot, self.memory, self.lease, renew=False)

    def fold(self, snapshot: SharingSnapshot, memory: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:
        """`observe` for all jobs of a table."""
        return quantum.fold(snapshot, memory, self.lease, renew=False)

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next lease ends."""
        return quantum.wake(snapshot, self.memory, self.lease)


def _fair(
    snapshot: SharingSnapshot, granted: IntArray, offer: int, rho: FloatArray, rows: IntArray
) -> IntArray:
    """(J,) replicas of which the product of 1 / rho over `rows` is largest, GPU by GPU."""
    table = snapshot.table
    place = {int(row): n for n, row in enumerate(rows)}
    # A job that says it has nothing left, and none of it done, has a rho of inf or 0 at every size: it gains nothing.
    value = -np.log(np.clip(rho[rows], 1e-300, 1e300))

    def gain(row: int, here: int, following: int) -> float:
        n = place[row]
        if not here:
            return 1e9 - n  # from nothing to something: the growth is infinite, in the order of rho
        return float(value[n, following] - value[n, here])

    return greedy.by_gain(table, granted, offer, gain, rows)
