"""Share `optimus`: the next GPU to where it takes most off a job's remaining time (papers/afs-coddl, section 5.1).

AFS's baseline after Optimus (EuroSys 2018): every job gets a first GPU in the order of submission, then GPU by GPU
the job whose remaining time falls most in absolute terms, as long as any falls. The paper assumes that Optimus'
estimates of length and speed are right, and so do we: they are the profile's Estimate.

Choices: the first step of a job is the least that it may have; a job whose next step gains nothing takes no more
even where a later one would (curves are not concave); a job of unknown length gains nothing beyond its first step;
a step of several GPUs counts by its gain per GPU. Ties go to the earlier submission. A job whose declared length has
run out is taken to have as much left as it is over, and gets more again as that grows: with nothing left it would
gain nothing by GPUs that nobody else wants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.core.progress.estimate import late_by
from muster.policylib import greedy
from muster.types import FloatArray, Grants, IntArray, SharingSnapshot


@dataclass(frozen=True, slots=True)
class Optimus:
    """No parameters."""

    RULE: ClassVar[str] = "GPUs go where they save the most time"

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """The least for each in order, then steps by absolute drop of remaining time (s per GPU)."""
        table = snapshot.table
        granted = greedy.in_order(table, np.arange(len(table)), table.min)
        left = table.gpus - int(greedy.cost(table, granted)[granted > 0].sum())
        if left <= 0:
            return Grants(granted)
        rows = np.flatnonzero(granted)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = _left(snapshot, rows)[:, None] / table.curves[table.curve[rows]]
        at = {row: n for n, row in enumerate(rows.tolist())}
        times = np.where(np.isnan(times), 0.0, times).tolist()

        def gain(row: int, here: int, following: int) -> float:
            time: list[float] = times[at[row]]
            return time[here] - time[following]

        return Grants(greedy.by_gain(table, granted, left, gain, rows))


def _left(snapshot: SharingSnapshot, rows: IntArray) -> FloatArray:
    """Seconds that these rows have left, of late ones by which they are late."""
    table = snapshot.table
    left: FloatArray = table.remaining[rows].copy()
    for at in np.flatnonzero((left <= 0.0) & (table.have[rows] > 0)).tolist():
        left[at] = late_by(snapshot.jobs[table.keys[rows[at]]], snapshot.now)
    return left
