"""How far a job is, when it is expected to end, and how fast it would be with fewer or more replicas.

Each answer is a number, or None with the reason why it is not known: readers show that instead of a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from muster.core.bounds import HORIZON
from muster.core.progress.curves import alone, at_count
from muster.core.progress.runtime import duration, expected_end, least, left
from muster.points import Estimation
from muster.types import Job

UNDECLARED = "nobody says how long it runs (muster.dev/remaining-work, or a report with total=)"
NOT_RUNNING = "it does not run now"
FAR = "at its speed it would end in more than 100 years"
SIZES_SHOWN = 64
"""Sizes at which a curve is drawn; a job of 1,000 replicas has every 16th."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """progress: part of the work that is done, 0 to 1, None = unknown. end: Unix s, None where `unknown` says why."""

    progress: float | None = None
    end: float | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """Speed by replicas of the elastic role.

    unit: "samples/s" or "iterations/s" where anything was measured, else "times one replica".
    measured: (replicas, speed, nodes spanned); estimated: (replicas, speed) at allowed sizes, least first.
    """

    unit: str
    measured: tuple[tuple[int, float, int], ...] = ()
    estimated: tuple[tuple[int, float], ...] = ()


def outlook(job: Job, estimation: Estimation, now: float) -> Outlook:
    """What is known of one job at `now` (Unix s), by what its training reports, else by what is declared."""
    found = _outlook(job, estimation, now)
    if found.end is not None and not abs(found.end - now) <= HORIZON.most:
        return replace(found, end=None, unknown=FAR)
    return found


def _outlook(job: Job, estimation: Estimation, now: float) -> Outlook:
    progress = _progress(job, estimation, now)
    if not job.bound:
        return Outlook(progress, None, NOT_RUNNING)
    remaining = estimation.remaining
    speed = speed_at(estimation, _replicas(job))
    observed = job.report is not None or job.facts.progress.rate > 0.0
    if observed and math.isfinite(remaining) and speed > 0.0:
        return Outlook(progress, now + max(0.0, remaining) / speed)
    report = job.report
    if report is not None and report.total > 0.0 and report.speed > 0.0:
        return Outlook(progress, report.at + max(0.0, report.total - report.step) / report.speed)
    end = expected_end(job, now)
    return Outlook(progress, end, "" if end is not None else UNDECLARED)


def speed_at(estimation: Estimation, replicas: int) -> float:
    """Relative to one replica; beyond the last size that is estimated it stays what it is there."""
    return at_count(estimation.speeds, replicas)


def length(job: Job, estimation: Estimation, now: float) -> float | None:
    """Seconds that a job which starts (again) runs with its minimum, of what is believed to be left, else by
    `runtime.left`; None where nobody says how much."""
    speed = speed_at(estimation, least(job))
    if 0.0 < estimation.remaining < math.inf and speed > 0.0:
        return estimation.remaining / speed
    return left(job, now)


def curve(job: Job, estimation: Estimation) -> Curve:
    """Measured points, and the estimate at the sizes that the job may have, in the points' unit."""
    role = job.elastic
    if role is None:
        return Curve("times one replica")
    measured = sorted(
        (config.count(role.name) or config.replicas, speed, len(config.nodes))
        for config, speed in alone(job.samples)
        if math.isfinite(speed)
    )
    sizes = [n for n in role.sizes if role.min <= n <= role.max] or range(max(1, role.min), role.max + 1)
    step = max(1, -(-len(sizes) // SIZES_SHOWN))
    shown = sorted({*sizes[::step], *sizes[-1:], *(1,) * (role.min <= 1 <= role.max)})
    # Least squares through the origin: the estimate knows ratios, the points know the unit.
    known = [(speed_at(estimation, n), speed) for n, speed, _ in measured]
    weight = sum(relative * relative for relative, _ in known)
    scale = sum(relative * speed for relative, speed in known) / weight if weight > 0.0 else 1.0
    unit = "times one replica"
    if measured:
        unit = "samples/s" if job.report is not None and job.report.samples else "iterations/s"
    return Curve(unit, tuple(measured), tuple((n, scale * speed_at(estimation, n)) for n in shown))


def _replicas(job: Job) -> int:
    return job.elastic.bound if job.elastic is not None else job.bound


def _progress(job: Job, estimation: Estimation, now: float) -> float | None:
    report = job.report
    if report is not None and report.total > 0.0:
        return _part(report.step, report.total)
    done = job.facts.progress.at(now)
    if report is None and job.remaining_work is not None and done >= job.remaining_work > 0.0:
        return None  # it is late, and nobody knows how late
    if math.isfinite(estimation.remaining) and done > 0.0:
        return _part(done, done + estimation.remaining)
    length = duration(job)
    if length and job.started_at and job.bound:
        return _part(now - job.started_at, length)
    return None


def _part(done: float, whole: float) -> float | None:
    if not (math.isfinite(done) and math.isfinite(whole)) or whole <= 0.0:
        return None
    return min(1.0, max(0.0, done / whole))
