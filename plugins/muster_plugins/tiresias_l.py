"""Share `tiresias-l`: two queues by attained service, all or nothing (papers/afs-coddl, section 5.1; Tiresias-L).

A job is in the first queue until its present run has used `threshold` GPU-seconds, then in the second. A job that is
preempted keeps its queue until it runs again; then its service starts at 0 in the first queue (as in the AFS
authors' simulator; Tiresias itself counts over all runs and promotes starving jobs). Both queues are in the order of
the first start (never started: last), then of submission. Each job gets what it asked for or nothing, and what
doesn't fit is skipped. `size: most` (profile `tiresias-l-max`, Fig. 6) grants the model's most GPUs.

Besides at every event, queues are looked at on a timer of each run: at ceil(start + (threshold + g - 1) / g) s for a
job on g GPUs, and again and again after as long, since it may have been ahead of nobody the first time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.policylib import greedy
from muster.types import Grants, SharingSnapshot


@dataclass(frozen=True, slots=True)
class TiresiasL:
    """threshold: GPU-seconds of the present run after which a job is in the second queue (50 GPU-hours).
    size: "request" or "most"."""

    RULE: ClassVar[str] = "those with little service so far get what they asked for"

    threshold: float = 180_000.0
    size: str = "request"

    def __post_init__(self) -> None:
        greedy.check_size(self.size)
        if self.threshold <= 0.0:
            raise ValueError(f"threshold: must be above 0; found {self.threshold}")

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """The size or nothing: the first queue, then the second."""
        table = snapshot.table
        size = greedy.sized(table, self.size)
        second = table.run_gpu_seconds >= self.threshold
        order = np.lexsort((table.submitted, table.first_start, second))
        return Grants(greedy.in_order(table, order, size))

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """The next time at which a running job's timer goes off (s)."""
        table = snapshot.table
        running = np.flatnonzero(table.have)
        if not len(running):
            return None
        gpus = greedy.cost(table, table.have)[running]
        period = (self.threshold + gpus - 1) / gpus
        first = np.ceil(table.run_start[running] + period)
        again = np.ceil(period)
        passed = np.maximum(np.floor((snapshot.now - first) / again) + 1.0, 0.0)
        wake = float((first + passed * again).min())
        return wake if math.isfinite(wake) else None
