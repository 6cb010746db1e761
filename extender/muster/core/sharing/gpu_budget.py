"""GPUs that shares use while a step changes them: what each job's replicas take, and how many nobody is granted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from muster.types import Grant, Grants, IntArray, Table


def gpus_used(table: Table, replicas: IntArray, details: Mapping[int, Grant]) -> IntArray:
    """(J,) GPUs of so many replicas of each; none of its own for a job beside another."""
    used: IntArray = replicas * table.unit + np.where(replicas > 0, table.fixed, 0)
    used[[row for row, grant in details.items() if grant.beside is not None]] = 0
    return used


class GpuBudget:
    """Shares while they change. replicas: (J,), details and why by row, as in Grants; free: GPUs that nobody is
    granted (below 0: too few)."""

    def __init__(self, shares: Grants, table: Table) -> None:
        self.given, self.table = shares, table
        self.replicas = shares.replicas.copy()
        self.details, self.why = dict(shares.details), dict(shares.why)
        self.free = table.gpus - int(gpus_used(table, self.replicas, self.details).sum())

    def gpus(self, row: int, count: int) -> int:
        """That so many replicas use, as the row is granted now: none of their own beside another job."""
        grant = self.details.get(row)
        if not count or (grant is not None and grant.beside is not None):
            return 0
        return int(count * self.table.unit[row] + self.table.fixed[row])

    def put(self, row: int, count: int) -> None:
        """The row is granted so many replicas, from the GPUs that are free."""
        self.free += self.gpus(row, int(self.replicas[row])) - self.gpus(row, count)
        self.replicas[row] = count

    def sizes(self, row: int, low: int, high: int) -> list[int]:
        """Legal counts above `low` and up to `high`, the largest first."""
        least, most = int(self.table.min[row]), int(self.table.max[row])
        legal = self.table.sizes.get(row, range(least, most + 1))
        return sorted((n for n in legal if max(low, least - 1) < n <= min(high, most)), reverse=True)

    def shares(self) -> Grants:
        """What is granted now, whole or not as before."""
        return replace(self.given, replicas=self.replicas, details=self.details, why=self.why)
