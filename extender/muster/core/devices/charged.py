"""Whom a grant in place is charged to: the ResourceQuota of the job's namespace.

The pods that request the GPUs are in a namespace of Muster's own, so Kubernetes charges nobody. What a quota leaves
is its hard limit less what it counts of the namespace's pods and less what jobs in place there are granted. Who waits
comes first, with the fewest GPUs that it can train on; then who could grow, in the order of submission. Nobody loses
GPUs to a quota that was lowered, as no pod does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.core.devices.granted import Grants, Sizes
from muster.types import GPU, Job, JobKey, Quota

Quotas = Mapping[str, Sequence[Quota] | None]
"""By namespace: its quotas; None while they are not read yet."""
UNREAD = "the ResourceQuotas of its namespace are being read"


@dataclass(frozen=True, slots=True)
class Allowed:
    """gpus: the most that a job may be granted, of all its pods; why: what keeps it from more."""

    gpus: int
    why: str


def pods_of(job: Job, grants: Sequence[object]) -> int:
    """Pods that each have GPUs once all of it runs. Replicas beyond those that it was whole with stay behind the gate:
    each would need as many GPUs as the others."""
    if not job.roles:
        return len(grants)
    pods = job.roles[0]
    return max(len(grants), max(pods.min, 1) if pods.max > 1 else pods.max)


def _may_have(job: Job) -> bool:
    return bool(job.max) and not (job.over or job.suspended or job.invalid)


def allowances(
    jobs: Mapping[JobKey, Job], sizes: Sizes, granted: Grants, quotas: Quotas
) -> dict[JobKey, Allowed]:
    """What jobs in place may be granted, of those in whose namespace a quota counts GPUs, or none is read yet."""
    found: dict[JobKey, Allowed] = {}
    known = [key for key in sizes if key in jobs and _may_have(jobs[key])]
    for namespace in sorted({key.namespace for key in known} & quotas.keys()):
        mine = sorted((k for k in known if k.namespace == namespace), key=lambda k: (jobs[k].submitted, k))
        pods = {key: pods_of(jobs[key], granted.get(key, ())) for key in mine}
        has = {key: pods[key] * granted[key][0].count if granted.get(key) else 0 for key in mine}
        listed = quotas[namespace]
        if listed is None:
            found |= {key: Allowed(has[key], UNREAD) for key in mine}
            continue
        limits = [quota for quota in listed if quota.resource == GPU]
        if not limits:
            continue
        first = min(limits, key=lambda quota: (quota.hard - quota.used, quota.name, quota.counts))
        left = first.hard - first.used - sum(has.values())
        why = _words(first, sum(has.values()))
        steps = [(key, sizes[key][:1]) for key in mine if not has[key]] + [(key, sizes[key]) for key in mine]
        for key, counts in steps:
            most = max((n * pods[key] for n in counts if n * pods[key] <= has[key] + left), default=0)
            if most > has[key]:
                left -= most - has[key]
                has[key] = most
        found |= {key: Allowed(has[key], why) for key in mine}
    return found


def _words(quota: Quota, held: int) -> str:
    used = f"hard {quota.hard}, used {quota.used}, {held} in place"
    return f"ResourceQuota {quota.name} allows no more ({quota.counts}: {used})"
