"""How much work `reported` believes that a job has left, from its iterations, its losses, and jobs like it."""

from __future__ import annotations

import math

from muster.core.progress.estimate import declared, left_of, samples_a_step, step_at
from muster.core.progress.learned import Lesson
from muster.core.progress.report_filter import config_of
from muster.types import Job, Snapshot
from muster_plugins.reported_loss import Kept, end
from muster_plugins.reported_speed import product_of


def remaining(job: Job, kept: Kept, now: float, one: float, lesson: Lesson | None, ceiling: float) -> float:
    """Seconds on one replica; kept: what was remembered of its reports; one: speed there in the unit of the samples,
    0 = not measured. ceiling: as in `Reported`."""
    report = job.report
    if report is None:
        believed = declared(job, now).remaining
        if math.isnan(believed) and lesson is not None and lesson.work and one > 0.0:
            return max(0.0, lesson.work / one - job.facts.progress.at(now))
        return believed
    step = step_at(job, now)
    if report.total > 0.0:
        if report.step > report.total:
            return math.nan
        left = report.total - min(step, report.total)
        if one > 0.0:
            return left * samples_a_step(job, kept.batch) / one
        if job.remaining_work is not None:
            return job.remaining_work * left / report.total
        return math.nan
    if report.target is not None and one > 0.0:
        last = end(job, kept.losses, ceiling)
        if not math.isnan(last):
            return max(0.0, last - step) * samples_a_step(job, kept.batch) / one
    if job.remaining_work is not None:
        return left_of(job, now)
    if lesson is not None and lesson.work > step * samples_a_step(job, kept.batch) and one > 0.0:
        return lesson.work / one - step * samples_a_step(job, kept.batch) / one
    return math.nan


def measured_batch(job: Job, snapshot: Snapshot) -> float:
    """Samples of an iteration by the speed of the present configuration, which is told in both units; 0 where it is
    not."""
    report = job.report
    if report is None or report.samples <= 0.0 or report.speed <= 0.0 or not job.samples:
        return 0.0
    now = config_of(job, lambda node: product_of(snapshot, node))
    return job.samples.get(now, 0.0) / report.speed
