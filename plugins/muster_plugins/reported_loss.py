"""The losses that `reported` keeps of a job, and the iteration at which their curve is at its target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.cached import MIB, cached
from muster.core.progress.fits import fit_convergence
from muster.types import Job, Report

LOSSES = 64
RUNNING = 3
FARTHEST = 100.0
"""Times the iterations done, beyond which the end of a loss curve is unknown: it may never come."""
Losses = tuple[tuple[float, float], ...]
"""(iterations, loss), by iterations."""


def end(job: Job, losses: Losses, ceiling: float) -> float:
    """The iteration at which the loss is where training stops, nan where the curve does not tell. losses: as kept."""
    report = job.report
    if report is None or report.target is None:
        return math.nan
    if report.loss is not None and report.step > 0.0 and (not losses or losses[-1][0] < report.step):
        losses = (*losses, (report.step, report.loss))
    if _reached(losses, report.target):
        return 0.0
    return _end(losses, report.target, ceiling)


@dataclass(frozen=True, slots=True)
class Kept:
    """What `reported` remembers of a job. batch: samples of an iteration, 0 = not measured."""

    losses: Losses
    batch: float

    @classmethod
    def read(cls, plain: Mapping[str, object]) -> Kept:
        """As the plugin's memory has it."""
        found = plain.get("losses")
        points = found if isinstance(found, Sequence) else ()
        losses = [(number(p[0]), number(p[1])) for p in points if isinstance(p, Sequence) and len(p) == 2]
        return cls(tuple(losses), number(plain.get("batch")))


def thinned(losses: Losses, report: Report) -> Losses | None:
    """With the newest loss, None where it is not kept: the points are at least a 48th of their span apart."""
    if report.loss is None or report.step <= 0.0:
        return None
    if losses and report.step < losses[-1][0]:  # from a checkpoint: what came after it will come again
        losses = tuple(p for p in losses if p[0] < report.step)
    elif losses and (
        report.step == losses[-1][0]
        or (len(losses) >= 8 and report.step - losses[-1][0] < (losses[-1][0] - losses[0][0]) / 48.0)
    ):
        return None
    losses = (*losses, (report.step, report.loss))
    if len(losses) > LOSSES:
        losses = losses[-1:0:-2][::-1]
    return losses


def _sound(losses: Losses) -> list[tuple[float, float]]:
    """Without values that lie off the median of theirs and both neighbours' by more than half of it: one wrong report
    is to bend no curve. At the ends the two nearest count as neighbours."""
    if len(losses) < 4:
        return list(losses)
    values = [v for _, v in losses]
    last = len(values) - 1
    result = []
    for i, (step, value) in enumerate(losses):
        middle = min(max(i, 1), last - 1)
        usual = sorted(values[middle - 1 : middle + 2])[1]
        if abs(value - usual) <= 0.5 * abs(usual):
            result.append((step, value))
    return result


def _reached(losses: Losses, target: float) -> bool:
    """Whether the last RUNNING points are at the target, which lies below the first value or above it."""
    if len(losses) < RUNNING:
        return False
    rises = losses[0][1] < target
    return all((v >= target) if rises else (v <= target) for _, v in losses[-RUNNING:])


@cached("ends of training that reports", 8 * MIB)
def _end(losses: Losses, target: float, ceiling: float) -> float:
    """The iteration at which the curve through the points is at `target`; nan where there is no curve."""
    points = _sound(losses)
    if len(points) < 4:
        return math.nan
    rises = points[0][1] < target
    top = math.nan if not rises else (ceiling if target < ceiling else 100.0)
    fitted = fit_convergence([k for k, _ in points], [v for _, v in points], top, target)
    end = math.inf if fitted is None else fitted.step_at(target)
    return end if end <= FARTHEST * points[-1][0] else math.nan


def number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
