"""PriorityClass under shares: no job waits with a share of 0 while GPUs go to jobs of lower priority.

The papers' policies know no priorities. What they propose is kept, but for this: a job to which they grant nothing
gets its least (of a rigid policy: its request) from jobs of lower priority, the lowest first, of equal ones the last
submitted. Those give first what they have, or were to get, above their least; then starts are put off; then, where
`preemption` is on, running jobs are stopped: whole, as everywhere. Beyond its least a job of higher priority is as
the policy has it. Who was stopped is told so as long as that keeps him out, also when the policy itself grants those
of higher priority what they have then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from muster.types import Grant, Grants, IntArray, Table

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
    return plan.shares()


def _told(shares: Grants, table: Table) -> Grants:
    """The shares, with why for jobs that have run and are granted nothing, where those of higher priority, by their
    least, leave too little for them whatever the others give, or where they alone have what would be enough.
    Jobs that never ran are told nothing: many wait, and each change of a reason is a write."""
    stopped = np.flatnonzero((shares.replicas == 0) & np.isfinite(table.first_start))
    if not len(stopped):
        return shares
    least = (table.request if shares.whole else table.min) * table.unit + table.fixed
    used = _gpus(table, shares.replicas, shares.details)
    free, firm, why = table.gpus - int(used.sum()), np.minimum(used, least), dict(shares.why)
    for row in stopped.tolist():
        higher = int(firm[table.priority > table.priority[row]].sum())
        if higher and (free + higher >= least[row] or table.gpus - higher < least[row]):
            why.setdefault(row, WHY)
    return replace(shares, why=why)


def _gpus(table: Table, replicas: IntArray, grants: Mapping[int, Grant]) -> IntArray:
    """(J,) GPUs of so many replicas of each; none of its own for a job beside another."""
    used: IntArray = replicas * table.unit + np.where(replicas > 0, table.fixed, 0)
    used[[row for row, grant in grants.items() if grant.beside is not None]] = 0
    return used


class _Plan:
    """The shares while they change. floor: (J,) replicas that each row keeps at least."""

    def __init__(self, shares: Grants, table: Table, fixed: Sequence[int], *, stop: bool) -> None:
        self.given, self.table = shares, table
        self.replicas, self.wants, self.why = shares.replicas.copy(), dict(shares.details), dict(shares.why)
        self.floor = self._floor(fixed, stop=stop)
        self.free = table.gpus - int(_gpus(table, self.replicas, self.wants).sum())
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
        for row, grant in self.wants.items():
            if grant.beside is not None:
                yield row
                if grant.beside in self.table.row:
                    yield self.table.row[grant.beside]

    def grant(self, row: int) -> None:
        """Its least, if those of lower priority can give it; else nothing changes."""
        table = self.table
        count = int(table.request[row] if self.given.whole else table.min[row])
        need = int(count * table.unit[row] + table.fixed[row]) - self.free
        lower, spare = self._below(int(table.priority[row]))
        if not len(lower) or need > spare:
            return
        before = self.replicas.copy()
        givers = lower[np.lexsort((-lower, table.priority[lower]))].tolist()
        for step in (self._extra, self._start, self._stop):
            for giver in givers:
                if need > 0:
                    need -= step(giver, need)
        if need > 0:  # what is left of them is of no legal size
            self.replicas = before
            return
        for giver in reversed(givers):
            need += self._give_back(giver, int(before[giver]), -need)
        self.replicas[row] = count
        self.free = -need
        for giver in givers:
            if self.replicas[giver] < before[giver]:
                self.why[giver] = WHY
            if not self.replicas[giver]:
                self.wants.pop(giver, None)
        self.changed = True
        self._kept.clear()

    def _below(self, priority: int) -> tuple[IntArray, int]:
        """Rows of lower priority that can give something, and the GPUs that they can give in all."""
        if priority not in self._kept:
            lower = np.flatnonzero((self.replicas > self.floor) & (self.table.priority < priority))
            gives = _gpus(self.table, self.replicas, self.wants) - _gpus(self.table, self.floor, self.wants)
            self._kept[priority] = lower, int(gives[lower].sum())
        return self._kept[priority]

    def _extra(self, row: int, need: int) -> int:
        """GPUs that it gives and runs on: as few replicas as are enough, down to its least."""
        if self.given.whole:
            return 0
        table, have = self.table, int(self.replicas[row])
        low = max(int(table.min[row]), int(self.floor[row]))
        legal = [n for n in table.sizes.get(row, range(low, have)) if low <= n < have]
        unit = int(table.unit[row])
        to = max((n for n in legal if (have - n) * unit >= need), default=min(legal, default=have))
        self.replicas[row] = to
        return (have - to) * unit

    def _start(self, row: int, need: int) -> int:  # noqa: ARG002
        """GPUs that it gives by not starting."""
        return 0 if self.table.have[row] else self._none(row)

    def _stop(self, row: int, need: int) -> int:  # noqa: ARG002
        """GPUs that it gives by being stopped, where it may be."""
        return self._none(row)

    def _none(self, row: int) -> int:
        if self.floor[row]:
            return 0
        gives = int(_gpus(self.table, self.replicas, self.wants)[row])
        self.replicas[row] = 0
        return gives

    def _give_back(self, row: int, before: int, spare: int) -> int:
        """GPUs that it takes back of what turns out not to be needed: as many as `spare` are enough for."""
        table, now = self.table, int(self.replicas[row])
        fixed = 0 if now else int(table.fixed[row])
        least = before if self.given.whole else int(table.min[row])
        legal = [
            before,
            *(n for n in table.sizes.get(row, range(least, before)) if now < n < before and n >= least),
        ]
        cost = {n: (n - now) * int(table.unit[row]) + fixed for n in legal if n > now}
        to = max((n for n, gpus in cost.items() if gpus <= spare), default=now)
        self.replicas[row] = to
        return cost.get(to, 0)

    def shares(self) -> Grants:
        if not self.changed:
            return self.given
        return replace(self.given, replicas=self.replicas, details=self.wants, why=self.why)
