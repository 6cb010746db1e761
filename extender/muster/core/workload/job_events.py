"""Events about a job, on the objects where people look for them: each costs the API server a write."""

from __future__ import annotations

from collections.abc import Iterator

from muster.types import GangRecord, Job, JobKey, Owner, RecordEvent

GANGS = "muster.dev/v1alpha1"


def told(
    key: JobKey,
    job: Job,
    gang: GangRecord | None,
    reason: str,
    message: str,
    *,
    warning: bool = False,
    waits: bool = False,
) -> Iterator[RecordEvent]:
    """One Event on the job's owner and one on its Gang, where they are there; one on its first pod where that `waits`
    (who looks why a pod is Pending describes the pod), or where there is no owner."""
    pods = [m for r in job.roles for m in r.members]
    owned = job.owner is not None and job.owner.kind != "Pod"
    if pods and (waits or not owned):
        yield RecordEvent(key, reason, message, warning, pod=pods[0].pod, uid=pods[0].uid)
    if owned:
        yield RecordEvent(key, reason, message, warning, owner=job.owner)
    if gang is not None:
        yield told_gang(key, gang, reason, message, warning=warning)


def told_gang(key: JobKey, gang: GangRecord, reason: str, message: str, *, warning: bool) -> RecordEvent:
    """One on its Gang."""
    return RecordEvent(key, reason, message, warning, owner=Owner(GANGS, "Gang", gang.name, gang.object_uid))
