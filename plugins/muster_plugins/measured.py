"""Estimate `measured`: speeds as they were measured, too high at first (papers/afs-coddl, section 4.5).

"Overestimate first and re-adjust later": a job of which nothing is measured is believed to grow linearly, but not
beyond its fair part M/n of the GPUs. Once it has run, it is believed as measured at the sizes that it had (a speed
that was not measured is interpolated in the time of an iteration), and linear from the largest measured one on.

CoDDL makes a new job run at "all allocatable units that are smaller than the given share" in turn, since shrinking
costs milliseconds there: `sweep`, behind the policy, does so where a job's GPUs change in place. Without it sizes are
measured as shares change, and those between are interpolated until then, on a cluster (`reported`) too.

Choices: the fair part is rounded down, at least 1, and bounds only jobs of which nothing is measured; and it bounds
what is *believed*: beyond it such a job gains nothing, so it comes after everybody who gains, but GPUs that no other
job can use are not left idle for it ("we limit the initial share", where Algorithm 1 hands out every GPU). A cycle is
asked for `settle` seconds after a start or a change, when there is something to read. Lengths are what the owner
declares (AFS-P, for which the paper has this, needs none).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from muster.core.progress.curves import by_count, interpolated
from muster.core.progress.estimate import fair_replicas, left_of
from muster.points import Estimation
from muster.types import Job, SharingSnapshot, Snapshot, elastic_role


@dataclass(frozen=True, slots=True)
class Measured:
    """settle: s after a start or a change until the speeds up to its number of replicas are measured."""

    settle: float = 60.0

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:
        """Relative speeds at 0, 1, 2 ... replicas of the elastic role."""
        role = elastic_role(job)
        remaining = left_of(job, snapshot.now)
        points = by_count(job.samples, role.name)
        if not points:
            fair = max(1, fair_replicas(job, snapshot))
            return Estimation(remaining, tuple(float(n) for n in range(min(fair, role.max) + 1)))
        speeds = list(interpolated(tuple(sorted(points.items()))))
        each = speeds[-1] / (len(speeds) - 1)
        speeds += [each * n for n in range(len(speeds), role.max + 1)]
        return Estimation(remaining, tuple(speeds))

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next job that was started or changed is measured."""
        table = snapshot.table
        running = np.flatnonzero(table.have)
        changed = np.maximum(table.run_start[running], table.last_resize[running])
        coming = changed[np.isfinite(changed) & (changed + self.settle > snapshot.now)] + self.settle
        wake = float(coming.min(initial=math.inf))
        return wake if math.isfinite(wake) else None
