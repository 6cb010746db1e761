"""Step 1 of a cycle: what is believed of each job. Plugins fold reports into memory and estimate speed and length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from muster.core.progress.curves import interpolated
from muster.points import Estimation, Profile
from muster.types import Job, JobKey, Snapshot, elastic_role

LATE = 0.05
"""Of its declared length: by so much a job is over it when that is first looked at."""
AHEAD = 30.0
"""s for which training is believed to have gone on since its last report."""


def believed(snapshot: Snapshot, profile: Profile, plugin_errors: list[str]) -> Callable[[Job], Estimation]:
    """The profile's Estimate of a job; what its owner declares where there is none or it fails."""

    def estimate(job: Job) -> Estimation:
        if profile.estimate is not None:
            try:
                return profile.estimate.estimate(job, snapshot)
            except Exception as error:  # a plugin's mistake must not stop the queue (design §3)
                plugin_errors.append(f"{type(profile.estimate).__name__}.estimate: {error!r}, left out")
        return declared(job, snapshot.now)

    return estimate


def observed(
    snapshot: Snapshot,
    profile: Profile,
    memory: dict[JobKey, dict[str, object]],
    plugin_errors: list[str],
) -> Snapshot:
    """The snapshot with the plugins' folds over new reports in the jobs' memory; `memory` takes what changed."""
    folds = profile.observers
    if not folds:
        return snapshot
    jobs = dict(snapshot.jobs)
    for key, job in snapshot.jobs.items():
        if job.elastic is None:  # its pods are gone and it outlives them: nothing of it reports
            continue
        for name, plugin in folds:
            try:
                kept = plugin.observe(job, snapshot)
            except Exception as error:  # a plugin's mistake must not stop the queue (design §3)
                plugin_errors.append(f"{type(plugin).__name__}.observe: {error!r}, left out")
                continue
            if kept is not None and kept != job.memory.get(name):
                memory.setdefault(key, {})[name] = kept
                job = jobs[key] = replace(job, memory={**job.memory, name: kept})
    return replace(snapshot, jobs=jobs) if memory else snapshot


def fair_replicas(job: Job, snapshot: Snapshot) -> int:
    """Replicas of the elastic role in an equal share M / n of the GPUs of nodes that take pods, rounded down."""
    nodes = snapshot.nodes
    gpus = int(nodes.gpus(nodes.total)[nodes.usable()].sum())
    return gpus // max(1, snapshot.contending) // max(1, elastic_role(job).shape.gpus)


def declared(job: Job, now: float) -> Estimation:
    """The estimate without a plugin: what the owner declares, less what was done since (linear, unknown length
    where nothing is declared). Between declared sizes the *time* of an iteration is interpolated (measured speeds
    are piecewise linear in time, AFS's simulator), beyond the last it stays."""
    return Estimation(left_of(job, now), interpolated(job.speed))


def left_of(job: Job, now: float) -> float:
    """Seconds on one replica that are left of what the owner declares, nan where nothing is declared."""
    if job.remaining_work is None:
        return math.nan
    return max(0.0, job.remaining_work - job.facts.progress.at(now))


def step_at(job: Job, now: float) -> float:
    """Iterations that are done by its last report, and since then at its measured speed; 0 where nothing is told."""
    report = job.report
    if report is None:
        return 0.0
    gone_on = min(AHEAD, max(0.0, now - report.at)) if job.running else 0.0
    return report.step + report.speed * gone_on


def samples_a_step(job: Job, measured: float = 0.0) -> float:
    """Samples of an iteration, by which iterations become the unit of measured speeds: 1 where those are
    iterations/s, since the job tells no samples. measured: what was found earlier, 0 = nothing; until this
    configuration is measured, it is what the job tells of its batch size."""
    report = job.report
    if report is None or report.samples <= 0.0:
        return 1.0
    if job.batch and (not report.speed or not measured):
        return float(job.batch)
    return measured or (report.samples / report.step if report.step > 0.0 else 1.0)


def late_by(job: Job, now: float) -> float:
    """Seconds on one replica by which a job that goes on is over what its owner declares; 0 where it is not."""
    if job.remaining_work is None:
        return 0.0
    return max(0.0, job.facts.progress.at(now) - job.remaining_work)


def later_at(job: Job, now: float) -> float:
    """When a job that runs, and does not tell how much it has to do, will be over its declared length by LATE of it,
    or by twice as much as at the last such time: what `late_by` says is another number then. inf: never."""
    work, done = job.remaining_work, job.facts.progress
    if not work or done.rate <= 0.0 or (job.report is not None and job.report.total > 0.0):
        return math.inf
    following = LATE * work
    over = done.at(now) - work
    if over >= following:
        following *= 2.0 ** (math.floor(math.log2(over / following)) + 1)
    at = done.since + (work + following - done.total) / done.rate
    return at if at > now else at + following / done.rate  # it is that time, but for rounding
