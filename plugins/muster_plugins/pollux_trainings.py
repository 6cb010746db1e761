"""What Pollux must know of trainings, and the speedup that follows (Qiao et al., OSDI'21, sections 3 and 4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from muster.core.progress.curves import alone
from muster.policylib.goodput import Limits, Tried, best, fitted
from muster.types import FloatArray, Job, elastic_role

MOST = 64
"""Replicas of a job that are looked at (artifact); more where it has more, or starts with more."""
GROWS = 2
"""A job grows to at most so many times as many replicas as it has tried (section 4.1)."""


class Trainings(Protocol):
    """limits: batch sizes, None = none is chosen and nothing is known of its goodput. tried: what it has run with.
    noise: gradient noise scale in samples."""

    def limits(self, job: Job) -> Limits | None: ...
    def tried(self, job: Job) -> frozenset[Tried]: ...
    def noise(self, job: Job) -> float: ...


class Speedups(NamedTuple):
    """of: (3, most + 1) by nodes (none, one, several: a step's time depends on no more) and replicas, over that of a
    fair share; most: replicas; batches: by nodes, as above, and replicas."""

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
        for config, speed in alone(job.samples):
            replicas, batch = config.count(name), config.batch
            if speed > 0.0 and replicas and batch:
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
    trainings: Trainings, job: Job, limits: Limits, least: int, most: int, fair: tuple[int, int]
) -> Speedups:
    """A job's speedup by goodput. least: replicas that it starts with, or has; most: that it may have; fair: nodes
    and replicas of a fair share."""
    tried = trainings.tried(job)
    furthest = max((one.replicas for one in tried), default=0)
    most = max(least, min(most, GROWS * furthest, limits.most // limits.least_local))
    of = np.zeros((3, most + 1))
    pairs = [(n, k) for k in range(1, most + 1) for n in range(1, min(2, k) + 1)]
    if not tried:  # it starts with its least, and is taken to be as fast as it has replicas
        of[1:] = np.arange(most + 1) / fair[1]
        return Speedups(of, most, {(n, k): _smallest(limits, k) for n, k in pairs})
    theta, noise = fitted(tried), trainings.noise(job)
    nodes, replicas = (tuple(column) for column in zip(*pairs, strict=True))
    found = best(theta, noise, limits, nodes, replicas)
    wide = limits._replace(
        most=max(limits.most, limits.least_local * fair[1])
    )  # a fair share may be more than it takes
    unit = float(best(theta, noise, wide, (min(2, fair[0]),), (fair[1],)).goodput[0])
    of[list(nodes), list(replicas)] = found.goodput / (unit or float(found.goodput.max()) or 1.0)
    return Speedups(of, most, dict(zip(pairs, found.batch.tolist(), strict=True)))


def _smallest(limits: Limits, replicas: int) -> int:
    """Batch size that so many replicas start with."""
    least = max(limits.least, limits.least_local * replicas)
    return min((size for size in limits.sizes if size >= least), default=min(least, limits.most))
