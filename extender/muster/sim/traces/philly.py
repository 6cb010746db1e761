"""Philly's trace in the form of the Pollux artifact: columns timestamp, duration (s), num_gpus, cluster.

It names no models. Without any, jobs are rigid (min = max = the request) and linear: work = duration x GPUs,
in seconds on one GPU. With `--models FILE --draw-models SEED` each job gets a model drawn uniformly, in the
trace's order, from those that gain up to its request or beyond (max >= request), and as much work as that
model does in `duration` on `num_gpus`: the job takes as long as it took then where it gets what it asked for.
A job larger than every model is left out and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from muster.sim.submission import Model, Submission
from muster.sim.traces.drawn import Drawn
from muster.sim.traces.source import Asked, Row, UnreadableError, collect, columns, count, duration
from muster.sim.workload import Problem

NAME = "Philly"
COLUMNS = ("timestamp", "duration", "num_gpus")
MODELS = ""


def read(
    asked: Asked, rows: Iterator[Row], models: Mapping[str, Model]
) -> tuple[list[Submission], list[Problem]]:
    header = next(rows)
    stamp, lasts, gpus = columns(asked.path, header, COLUMNS)
    names = [name.strip() for name in header[1]]
    cluster = names.index("cluster") if "cluster" in names else -1
    numbers = iter(range(1 << 62))
    draw = None if asked.draw is None else Drawn(models, asked.draw)

    def job(row: Sequence[str]) -> Submission:
        number = next(numbers)
        length, size = duration(row[lasts], "duration"), count(row[gpus], "num_gpus")
        tags = {"cluster": row[cluster].strip()} if cluster >= 0 else {}
        found = Submission(
            str(number), when(row[stamp]), "linear", length * size, size, size, size, tags=tags
        )
        return found if draw is None else draw(found, length)

    wanted = rows
    if asked.cluster:
        if cluster < 0:
            raise UnreadableError(
                asked.path, header[0], "has no column cluster to choose a virtual cluster by"
            )
        wanted = (row for row in rows if len(row[1]) <= cluster or row[1][cluster].strip() == asked.cluster)
    found, problems = collect(asked, wanted, max(stamp, lasts, gpus, cluster) + 1, job)
    start = found[0].submitted
    return [replace(s, submitted=s.submitted - start) for s in found], problems


def when(text: str) -> float:
    """Seconds of the trace's own clock, which has no zone."""
    try:
        # As if UTC: only differences count.
        return (datetime.fromisoformat(text.strip()).replace(tzinfo=None) - EPOCH).total_seconds()
    except ValueError:
        if not text.strip():
            raise ValueError("timestamp is missing") from None
        raise ValueError(
            f"timestamp must be a time such as 2017-10-09 07:01:55; found {text.strip()!r}"
        ) from None


EPOCH = datetime(2017, 1, 1)


def notes(asked: Asked, submissions: Sequence[Submission]) -> tuple[str, ...]:  # noqa: ARG001
    if asked.draw is None:
        return (
            "no models are known: every job is rigid at its request, and n GPUs are n times as fast as one",
        )
    return (
        f"models drawn with seed {asked.draw}, uniform over those that gain up to a job's request; "
        "a job's work is what its model does in the traced duration on the GPUs it asked for",
    )
