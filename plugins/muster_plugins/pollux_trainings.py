"""What Pollux must know of trainings, and the speedup that follows (Qiao et al., OSDI'21, sections 3 and 4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from muster.policylib.goodput import Limits, Tried, best, fitted
from muster.types import FloatArray, Job, elastic_role

MOST = 64
"""Replicas of a job that are looked at (artifact)."""
GROWS = 2
"""A job grows to at most so many times as many replicas as it has tried (section 4.1)."""


class Trainings(Protocol):
    """limits: batch sizes, None = none is chosen and nothing is known of its goodput. tried: what it has run with.
    noise: gradient noise scale in samples."""

    def limits(self, job: Job) -> Limits | None: ...
    def tried(self, job: Job) -> frozenset[Tried]: ...
    def noise(self, job: Job) -> float: ...


class Speedups(NamedTuple):
    """of: (nodes + 1, replicas + 1), over that of a fair share; most: replicas; batches: by (nodes, replicas)."""

    of: FloatArray
    most: int
    batches: dict[tuple[int, int], int]


@dataclass(frozen=True)
class Reported:
    """What jobs declare and report. noises: gradient noise scale (samples) by model, of jobs that report none.

    A batch size is chosen only of a job with batch sizes (`muster.dev/batch-sizes`) whose noise is known.
    """

    noises: tuple[tuple[str, float], ...] = ()
    known: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.known.update(self.noises)

    def limits(self, job: Job) -> Limits | None:
        """The smallest of its sizes is where it counts from."""
        sizes = job.batch_sizes
        if not sizes or math.isnan(self.noise(job)) or job.facts.batch_ignored:
            return None
        return Limits(sizes[0], sizes[0], sizes[-1], sizes=sizes)

    def tried(self, job: Job) -> frozenset[Tried]:
        """Measured speeds as seconds of a step; what of it is the exchange nobody tells, but one replica has none."""
        counts_samples = job.report is not None and job.report.samples > 0.0
        name, found = elastic_role(job).name, set()
        for config, speed in job.samples.items():
            replicas, batch = config.count(name), config.batch
            if speed > 0.0 and replicas and batch and not config.beside:
                step = (batch if counts_samples else 1.0) / speed
                nodes = len(config.nodes) or 1
                found.add(
                    Tried(
                        nodes, replicas, math.ceil(batch / replicas), step, 0.0 if replicas == 1 else math.nan
                    )
                )
        return frozenset(found)

    def noise(self, job: Job) -> float:
        """As it reports it, else of its model; nan where neither is known."""
        return (job.report.noise if job.report is not None else 0.0) or self.known.get(job.model, math.nan)


def speedups(
    trainings: Trainings, job: Job, limits: Limits, most: int, shape: tuple[int, int], fair: tuple[int, int]
) -> Speedups:
    """A job's speedup by goodput. most: replicas that it may have; shape: most nodes and replicas of the table; fair:
    nodes and replicas of a fair share."""
    tried = trainings.tried(job)
    furthest = max((one.replicas for one in tried), default=0)
    most = max(1, min(most, GROWS * furthest, limits.most // limits.least_local))
    of = np.zeros((shape[0] + 1, shape[1] + 1))
    if not tried:  # it starts with one replica, and is taken to be as fast as it has replicas
        of[1:] = np.arange(shape[1] + 1) / fair[1]
        return Speedups(of, most, {(1, 1): limits.least})
    theta, noise = fitted(tried), trainings.noise(job)
    pairs = [(n, k) for k in range(1, most + 1) for n in range(1, min(shape[0], k) + 1)]
    nodes, replicas = (tuple(column) for column in zip(*pairs, strict=True))
    found = best(theta, noise, limits, nodes, replicas)
    wide = limits._replace(
        most=max(limits.most, limits.least_local * fair[1])
    )  # a fair share may be more than it takes
    unit = float(best(theta, noise, wide, (fair[0],), (fair[1],)).goodput[0])
    of[list(nodes), list(replicas)] = found.goodput / (unit or float(found.goodput.max()) or 1.0)
    return Speedups(of, most, dict(zip(pairs, found.batch.tolist(), strict=True)))
