"""Batch sizes of a job: which one it is told, and whether it takes what it is told.

A job declares the global batch sizes that it can train with (annotation `muster.dev/batch-sizes`). The granted one
(`Grant.batch`) is told in the answer to each report, and where a pod starts in its annotation `muster.dev/batch`,
which admission gives to it as MUSTER_BATCH. Its training reports which one it has (`Report.batch`). A job that was
told another one and reports its own for TAKES seconds on end does not take it: from then on it counts as one that has
no other, so that policies rank it with its own.
"""

from __future__ import annotations

from muster.types import Grant, Job

TAKES = 120.0
"""s of reports with another batch size than was told, after which a job counts as one that takes none."""
MOST = 10**9
"""A global batch size beyond it is none."""


def granted(grant: Grant | None) -> int:
    """Global batch size that a policy grants, 0 = none."""
    return grant.batch if grant is not None else 0


def told(job: Job, grant: Grant | None) -> int:
    """Global batch size that the job is told now, 0 = none. Where it is granted none it keeps what it has."""
    size = granted(grant) or job.batch
    return size if size in job.batch_sizes else 0


def differs(job: Job, reported: int) -> bool:
    """Whether a job reports another global batch size than a policy granted and it is told."""
    size = told(job, job.grant) if granted(job.grant) else 0
    return bool(reported and size and reported != size)


def ignores(job: Job, told_since: float, differs_since: float, now: float) -> bool:
    """Whether a job goes on with its own batch size although it was told another one.

    Since when it was told that one, and since when it reports another on end (s). A job that is restarted for each
    change reads it where it starts: it is judged only by a run that began with it.
    """
    began = job.facts.run_start
    if job.resize == "restart" and (began is None or began < told_since):
        return False
    return now - max(told_since, differs_since, began or 0.0) > TAKES
