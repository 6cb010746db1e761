"""Step 1 of a cycle: what is believed of each job. Plugins fold reports into memory and estimate speed and length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from muster.core.table import declared
from muster.points import Estimation, Profile
from muster.types import Job, JobKey, Snapshot


def believed(snapshot: Snapshot, profile: Profile, complaints: list[str]) -> Callable[[Job], Estimation]:
    """The profile's Estimate of a job; what its owner declares where there is none or it fails."""

    def estimate(job: Job) -> Estimation:
        if profile.estimate is not None:
            try:
                return profile.estimate.estimate(job, snapshot)
            except Exception as error:  # a plugin's mistake must not stop the queue (design §3)
                complaints.append(f"{type(profile.estimate).__name__}.estimate: {error!r}, left out")
        return declared(job, snapshot.now)

    return estimate


def observed(
    snapshot: Snapshot,
    profile: Profile,
    memory: dict[JobKey, dict[str, object]],
    complaints: list[str],
) -> Snapshot:
    """The snapshot with the plugins' folds over new reports in the jobs' memory; `memory` takes what changed."""
    folds = profile.observers
    if not folds:
        return snapshot
    jobs = dict(snapshot.jobs)
    for key, job in snapshot.jobs.items():
        for name, plugin in folds:
            try:
                kept = plugin.observe(job, snapshot)
            except Exception as error:  # a plugin's mistake must not stop the queue (design §3)
                complaints.append(f"{type(plugin).__name__}.observe: {error!r}, left out")
                continue
            if kept is not None and kept != job.memory.get(name):
                memory.setdefault(key, {})[name] = kept
                job = jobs[key] = replace(job, memory={**job.memory, name: kept})
    return replace(snapshot, jobs=jobs) if memory else snapshot
