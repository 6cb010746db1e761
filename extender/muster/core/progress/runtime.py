"""How long a job runs, and when it is expected to end: of jobs whose owner, or whose reports, say it."""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.progress.curves import at_count, interpolated
from muster.types import Job


def speed_of(declared: Sequence[tuple[int, float]], replicas: int) -> float:
    """Relative speed with so many replicas of the elastic role, as declared; linear where nothing is."""
    return at_count(interpolated(declared), replicas)


def duration(job: Job) -> float | None:
    """Seconds that a job runs with its minimum, None where its owner does not say."""
    if job.remaining_work is None:
        return None
    return job.remaining_work / speed_of(job.speed, max(1, job.elastic.min if job.elastic is not None else 0))


def expected_end(job: Job, now: float) -> float | None:
    """When a running job of known length ends: by the progress that it is seen to make, else as declared. One that
    should have ended by `now` is expected to go on for as long as it is late (nobody knows for how long)."""
    done, length = job.facts.progress, duration(job)
    if done.rate > 0.0 and job.remaining_work is not None:
        end = done.since + (job.remaining_work - done.total) / done.rate
    elif length is None or not job.started_at:
        return None
    else:
        end = job.started_at + length
    return now + abs(end - now)
