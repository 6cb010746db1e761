"""Evictions that were begun and not done: pods of Jobs without the Job controller's finalizer (design §1).

An eviction takes the finalizer off and then ends the pod (cluster.evict). Who dies in between leaves a pod that its
Job does not count: it would run, and succeed, for nothing. So a member without the finalizer is ended where the plan
still wants that, else the finalizer is put back. Pods that the Job controller has counted have lost it, too: of those
that ended only one with our mark is half done.
"""

from __future__ import annotations

from muster.core.workload import identity
from muster.types import PodRecord


def by_job(pod: PodRecord) -> bool:
    """Whether Kubernetes' own Job controller counts this pod."""
    return (
        pod.controller is not None
        and pod.controller.kind == "Job"
        and pod.controller.api_version.startswith("batch/")
    )


def half_done(pod: PodRecord) -> bool:
    """Whether the pod stays, uncounted, unless somebody goes on."""
    if pod.tracked or pod.deleting or not by_job(pod):
        return False
    return not pod.phase.ended or identity.LEAVING in pod.annotations
