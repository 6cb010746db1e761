"""Models for jobs that name none: drawn with a seed, uniformly over those that gain up to the job's request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from muster.sim.submission import Model, Submission
from muster.types import Config


class Drawn:
    """Called for one job after another, in the trace's order. Models in order of (max, name)."""

    def __init__(self, models: Mapping[str, Model], seed: int) -> None:
        self.models = sorted(models.values(), key=lambda m: (m.max, m.name))
        self.largest = [m.max for m in self.models]
        self.rng = np.random.default_rng(seed)
        self.speeds: dict[tuple[str, int], float] = {}

    def __call__(self, job: Submission, length: float) -> Submission:
        """The job with a model, and the work that it does in `length` seconds on the job's request.

        ValueError where no model gains that far. The draw is made for each job that has a model to draw from.
        """
        first = bisect_left(self.largest, job.request)
        if first == len(self.models):
            raise ValueError(f"asks for {job.request} GPUs, and no model gains beyond {self.largest[-1]}")
        model = self.models[int(self.rng.integers(first, len(self.models)))]
        at = (model.name, job.request)
        if at not in self.speeds:
            self.speeds[at] = model.speed(Config(roles=(("worker", job.request),), nodes=(job.request,)))
        return replace(job, model=model.name, work=length * self.speeds[at], min=1, max=0)
