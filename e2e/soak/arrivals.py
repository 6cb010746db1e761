"""What jobs come, when, and how they end: drawn of a seed before anything begins. The soak's and chaos'."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

LEASTS, MOSTS = (1, 1, 2, 4), (4, 8, 8)


@dataclass(frozen=True)
class Course:
    """seconds: for which jobs come. rate: arrivals a minute. life: mean seconds until a job ends. seed: of all that
    is drawn. half of the jobs end by themselves, half are deleted. after: seconds that those which end by
    themselves have for it when no more come; then they are deleted, too."""

    seconds: float = 600.0
    rate: float = 50.0
    life: float = 45.0
    seed: int = 1
    after: float = 30.0


@dataclass(frozen=True)
class Arrival:
    """at: s. life: s until it ends by itself or is deleted. stop: s that a pod takes to end when it is told to."""

    number: int
    at: float
    least: int
    most: int
    life: float
    by_itself: bool
    stop: float

    @property
    def name(self) -> str:
        return f"job-{self.number:04d}"


def arrivals(course: Course) -> Iterator[Arrival]:
    """In their order."""
    draw = np.random.default_rng(course.seed)
    at, number = float(draw.exponential(60.0 / course.rate)), 0
    while at <= course.seconds:
        least, most = int(draw.choice(LEASTS)), int(draw.choice(MOSTS))
        life = 5.0 + float(draw.exponential(course.life))
        by_itself = bool(draw.random() < 0.5)
        stop = float(draw.choice((0, 0, 1)))
        yield Arrival(number, at, least, most, life, by_itself, stop)
        number += 1
        at += float(draw.exponential(60.0 / course.rate))
