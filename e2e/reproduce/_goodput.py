"""What the artifact's trainings tell Pollux, from the same measurements: what they have tried, and their noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.policylib.goodput import Limits, Tried
from muster.sim.models.pollux import ONE_GPU, Application
from muster.sim.submission import Model
from muster.types import Job

WHOLE = 32768
"""Batch size of an application that is given one GPU (artifact, simulator.py)."""


@dataclass(frozen=True)
class Measured:
    """models: the applications by name."""

    models: Mapping[str, Model]

    def limits(self, job: Job) -> Limits:
        """Any batch size that was measured; the artifact's trainings take two passes for more on one replica."""
        model = self._application(job)
        one = job.model in ONE_GPU
        least, most = (WHOLE, WHOLE) if one else (model.smallest, model.largest)
        return Limits(model.smallest, least, most, model.least_local, model.most_local, halves=True)

    def tried(self, job: Job) -> frozenset[Tried]:
        """The first measurement of each number of nodes, replicas and samples a replica and pass."""
        model = self._application(job)
        found: dict[tuple[int, int, int], Tried] = {}
        for config in job.samples:
            count = sum(config.nodes)
            local, _ = model.local(config.batch or model.smallest, count)
            at = len(config.nodes), count, local
            found.setdefault(at, Tried(*at, *model.step_time(config.nodes, local)))
        return frozenset(found.values())

    def noise(self, job: Job) -> float:
        """Of the epoch under way, at the batch size in use."""
        model = self._application(job)
        epoch = min(job.report.epoch if job.report is not None else 0, model.epochs - 1)
        batch = (job.grant.batch if job.grant is not None else 0) or model.smallest
        return model.noise(batch, epoch)

    def _application(self, job: Job) -> Application:
        model = self.models[job.model]
        assert isinstance(model, Application)
        return model
