"""In place: whom a job shares its GPUs with, and whether that one trains."""

from __future__ import annotations

from muster.core.progress.measure import JOINING
from muster.core.progress.pairs import name_beside
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.types import Job


def beside(state: LedgerState, job_state: JobState, job: Job, now: float) -> str:
    """`Job.beside`: what the job calls the one that uses its GPUs, too; "" where nobody does."""
    other = _neighbour(state, job_state)
    if other is None:
        return ""
    if other.job is None:  # it is made in this snapshot, too
        state.again(job_state.key, now + 1.0)
        return job_state.track.config.beside
    return name_beside(job, other.job)


def trains_beside(state: LedgerState, job_state: JobState, now: float) -> bool:
    """Whether what the job tells of its speed is one that it has beside the other: that one's training has begun, or
    has had long enough to. Until then it has the GPU nearly alone."""
    other = _neighbour(state, job_state)
    return other is None or other.track.counts > 1 or now >= job_state.track.since + JOINING


def _neighbour(state: LedgerState, job_state: JobState) -> JobState | None:
    if state.in_place is None:
        return None
    pods = [state.in_place.neighbours.get(pod) for pod in job_state.pods]
    keys = [state.job_of[pod] for pod in pods if pod is not None and pod in state.job_of]
    return state.entries.get(keys[0]) if keys else None
