"""How long a job runs, and when it is expected to end: of jobs whose owner, or whose reports, say it."""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.progress.curves import at_count, interpolated
from muster.types import Job


def speed_of(declared: Sequence[tuple[int, float]], replicas: int) -> float:
    """Relative speed with so many replicas of the elastic role, as declared; linear where nothing is."""
    return at_count(interpolated(tuple(declared)), replicas)


def duration(job: Job) -> float | None:
    """Seconds that a job runs with its minimum, None where its owner does not say."""
    if job.remaining_work is None:
        return None
    return job.remaining_work / speed_of(job.speed, least(job))


def least(job: Job) -> int:
    """Replicas of the elastic role that it starts with."""
    return max(1, job.elastic.min if job.elastic is not None else 0)


def left(job: Job, now: float) -> float | None:
    """Seconds that a job which starts at `now` runs with its minimum: `duration` less what it has done. Where only
    its reports say how much there is to do: by the time that their steps took so far. As at `expected_end` where it
    has done more than it declares."""
    report, done = job.report, job.facts.progress.at(now)
    if job.remaining_work is not None:
        work = abs(job.remaining_work - done)
    elif report is not None and 0.0 < report.step <= report.total and done > 0.0:
        work = done * (report.total - report.step) / report.step
    else:
        return None
    return work / speed_of(job.speed, least(job))


def expected_end(job: Job, now: float) -> float | None:
    """When a running job of known length ends: by the progress that it is seen to make, else as declared. One that
    should have ended by `now` is expected to go on for as long as it is late (nobody knows for how long)."""
    done = job.facts.progress
    if job.remaining_work is None:
        return None
    if done.rate > 0.0:
        return now + abs(done.since + (job.remaining_work - done.total) / done.rate - now)
    after, length = left(job, now), duration(job)
    if not job.started_at or after is None or length is None:
        return None
    return now + (after if done.total > 0.0 else abs(job.started_at + length - now))
