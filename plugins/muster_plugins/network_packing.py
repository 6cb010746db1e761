"""Share `network-packing`: no two jobs share a node's network (papers/afs-coddl, section 4.4, appendix E).

Stands behind a policy in a chain. Each job's GPUs become 0, a power of two below a node's GPUs, or a multiple of a
node's: then first-fit-decreasing places every job on the fewest nodes, at most one job of a node reaching beyond it
(proposition 1). Of all such shares it takes those nearest to the plan (sum of differences), then those with which
most jobs keep a GPU, then those that keep most GPUs, then the more GPUs used, then earlier jobs first. No job falls
below the largest legal share within its plan, and where the plan uses all GPUs, so do the packed shares (proposition
2, of jobs that may have any number: with a most of each there may be no legal shares that use them all). Each job is
asked to stand on its fewest nodes, and a smaller one where it finds no place there is legal, too (any other would be
packed again in the next cycle); migration is the placement's last resort.

The choice is a knapsack: a job's legal shares from its floor up are its items. It is solved exactly by dynamic
programming over the GPUs left above the floors; where that table were larger than `table` numbers, nearest first by
gain per GPU (the papers' clusters are far below).

Choices: on nodes whose GPUs are not a power of two, powers of two that divide them. A job whose own sizes hold no
legal share, as a rigid one of three, has its least one for legal, since it would wait for ever: where it stands, two
jobs may share a network. On nodes of several sizes, the largest counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.policylib import greedy
from muster.types import Grant, Grants, IntArray, SharingSnapshot, Table

Item = tuple[int, int]
"""Replicas, GPUs."""


@dataclass(frozen=True, slots=True)
class NetworkPacking:
    """table: numbers (jobs x GPUs above the floors) up to which the best shares are found exactly."""

    table: int = 4_000_000

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        """The legal shares nearest to `shares`, and at most so many nodes for each job as it needs."""
        table = snapshot.table
        if not table.per_node:  # no node has a GPU
            return shares
        plan = shares.replicas
        ladder = [self._legal(table, row) for row in range(len(table))]
        packed = self._packed(table, plan, ladder)
        grants = dict(shares.details)
        for row in np.flatnonzero(packed).tolist():
            gpus = int(packed[row] * table.unit[row])
            nodes = -(-gpus // table.per_node)
            before = grants.get(row, Grant())
            grants[row] = Grant(before.roles, before.product, nodes, before.batch, before.beside)
        parts = {row: tuple([count for count, _ in ladder[row] if count]) for row in grants}
        return Grants(packed, grants, shares.why, until=shares.until, parts=parts)

    def _packed(self, table: Table, plan: IntArray, ladder: Sequence[Sequence[Item]]) -> IntArray:
        wished = (plan * table.unit).tolist()
        floors = [
            max((item for item in ladder[r] if item[1] <= wished[r]), key=lambda i: i[1])
            for r in range(len(table))
        ]
        have = (table.have * table.unit).tolist()
        total = int(table.fixed[plan > 0].sum())
        used = sum(gpus for _, gpus in floors) + total
        exact = sum(wished) + total >= table.gpus
        budget = table.gpus - used
        packed = np.array([replicas for replicas, _ in floors], dtype=np.int64)
        options: list[
            tuple[int, list[tuple[int, int, int]]]
        ] = []  # row, (GPUs above the floor, value, replicas)
        for row, (_, floor) in enumerate(floors):
            if not wished[row] and table.fixed[row]:
                continue  # its other roles would have to start too
            worth = _worth(floor, wished[row], have[row])
            above = [
                (gpus - floor, _worth(gpus, wished[row], have[row]) - worth, replicas)
                for replicas, gpus in ladder[row]
                if 0 < gpus - floor <= budget
            ]
            if above:
                options.append((row, above))
        if budget > 0 and options:
            small = len(options) * (budget + 1) <= self.table
            chosen = _best(options, budget, exact) if small else _quick(options, budget)
            for row, replicas in chosen.items():
                packed[row] = replicas
        return packed

    def _legal(self, table: Table, row: int) -> list[Item]:
        """A job's legal shares, ascending, with 0; the least of its own where none is."""
        unit, node = int(table.unit[row]), table.per_node
        steps = greedy.steps(table, row)
        counts = [count for count in steps if legal(count * unit, node)] or list(steps[:1])
        return [(0, 0)] + [(count, count * unit) for count in counts]


def legal(gpus: int, node: int) -> bool:
    """Whether a share needs no network sharing: 0, a power of two that divides a node, or a multiple of a node."""
    return gpus % node == 0 or (gpus < node and gpus & (gpus - 1) == 0 and node % gpus == 0)


NEAR, KEEP = 1 << 40, 1 << 24


def _worth(gpus: int, wished: int, have: int) -> int:
    """A share's value: near to the plan first, then that the job keeps a GPU, then GPUs kept."""
    kept = min(gpus, have)
    return -abs(gpus - wished) * NEAR + (KEEP if kept else 0) + kept


def _best(options: list[tuple[int, list[tuple[int, int, int]]]], budget: int, exact: bool) -> dict[int, int]:
    """Replicas by row: at most one item of each row, at most (exact: as near as can be to) `budget` GPUs, most value.

    Rows from the last to the first, so that of equal choices the one with most for the earliest row is kept.
    """
    low = -(1 << 62)
    best = np.full(budget + 1, low, dtype=np.int64)
    best[0] = 0
    picks = np.zeros((len(options), budget + 1), dtype=np.int16)
    for number in range(len(options) - 1, -1, -1):
        base = best.copy()
        for item, (gpus, value, _) in enumerate(options[number][1], start=1):
            before = base[: budget + 1 - gpus]
            better = (before > low) & (before + value >= best[gpus:])
            best[gpus:][better] = before[better] + value
            picks[number, gpus:][better] = item
    reached = np.flatnonzero(best > low)
    at = int(reached[-1]) if exact else int(reached[len(reached) - 1 - np.argmax(best[reached][::-1])])
    chosen: dict[int, int] = {}
    for number, (row, items) in enumerate(options):
        pick = int(picks[number, at])
        if pick:
            gpus, _, replicas = items[pick - 1]
            chosen[row] = replicas
            at -= gpus
    return chosen


def _quick(options: list[tuple[int, list[tuple[int, int, int]]]], budget: int) -> dict[int, int]:
    """The same without the guarantee: first steps by value per GPU, ties by row, then whatever still fits."""
    steps = sorted((-items[0][1] / items[0][0], row, items[0]) for row, items in options)
    chosen: dict[int, int] = {}
    for _, row, (gpus, _, replicas) in steps:
        if gpus <= budget:
            chosen[row] = replicas
            budget -= gpus
    return chosen
