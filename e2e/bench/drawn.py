"""The jobs of `python -m e2e.bench elastic`: sizes and lengths from Philly's statistics, models drawn as AFS has it.
Pure: the same seed and arguments give the same jobs.

What a bench can wait for is a part of Philly: jobs of 5 minutes to an hour, of at most half of the cluster. A pair
(size, length) outside of it is drawn again, so that what is left has Philly's proportions and nothing is squeezed to
a bound. Arrivals are uniform over the time in which the jobs ask for `load` times the GPU-seconds that there are.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from e2e.bench.trainings import Trained
from e2e.demo.workload import largest
from muster.sim.philly import CLASSES, PHILLY
from muster.sim.submission import Model
from muster.sim.synthetic import made, philly_lengths
from muster.types import Config

SHORTEST = 300.0
"""Trace seconds that a job takes at least, on the GPUs that it asks for."""
STREAMS = 3


@dataclass(frozen=True)
class Drawing:
    """How the jobs are drawn. load: GPU-seconds asked for by GPU-seconds there are, while jobs arrive; request: most
    GPUs that a job asks for, 0 = half of the cluster; longest: most trace seconds of a job on the GPUs that it asks
    for; speed: trace seconds in one of this machine's; gpus: of the cluster."""

    jobs: int = 60
    seed: int = 1
    load: float = 2.0
    request: int = 0
    longest: float = 3600.0
    speed: float = 20.0
    gpus: int = 32

    @property
    def most(self) -> int:
        """GPUs that one job may get: half of the cluster."""
        return largest(self.gpus)

    def sizes(self) -> list[tuple[int, int]]:
        """(GPUs, jobs of Philly's cluster that ask for so many)."""
        most = min(self.request or self.most, self.most)
        return [(size, count) for size, count in PHILLY.sizes if size <= most]


def draw(drawing: Drawing, models: Mapping[str, Model]) -> list[Trained]:
    """The jobs by submission; times in seconds of this machine, work in such seconds on one replica."""
    pairs, picks, arrivals = (np.random.default_rng([drawing.seed, stream]) for stream in range(STREAMS))
    sizes, weights = zip(*drawing.sizes(), strict=True)
    chances = np.array(weights) / sum(weights)
    asked: list[tuple[int, float]] = []
    while len(asked) < drawing.jobs:
        size = pairs.choice(np.array(sizes, dtype=np.int64), size=1, p=chances)
        (length,) = philly_lengths(size, pairs).tolist()
        if SHORTEST <= length <= drawing.longest:
            asked.append((int(size[0]), length))
    window = sum(size * length for size, length in asked) / (drawing.gpus * drawing.load)
    at = np.sort(arrivals.uniform(0.0, window, drawing.jobs))
    drawn = made(
        at,
        np.array([size for size, _ in asked], dtype=np.int64),
        np.array([length for _, length in asked]),
        models,
        int(picks.integers(1 << 31)),
        None,
    )
    found = []
    for number, one in enumerate(drawn.submissions):
        speeds = relative(models[one.model], drawing.most)
        work = one.work / models[one.model].speed(_workers(1)) / drawing.speed
        submitted = one.submitted / drawing.speed
        most = len(speeds) - 1
        found.append(
            Trained(f"job-{number:02}", submitted, one.request, 1, most, work, speeds, model=one.model)
        )
    return found


def relative(model: Model, most: int) -> tuple[float, ...]:
    """Speeds on 0, 1, 2, ... replicas, in that of one."""
    alone = model.speed(_workers(1))
    return (0.0, *(model.speed(_workers(n)) / alone for n in range(1, min(model.max, most) + 1)))


def part_of_philly(drawing: Drawing) -> float:
    """Which share (0 to 1) of the jobs of Philly's virtual cluster is drawn from."""
    at = np.linspace(0.0, 1.0, len(PHILLY.durations[0]))

    def within(size: int) -> float:
        quantiles = PHILLY.durations[bisect_left(CLASSES, size)]
        low, high = np.interp((SHORTEST, drawing.longest), quantiles, at)
        return float(high - low)

    return sum(count * within(size) for size, count in drawing.sizes()) / PHILLY.jobs


def write(drawn: Sequence[Trained], path: Path) -> None:
    """The jobs, as they were drawn (s of this machine)."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("job", "model", "submit_s", "request", "least", "most", "work"))
        rows.writerows(
            (j.name, j.model, round(j.at, 3), j.request, j.least, j.most, round(j.work, 3)) for j in drawn
        )


def _workers(count: int) -> Config:
    return Config(roles=(("worker", count),), nodes=(count,))
