"""Policies that learn lengths from jobs that have ended: the Gittins index of jobs of as many GPUs (issue 16).

What a job reports after a while counts first (`_reporting`); of one that tells nothing a Share is shown the Gittins
index of its attained service: the least over D of E[min(X - a, D) | X > a] / P(X - a <= D | X > a), where X is how
much jobs took that asked for as many GPUs and a what this one has had, in s on one replica (Gittins 1979; for
trainings: Gu et al., Tiresias, NSDI'19). X follows Kaplan and Meier's estimate: jobs that still run count as longer
than what they have had. Half of a job's weight is gone when HALF_LIFE more have ended.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from e2e.reproduce._reporting import AFTER, reporting
from muster.points import Profile, Share
from muster.sim.workload import Workload
from muster.types import FloatArray, Grants, SharingSnapshot, Table

HALF_LIFE, KEPT, FEW = 200.0, 1000, 5
"""Jobs after which a length counts half; lengths that are kept of each number of GPUs; fewer tell nothing."""
GROWN, FLOOR = 1.5, 60.0
"""An index is worked out again when attained service has grown so many times, and by so many s at least."""


def index(lengths: FloatArray, weights: FloatArray, over: FloatArray, attained: FloatArray) -> FloatArray:
    """(A,) s: the Gittins index at each attained service; nan beyond the longest that ended.

    lengths, weights, over: (N,) s on one replica, weight, and whether the job has ended (1) or still runs (0).
    """
    order = np.lexsort((-over, lengths))
    lengths, weights, over = lengths[order], weights[order], over[order]
    at_risk = np.cumsum(weights[::-1])[::-1]
    survival = np.cumprod(1.0 - np.where(over > 0, weights / at_risk, 0.0))  # behind each length
    before = np.concatenate(([1.0], survival[:-1]))
    area = np.cumsum(before * np.diff(lengths, prepend=0.0))  # integral of the survival up to each length
    left = np.searchsorted(lengths, attained, "right")
    alive = np.where(left > 0, survival[np.maximum(left - 1, 0)], 1.0)
    start = np.where(left > 0, lengths[np.maximum(left - 1, 0)], 0.0)
    so_far = np.where(left > 0, area[np.maximum(left - 1, 0)], 0.0) + alive * (attained - start)
    spent = area[None, :] - so_far[:, None]
    ends = alive[:, None] - survival[None, :]
    ahead = (lengths[None, :] > attained[:, None]) & (ends > 1e-12)
    ratio = np.where(ahead, spent / np.where(ahead, ends, 1.0), math.inf).min(axis=1, initial=math.inf)
    return np.where(np.isfinite(ratio), ratio, math.nan)


@dataclass
class Learning:
    """A Share that is shown what jobs tell (factors, as in `_reporting`), else the index of those that ended.

    It remembers from one event to the next, so it is good for one simulation.
    """

    inner: Share
    factors: dict[str, float]
    ended: dict[int, deque[tuple[int, float]]] = field(default_factory=dict)  # number and length by GPUs
    there: dict[str, tuple[int, float]] = field(default_factory=dict)  # GPUs and length, told at the end
    known: dict[str, tuple[float, float]] = field(default_factory=dict)  # attained service, index
    count: int = 0

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """As the inner one, on a table with what is known by now."""
        table = snapshot.table
        self._learn(table)
        seen = Table()
        for column in Table.__slots__:
            if hasattr(table, column):  # the fluid engine has no speeds by configuration
                setattr(seen, column, getattr(table, column))
        names = [key.name for key in table.keys]
        told = table.remaining * np.array([self.factors[name] for name in names])
        guess = np.array([self.known[name][1] for name in names])
        seen.remaining = np.where((table.executed >= AFTER) & ~np.isnan(told), told, guess)
        return self.inner.share(snapshot.with_table(seen))

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When an index is to be worked out again, or a job tells its length."""
        table = snapshot.table
        speed = table.curves[table.curve, table.have]
        due = np.array([_due(self.known.get(key.name, (0.0, 0.0))[0]) for key in table.keys])
        with np.errstate(divide="ignore", invalid="ignore"):
            waits = (due - table.progress) / speed
        waits = np.concatenate((waits, (AFTER - table.executed)[table.have > 0]))
        soon = waits[np.isfinite(waits) & (waits > 0.0)]
        return snapshot.now + max(1.0, float(soon.min())) if len(soon) else None

    def _learn(self, table: Table) -> None:
        """Who has ended since the last event, and the indices that are due."""
        rows = {key.name: row for row, key in enumerate(table.keys)}
        for name in [name for name in self.there if name not in rows]:
            gpus, length = self.there.pop(name)
            self.known.pop(name, None)
            self.count += 1
            self.ended.setdefault(gpus, deque(maxlen=KEPT)).append((self.count, length))
        arrived = rows.keys() - self.there.keys()
        total = (table.remaining + table.progress).tolist()
        asked, done = table.request.tolist(), table.progress
        for name in arrived:
            self.there[name] = asked[rows[name]], total[rows[name]]
        stale = [r for n, r in rows.items() if arrived or done[r] >= _due(self.known[n][0])]
        for gpus in {asked[row] for row in stale}:
            mine = np.array([row for row in stale if asked[row] == gpus])
            running = np.array(
                [row for row in rows.values() if asked[row] == gpus and done[row] > 0.0], dtype=int
            )
            found = self._index(gpus, done[running], done[mine])
            for row, value in zip(mine.tolist(), found.tolist(), strict=True):
                self.known[table.keys[row].name] = float(done[row]), value

    def _index(self, gpus: int, running: FloatArray, attained: FloatArray) -> FloatArray:
        """nan where too few have ended: the policy then does as it does with a length that nobody knows."""
        past = self.ended.get(gpus, ())
        if len(past) < FEW:
            return np.full(len(attained), math.nan)
        numbers, lengths = np.array(past, dtype=float).T
        weights = 0.5 ** ((self.count - numbers) / HALF_LIFE)
        return index(
            np.concatenate((lengths, running)),
            np.concatenate((weights, np.ones(len(running)))),
            np.concatenate((np.ones(len(lengths)), np.zeros(len(running)))),
            attained,
        )


def _due(attained: float) -> float:
    return max(GROWN * attained, attained + FLOOR)


def learning(profile: Profile, workload: Workload, part: float, wrong: float, seed: int) -> Profile:
    """As `_reporting.reporting`, and what nobody tells is learned of the jobs that ended."""
    told = reporting(profile, workload, part, wrong, seed).shares[0]
    first, *rest = profile.shares
    shown = Learning(first, dict(told.factors))  # type: ignore[arg-type, union-attr]
    return replace(profile, shares=(shown, *rest), named=(*profile.named, ("learning", shown)))
