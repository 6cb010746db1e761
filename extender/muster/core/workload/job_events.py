"""Events for the owner of a job."""

from __future__ import annotations

from collections.abc import Iterator

from muster.types import Job, JobKey, RecordEvent


def told(key: JobKey, job: Job, reason: str, message: str, *, warning: bool) -> Iterator[RecordEvent]:
    """One Event on the job's first pod and one on its owner."""
    pods = [m for r in job.roles for m in r.members]
    if pods:
        yield RecordEvent(key, reason, message, warning, pod=pods[0].pod, uid=pods[0].uid)
    if job.owner is not None and job.owner.kind != "Pod":
        yield RecordEvent(key, reason, message, warning, owner=job.owner)
