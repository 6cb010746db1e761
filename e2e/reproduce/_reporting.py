"""Policies that learn a job's length from its own reports: nothing before it has run for AFTER, of some jobs never.

The lengths that a workload declares are the truth here; a Share is shown them late, in part and wrong, as a live
cluster's policies are by the Estimate `reported`. Speeds are told as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from muster.points import Profile, Share
from muster.sim.workload import Workload
from muster.types import FloatArray, Grants, SharingSnapshot, Table

AFTER = 300.0
"""s of service after which a job that reports has told how much it has left."""
WRONG = 2.0
"""By what a wrong report is off, up or down."""


@dataclass(frozen=True)
class Reporting:
    """A Share that is shown lengths as reported. factors: told length / length, by name; nan: never told."""

    inner: Share
    factors: Mapping[str, float]

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """As the inner one, on a table with what is known by now."""
        return self.inner.share(snapshot.with_table(self._seen(snapshot.table)))

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next running job tells its length."""
        table = snapshot.table
        missing = AFTER - table.executed
        soon = missing[(table.have > 0) & (missing > 0.0)]
        return snapshot.now + float(soon.min()) if len(soon) else None

    def _seen(self, table: Table) -> Table:
        seen = Table()
        for column in Table.__slots__:
            if hasattr(table, column):  # the fluid engine has no speeds by configuration
                setattr(seen, column, getattr(table, column))
        seen.remaining = np.where(table.executed >= AFTER, table.remaining * self._factors(table), math.nan)
        return seen

    def _factors(self, table: Table) -> FloatArray:
        return np.array([self.factors[key.name] for key in table.keys], dtype=np.float64)


def reporting(profile: Profile, workload: Workload, part: float, wrong: float, seed: int) -> Profile:
    """The profile with lengths as reported. part: of the jobs, that report; wrong: of those, off by WRONG."""
    rng = np.random.default_rng(seed)
    count = len(workload.submissions)
    off = np.where(rng.random(count) < 0.5, WRONG, 1.0 / WRONG)
    told = np.where(rng.random(count) < wrong, off, 1.0)
    factors = np.where(rng.random(count) < part, told, math.nan).tolist()
    names = [job.name for job in workload.submissions]
    first, *rest = profile.shares
    if not isinstance(first, Share):
        raise TypeError(
            f"profile {profile.name}: expected a Share first in its shares; found {type(first).__name__}"
        )
    shown = Reporting(first, dict(zip(names, factors, strict=True)))
    return replace(profile, shares=(shown, *rest), named=(*profile.named, ("reporting", shown)))
