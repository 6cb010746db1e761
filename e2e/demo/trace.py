"""A trace of jobs as a CSV file (.gz is read as it is), in the form of the Pollux artifact's Philly trace:
columns timestamp, duration (s), num_gpus, cluster (a virtual cluster; may be missing)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

HOUR = 3600.0


class BadTraceError(Exception):
    """The file is no trace, or has not what was asked for. A sentence for the user."""


@dataclass(frozen=True)
class TracedJob:
    """One line: submission (the trace's clock, no zone), duration in seconds, GPUs, virtual cluster."""

    submitted: datetime
    duration: float
    gpus: int
    cluster: str


def read(path: Path) -> list[TracedJob]:
    """The jobs by submission. BadTraceError names the line that can't be read."""
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise BadTraceError(f"{path}: {problem}") from problem
    jobs = []
    for number, row in enumerate(rows, start=2):
        try:
            found = TracedJob(
                submitted=datetime.fromisoformat(row["timestamp"]).replace(tzinfo=None),
                duration=float(row["duration"]),
                gpus=int(row["num_gpus"]),
                cluster=row.get("cluster") or "",
            )
        except (KeyError, TypeError, ValueError) as problem:
            raise BadTraceError(
                f"{path}, line {number}: expected timestamp, duration (s), num_gpus and cluster; "
                f"found {dict(row)} ({type(problem).__name__}: {problem})"
            ) from problem
        if found.gpus > 0 and found.duration > 0:
            jobs.append(found)
    if not jobs:
        raise BadTraceError(f"{path}: no job in it asks for a GPU")
    return sorted(jobs, key=lambda job: (job.submitted, job.cluster, job.gpus, job.duration))


def first_hour(jobs: Sequence[TracedJob]) -> datetime:
    """The full hour in which the trace begins: hour 0."""
    return min(job.submitted for job in jobs).replace(minute=0, second=0, microsecond=0)


def hour_of(job: TracedJob, origin: datetime) -> int:
    return int((job.submitted - origin) // timedelta(hours=1))


def gpu_hours(jobs: Iterable[TracedJob], cap: float) -> float:
    """What the jobs ask for, GPU-hours; of each at most the first `cap` seconds."""
    return sum(job.gpus * min(job.duration, cap) for job in jobs) / HOUR


def mean_use(jobs: Sequence[TracedJob]) -> float:
    """GPUs in use on average, from the first submission to the last."""
    span = (jobs[-1].submitted - jobs[0].submitted).total_seconds()
    return sum(job.gpus * job.duration for job in jobs) / span if span else 0.0


def by_cluster(jobs: Iterable[TracedJob]) -> dict[str, list[TracedJob]]:
    clusters: dict[str, list[TracedJob]] = {}
    for job in jobs:
        clusters.setdefault(job.cluster, []).append(job)
    return clusters


def nearest_cluster(jobs: Sequence[TracedJob], gpus: int) -> str:
    """The virtual cluster whose mean use comes nearest to so many GPUs: a part of the trace that is as big as
    the lab, so that no job has to be thinned out or shrunk. Ties: the name."""
    clusters = by_cluster(jobs)
    return min(clusters, key=lambda name: (abs(mean_use(clusters[name]) - gpus), name))


def by_hour(jobs: Iterable[TracedJob], origin: datetime) -> dict[int, list[TracedJob]]:
    hours: dict[int, list[TracedJob]] = {}
    for job in jobs:
        hours.setdefault(hour_of(job, origin), []).append(job)
    return hours


def standing(jobs: Iterable[TracedJob], at: datetime) -> list[tuple[TracedJob, float]]:
    """The jobs that were submitted before and have not ended, and the seconds that each has left. The trace says
    when a job was submitted and how long it ran; that it began at once is taken for granted here."""
    left = ((job, job.duration - (at - job.submitted).total_seconds()) for job in jobs if job.submitted < at)
    return [(job, seconds) for job, seconds in left if seconds > 0]


def busiest_hour(jobs: Sequence[TracedJob], origin: datetime, cap: float) -> int:
    """The hour whose submissions ask for the most GPU-hours (of each job the first `cap` s). Ties: earliest."""
    hours = by_hour(jobs, origin)
    return min(hours, key=lambda hour: (-gpu_hours(hours[hour], cap), hour))
