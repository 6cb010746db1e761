"""PriorityClass under shares: no job waits with a share of 0 while GPUs go to jobs of lower priority.

The papers' policies know no priorities. What they propose is kept, but for this: a job to which they grant nothing
gets its least (of a rigid policy: its request) from jobs of lower priority, the lowest first, of equal ones the last
submitted. Those give first what they have, or were to get, above their least; then starts are put off; then, where
`preemption` is on, running jobs are stopped: whole, as everywhere. Beyond its least a job of higher priority is as
the policy has it. Who was stopped is told so as long as that keeps him out, also when the policy itself grants those
of higher priority what they have then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from muster.core.sharing.gpu_budget import GpuBudget, gpus_used
from muster.types import Grants, IntArray, Table

WHY = "GPUs go to a job of higher priority first"


def by_priority(shares: Grants, table: Table, fixed: Sequence[int] = (), *, stop: bool = False) -> Grants:
    """The shares (legal ones), with the least of jobs of higher priority taken from those of lower.

    fixed: rows of running jobs that give nothing of what they have. stop: running jobs may be stopped for it.
    """
    if not len(table) or table.priority.min() == table.priority.max():
        return shares
    return _told(_served(shares, table, fixed, stop=stop), table)


def _served(shares: Grants, table: Table, fixed: Sequence[int], *, stop: bool) -> Grants:
    granted = np.flatnonzero(shares.replicas)
    if not len(granted):
        return shares
    waiting = np.flatnonzero((shares.replicas == 0) & (table.priority > table.priority[granted].min()))
    if not len(waiting):
        return shares
    plan = _Plan(shares, table, fixed, stop=stop)
    for row in waiting[np.argsort(-table.priority[waiting], kind="stable")].tolist():
        plan.grant(row)
    return plan.shares() if plan.changed else shares


def _told(shares: Grants, table: Table) -> Grants:
    """The shares, with why for jobs that have run and are granted nothing, where those of higher priority, by their
    least, leave too little for them whatever the others give, or where they alone have what would be enough.
    Jobs that never ran are told nothing: many wait, and each change of a reason is a write."""
    stopped = np.flatnonzero((shares.replicas == 0) & np.isfinite(table.first_start))
    if not len(stopped):
        return shares
    least = (table.request if shares.whole else table.min) * table.unit + table.fixed
    used = gpus_used(table, shares.replicas, shares.details)
    free, firm, why = table.gpus - int(used.sum()), np.minimum(used, least), dict(shares.why)
    for row in stopped.tolist():
        higher = int(firm[table.priority > table.priority[row]].sum())
        if higher and (free + higher >= least[row] or table.gpus - higher < least[row]):
            why.setdefault(row, WHY)
    return replace(shares, why=why)


class _Plan(GpuBudget):
    """floor: (J,) replicas that each row keeps at least."""

    def __init__(self, shares: Grants, table: Table, fixed: Sequence[int], *, stop: bool) -> None:
        super().__init__(shares, table)
        self.floor = self._floor(fixed, stop=stop)
        self.changed = False
        self._kept: dict[int, tuple[IntArray, int]] = {}

    def _floor(self, fixed: Sequence[int], *, stop: bool) -> IntArray:
        """Starts and growths may be put off; who runs gives down to its least, or all where it may be stopped."""
        table, replicas = self.table, self.replicas
        runs = table.have > 0
        less = np.minimum(replicas, table.have if self.given.whole else table.min)
        floor = np.where(runs, 0 if stop else less, 0)
        kept = [*fixed, *self._sharing()]
        floor[kept] = np.minimum(replicas[kept], np.maximum(table.have[kept], floor[kept]))
        result: IntArray = np.minimum(floor, replicas)
        return result

    def _sharing(self) -> Iterable[int]:
        """Rows of jobs that share another's GPUs, and of those whose GPUs are shared."""
        for row, grant in self.details.items():
            if grant.beside is not None:
                yield row
                if grant.beside in self.table.row:
                    yield self.table.row[grant.beside]

    def grant(self, row: int) -> None:
        """Its least, if those of lower priority can give it; else nothing changes."""
        table = self.table
        count = int(table.request[row] if self.given.whole else table.min[row])
        cost = int(count * table.unit[row] + table.fixed[row])  # wherever the policy would have had it
        lower, spare = self._below(int(table.priority[row]))
        if not len(lower) or cost - self.free > spare:
            return
        before, free = self.replicas.copy(), self.free
        givers = lower[np.lexsort((-lower, table.priority[lower]))].tolist()
        for step in (self._extra, self._start, self._stop):
            for giver in givers:
                if cost > self.free:
                    step(giver, cost - self.free)
        if cost > self.free:  # what is left of them is of no legal size
            self.replicas, self.free = before, free
            return
        for giver in reversed(givers):
            self._give_back(giver, int(before[giver]), self.free - cost)
        self.replicas[row] = count
        self.free -= cost
        for giver in givers:
            if self.replicas[giver] < before[giver]:
                self.why[giver] = WHY
            if not self.replicas[giver]:
                self.details.pop(giver, None)
        self.changed = True
        self._kept.clear()

    def _below(self, priority: int) -> tuple[IntArray, int]:
        """Rows of lower priority that can give something, and the GPUs that they can give in all."""
        if priority not in self._kept:
            table, details = self.table, self.details
            lower = np.flatnonzero((self.replicas > self.floor) & (table.priority < priority))
            gives = gpus_used(table, self.replicas, details) - gpus_used(table, self.floor, details)
            self._kept[priority] = lower, int(gives[lower].sum())
        return self._kept[priority]

    def _extra(self, row: int, need: int) -> None:
        """It gives and runs on: as few replicas as are enough, down to its least."""
        if self.given.whole:
            return
        have, unit = int(self.replicas[row]), int(self.table.unit[row])
        legal = self.sizes(row, int(self.floor[row]) - 1, have - 1)
        self.put(row, max((n for n in legal if (have - n) * unit >= need), default=min(legal, default=have)))

    def _start(self, row: int, need: int) -> None:
        """It gives by not starting."""
        if not self.table.have[row]:
            self._stop(row, need)

    def _stop(self, row: int, need: int) -> None:  # noqa: ARG002
        """It gives by being stopped, where it may be."""
        if not self.floor[row]:
            self.put(row, 0)

    def _give_back(self, row: int, before: int, spare: int) -> None:
        """It takes back of what turns out not to be needed, as much as `spare` GPUs are enough for."""
        now = int(self.replicas[row])
        smaller = [] if self.given.whole else self.sizes(row, now, before - 1)
        limit = spare + self.gpus(row, now)
        self.put(row, next((n for n in [before, *smaller] if n > now and self.gpus(row, n) <= limit), now))
