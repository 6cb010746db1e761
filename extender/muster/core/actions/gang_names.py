"""What a job's Gang is called, where another job has, or had, one of that name."""

from __future__ import annotations

import hashlib

from muster.core.state.job_builder import is_alive
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.core.workload.identity import gang_name
from muster.types import JobKey


def named(state: LedgerState, job_state: JobState) -> tuple[str, str]:
    """The name of the job's Gang, and the uid of an earlier job's that has it and is to go ("": none has). Where a
    job that lives has it (a Job `train`, and pods labelled `muster.dev/job: job-train`), that one keeps it."""
    key = job_state.key
    if job_state.recorded.gang is not None:
        return job_state.recorded.gang.name, ""
    name = gang_name(key.name)
    other = state.gang_names.get((key.namespace, name))
    if other is None or other.key == key:
        return name, ""
    if _lives_beside(state, other.key):
        return _another_name(name, key), ""
    return name, other.object_uid


def _lives_beside(state: LedgerState, key: JobKey) -> bool:
    """Whether that job goes on: it has replicas, and its owner is there. One whose owner was deleted is over, though
    its pods may be there for a moment; an owner of a kind that is not watched counts as gone."""
    entry = state.entries.get(key)
    if entry is None or (key.uid and key.uid not in state.owners.records):
        return False
    over = entry.job is not None and entry.job.over
    return not over and any(is_alive(pod) and not pod.deleting for pod in entry.pods.values())


def _another_name(gang: str, key: JobKey) -> str:
    """Of the Gang of a job beside which another one lives whose Gang has that name: always the same for the job."""
    digest = hashlib.sha256(f"{key.uid}/{key.name}".encode()).hexdigest()
    return f"{gang[:244].rstrip('-.')}-{digest[:8]}"
