"""What both halves of `defragment` go by: how long a job still runs, what a change costs it, how jobs are packed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from muster.core.progress.runtime import expected_end
from muster.points import Profile
from muster.types import Job, SharingSnapshot
from muster_plugins.pack import Pack

PACKED = Profile(scores=((Pack(), 1.0),))
"""How jobs are put on nodes here: few of them, the fullest that take them."""


@dataclass(frozen=True, slots=True)
class Terms:
    """A snapshot, and of the plugin's parameters: horizon, cost (s); most, jobs moved at a time; rack, a label."""

    snapshot: SharingSnapshot
    horizon: float
    cost: float
    most: int
    rack: str

    def left(self, job: Job) -> float:
        """Seconds until it is expected to end as it runs now, infinite where nobody knows."""
        snapshot, table = self.snapshot, self.snapshot.table
        row = table.row.get(job.key)
        if row is not None and not math.isnan(table.remaining[row]):
            speed = float(table.curves[table.curve[row], int(table.have[row])])
            return float(table.remaining[row]) / speed if speed > 0.0 else math.inf
        end = expected_end(job, snapshot.now)
        return math.inf if end is None else end - snapshot.now

    def cost_of(self, job: Job) -> float:
        """Seconds that a change costs it: measured, else assumed."""
        return job.facts.last_cost or self.cost
