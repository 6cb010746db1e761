"""In place: which jobs share the GPUs of another one. Both are jobs of one pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from muster.core.devices.granted import Grants
from muster.types import Grant, Job, JobKey

Pairs = Mapping[JobKey, JobKey]
"""By job that is on the GPUs of another one: that one."""


def pairs(granted: Grants, shared: Mapping[JobKey, Grant | None]) -> dict[JobKey, JobKey]:
    """Which of these jobs are on the GPUs of another one, and of which, as far as that one is granted some on the
    same node. shared: what is granted beside numbers."""
    found = {}
    for key, mine in granted.items():
        of = shared.get(key)
        if of is None or of.beside is None:
            continue
        theirs = granted.get(of.beside, ())
        if len(mine) == len(theirs) == 1 and mine[0].node == theirs[0].node:
            found[key] = of.beside
    return found


def as_it_stands(job: Job, jobs: Mapping[JobKey, Job], granted: Grants, beside: Pairs) -> Job:
    """The job with the partner that it has, not with one that it has lost."""
    grant = job.grant
    # A start that is not granted its devices yet is on its way to them: only what stands can have lost them.
    stands = job.key in granted or (grant is not None and grant.beside not in jobs)
    if grant is None or not stands or grant.beside == beside.get(job.key):
        return job
    alone = replace(grant, beside=beside.get(job.key))
    return replace(job, grant=alone if alone != Grant() else None)
