"""The authors' runs of Coach: epochs as their public outputs have them, and how long one takes.

Seconds of an epoch with so many workers and servers, by this rule: for each run of a single job (`single_job_*`) the
median of its epochs without the job's first, which is short; then the median of these over the runs, to a tenth. The
runs are far apart (LeNet's with one worker and one server 24.5 to 32.4 s), so that figures that rest on it have the
range over them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from muster.sim.presets import coach
from muster.sim.presets.coach import Seconds

EPOCHS = re.compile(
    r'"epochs": \[(.*?)\].*?"servers": \[(.*?)\].*?"workers": \[(.*?)\].*?"time": \[(.*?)\]', re.DOTALL
)


class Epoch(NamedTuple):
    """chosen: by Coach (the epochs before are mini-epochs)."""

    workers: int
    servers: int
    seconds: float
    chosen: bool


@lru_cache
def runs_of_authors(data: Path, model: str) -> tuple[tuple[Epoch, ...], ...]:
    """The jobs of all runs in which Coach chose. An epoch with two workers has a line for each: the first counts."""
    paths = sorted((data / "coach" / model).glob("*.txt"))
    return tuple(job for path in paths if "static" not in path.name for job in _jobs(path))


def seconds_by_run(data: Path, model: str) -> list[Seconds]:
    """Of an epoch, in each run of a single job: medians, without the first epoch."""
    paths = sorted((data / "coach" / model).glob("single_job_*.txt"))
    return [_table(job[1:]) for path in paths for job in _jobs(path)]


def seconds_of(runs: Sequence[Seconds]) -> Seconds:
    """The medians over runs, to a tenth."""
    counts = range(coach.MOST)
    return tuple(tuple(round(median(run[w][s] for run in runs), 1) for s in counts) for w in counts)


def _table(job: Sequence[Epoch]) -> Seconds:
    counts = range(1, coach.MOST + 1)
    return tuple(
        tuple(median(e.seconds for e in job if (e.workers, e.servers) == (w, s)) for s in counts)
        for w in counts
    )


@lru_cache
def _jobs(path: Path) -> tuple[tuple[Epoch, ...], ...]:
    found = []
    for block in EPOCHS.findall(path.read_text()):
        columns = [[float(x) for x in part.replace("|", ",").split(",") if x.strip()] for part in block]
        if len({len(column) for column in columns}) == 1:  # else the run was cut off while it wrote
            found.append(_epochs(list(zip(*columns, strict=True)), block[0].partition("|")[0].count(",") + 1))
    return tuple(found)


def _epochs(rows: list[tuple[float, ...]], minis: int) -> tuple[Epoch, ...]:
    found = []
    for i, (number, servers, workers, seconds) in enumerate(rows):
        again = i and workers > 1 and rows[i - 1][0] == number and rows[i - 1][2] == workers
        if not again:
            found.append(Epoch(int(workers), int(servers), seconds, i >= minis))
    return tuple(found)
