"""Evictions that were begun and not done: marked pods without the Job controller's finalizer (design §1).

An eviction takes the finalizer off, leaves a mark in the same patch, and then ends the pod (cluster.evict). Who dies
in between leaves a pod that its Job does not count: it would run, and succeed, for nothing. So a pod with the mark is
ended where the plan still wants that, else the finalizer is put back.

Without the mark the Job controller took the finalizer off: it has counted the pod, or is about to delete it (a Job
that is suspended or made smaller; it patches first and deletes then). A finalizer that we put back in between would
make that Job count a failure, and end at backoffLimit 0.
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


def counted(pod: PodRecord) -> bool:
    """Whether its Job counts the pod, or would if we had not begun to evict it."""
    return by_job(pod) and (pod.tracked or identity.LEAVING in pod.annotations)


def half_done(pod: PodRecord) -> bool:
    """Whether the pod stays, uncounted, unless somebody goes on."""
    return counted(pod) and not pod.tracked and not pod.deleting
