"""Marginal gains that fall: the upper concave hull of each job's speed curve, and GPUs given along the hulls.

Measured curves are not concave (the time of an iteration, not the speed, is interpolated; a second node costs more
than a third GPU). A rule that looks at the next GPU alone stops where one gains little although four gain much. On
the hull from 0 GPUs each step gains less per GPU than the one before, so taking the best step again and again is a
best division for any sum of weighted speeds, up to the last step that doesn't fit (Gross 1956; Fox 1966).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from muster.cached import MIB, cached
from muster.policylib import greedy
from muster.types import FloatArray, IntArray, Table

EVEN = 1e-12
"""Relative: a count so near to the hull is on it. A linear curve then has a step for each count, not one in all."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one kind of job, the best first: replicas after each, GPUs that it takes, and the speed (relative
    to one replica) that it gains per GPU, which falls."""

    count: tuple[int, ...]
    price: tuple[int, ...]
    slope: tuple[float, ...]

    @property
    def top(self) -> float:
        """The speed after the last step, relative to one replica; 0 where there is none."""
        return sum(price * slope for price, slope in zip(self.price, self.slope, strict=True))


@dataclass(frozen=True, slots=True)
class Ladders:
    """kinds: the different Steps of a table's jobs; kind: (J,) the one of each job."""

    kinds: tuple[Steps, ...]
    kind: IntArray

    @property
    def top(self) -> FloatArray:
        """(J,) each job's speed at its fastest, relative to one replica; 0 where no number of GPUs gets it on."""
        return np.array([steps.top for steps in self.kinds], dtype=np.float64)[self.kind]


def ladders(table: Table) -> Ladders:
    """The steps of all jobs, from 0 GPUs over their least to their most, allowed counts only."""
    columns: tuple[IntArray, ...] = (table.curve, table.max)
    if not greedy.plain(table):
        own = np.zeros(len(table), dtype=np.int64)  # who names its sizes is of a kind of its own
        named = sorted(table.sizes)
        own[named] = np.arange(1, len(named) + 1)
        columns = (*columns, table.min, table.unit, table.fixed, own)
    kind = np.zeros(len(table), dtype=np.int64)
    first = kind[:0]
    for column in columns:  # renumbered each time, so that the product of two never overflows
        _, first, kind = np.unique(
            kind * (int(column.max(initial=0)) + 1) + column, return_index=True, return_inverse=True
        )
    kinds = []
    for row in first.tolist():
        counts = greedy.steps(table, row)
        speeds = table.curves[table.curve[row], : counts[-1] + 1]
        kinds.append(_steps(speeds.tobytes(), counts, int(table.unit[row]), int(table.fixed[row])))
    return Ladders(tuple(kinds), kind)


@cached("hulls", 32 * MIB)
def _steps(speeds: bytes, counts: Sequence[int], unit: int, fixed: int) -> Steps:
    """speeds: float64 at 0, 1 ... replicas, as bytes: what is remembered by value needs no array twice."""
    curve = np.frombuffer(speeds, dtype=np.float64)
    at = np.minimum(np.array(counts, dtype=np.int64), len(curve) - 1)
    return hull(counts, curve[at].tolist(), unit, fixed)


def hull(counts: Sequence[int], speeds: Sequence[float], unit: int = 1, fixed: int = 0) -> Steps:
    """The steps along the upper concave hull of (0 GPUs, speed 0) and (GPUs of a count, its speed).

    unit: GPUs of a replica; fixed: those that the job takes besides as soon as it runs. Counts beyond the fastest one
    are no step.
    """
    corners: list[tuple[int, int, float]] = [(0, 0, 0.0)]
    for count, speed in zip(counts, speeds, strict=True):
        gpus = max(1, count * unit + fixed)
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) < _slope(
            corners[-2], (0, gpus, speed)
        ) * (1.0 - EVEN):
            corners.pop()
        corners.append((count, gpus, speed))
    while len(corners) > 1 and _slope(corners[-2], corners[-1]) <= 0.0:
        corners.pop()
    pairs = list(pairwise(corners))
    return Steps(
        tuple(after[0] for _, after in pairs),
        tuple(after[1] - before[1] for before, after in pairs),
        tuple(_slope(before, after) for before, after in pairs),
    )


def _slope(before: tuple[int, int, float], after: tuple[int, int, float]) -> float:
    return (after[2] - before[2]) / (after[1] - before[1])


def climb(table: Table, steps: Ladders, weight: FloatArray, hold: float = 1.0) -> IntArray:
    """(J,) replicas: again and again the step with the largest weight x gained speed / GPUs, while GPUs are left.

    steps: of the table's jobs. weight: (J,) above 0. hold: a step counts so many times more as far as the job holds
    its GPUs already. A step that does not fit what is left is passed over, and its job takes no more. Ties go to the
    earlier row.
    O(J log J) for the first steps, and O(log J) for each that is taken.
    """
    granted = np.zeros(len(table), dtype=np.int64)
    if not len(table):
        return granted
    starts = np.array([s.slope[0] if s.slope else 0.0 for s in steps.kinds])
    prices = np.array([s.price[0] if s.price else 1 for s in steps.kinds], dtype=np.int64)
    held = np.where(table.have > 0, greedy.cost(table, table.have), 0)
    first = weight * starts[steps.kind] * (1.0 + (hold - 1.0) * np.minimum(held / prices[steps.kind], 1.0))
    order = np.argsort(-first, kind="stable")
    coming = zip((-first[order]).tolist(), order.tolist(), strict=True)
    heap: list[tuple[float, int, int, int]] = []  # -worth, row, step, GPUs before it

    def arrive() -> None:
        """The next job's first step: those behind it are worth no more."""
        worth, row = next(coming, (0.0, 0))
        if worth < 0.0:
            heapq.heappush(heap, (worth, row, 0, 0))

    arrive()
    left = table.gpus
    while heap and left > 0:
        _, row, step, below = heapq.heappop(heap)
        if not step:
            arrive()
        of = steps.kinds[steps.kind[row]]
        price = of.price[step]
        if price > left:
            continue
        granted[row] = of.count[step]
        left -= price
        if step + 1 < len(of.slope):
            step, below = step + 1, below + price
            keeps = min(max((int(held[row]) - below) / of.price[step], 0.0), 1.0)
            worth = float(weight[row]) * of.slope[step] * (1.0 + (hold - 1.0) * keeps)
            heapq.heappush(heap, (-worth, row, step, below))
    return granted
