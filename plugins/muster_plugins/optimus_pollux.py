"""Optimus as Pollux's artifact compares with it (Qiao et al., OSDI'21, §5; artifact, simulator/optimus.py).

Optimus (Peng et al., EuroSys'18, §4.1): one GPU for each job, in order of submission, while there are any; then
again and again one more for the job whose remaining time falls most by it,

    remaining iterations x (T(n) - T(n+1)),        T(n): seconds of an iteration on n GPUs, packed,

until no GPU is left or no job gains. The artifact knows T from the measured table and the remaining iterations
from the measured training run; here they are what the owner declares (`muster.dev/speed`, `remaining-work`) and
what the job reports (step and total). A job that declares and reports nothing gets its one GPU and no more.

A job whose number changes is placed again as a whole, fewest GPUs first, the emptiest node first (profile: Score
`emptiest`); all others stay where they are.

Deviation: none known; average and every job's completion equal the artifact's (e2e/reproduce/pollux.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.cached import MIB, cached
from muster.core.progress.curves import interpolated
from muster.points import Estimation
from muster.policylib.greedy import by_gain, in_order
from muster.types import Grant, Grants, Job, SharingSnapshot, Snapshot

RESTARTED = Grant(restart=True)


@dataclass(frozen=True)
class OptimusPollux:
    """Greatest drop of remaining time first; and the estimate that it goes by."""

    SIMULATION_ONLY: ClassVar[str] = "it repeats a simulator's figures; take optimus"

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:  # noqa: ARG002
        """The declared length, as much of it as the reported iterations leave; the declared speeds."""
        work, report = job.remaining_work, job.report
        if work is None:
            return Estimation(math.nan, _speeds(job.speed))
        if report is not None and report.total > 0.0:
            work *= max(0.0, report.total - report.step) / report.total
        return Estimation(work, _speeds(job.speed))

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """(J,) replicas, and the order of placing."""
        table = snapshot.table
        remaining = np.where(np.isnan(table.remaining), 0.0, table.remaining).tolist()
        times = np.divide(
            1.0, table.curves, out=np.zeros_like(table.curves), where=table.curves > 0.0
        ).tolist()
        time = [times[curve] for curve in table.curve.tolist()]

        def drop(row: int, count: int, more: int) -> float:
            before, after = time[row][count], time[row][more]
            return float(remaining[row] * (before - after)) if before and after else 0.0

        start = in_order(table, np.argsort(table.min, kind="stable"), table.min)
        left = table.gpus - int((start * table.unit).sum() + table.fixed[start > 0].sum())
        granted = by_gain(table, start, left, drop, np.flatnonzero(start))
        first = "every GPU goes to a job that came before it"
        why = dict.fromkeys(np.flatnonzero(granted == 0).tolist(), first)
        order = tuple(np.argsort(granted, kind="stable").tolist())
        return Grants(granted, dict.fromkeys(order, RESTARTED), why, order=order, settled=True)


@cached("measured speeds", 8 * MIB)
def _speeds(points: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
    return interpolated(points)
