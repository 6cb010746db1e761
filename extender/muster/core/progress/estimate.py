"""Step 1 of a cycle: what is believed of each job. Plugins fold reports into memory and estimate speed and length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from muster.core.progress.curves import interpolated
from muster.points import Estimation, Profile
from muster.types import Job, JobKey, Snapshot


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


def declared(job: Job, now: float) -> Estimation:
    """The estimate without a plugin: what the owner declares, less what was done since (linear, unknown length
    where nothing is declared). Between declared sizes the *time* of an iteration is interpolated (measured speeds
    are piecewise linear in time, AFS's simulator), beyond the last it stays."""
    remaining = math.nan
    if job.remaining_work is not None:
        remaining = max(0.0, job.remaining_work - job.facts.progress.at(now))
    return Estimation(remaining, interpolated(job.speed))
