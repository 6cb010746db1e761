"""What Gavel's mechanism and its policies read of jobs and nodes: GPUs asked for, speeds, time received and owed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from muster.core.progress.curves import alone
from muster.core.progress.estimate import left_of, samples_a_step
from muster.types import GPU_MEMORY, PRODUCT, Job, Snapshot, elastic_role

Kept = Mapping[str, Any]
"""One job's part of the last allocation, with what its policy asked to be told again; empty: nothing yet."""
HOUR = 3600.0
"""Seconds on one replica that a job of unknown length is taken to need."""


def asked(job: Job) -> int:
    """GPUs that it asks for; 0 for a job without GPUs, or whose replicas have all ended."""
    role = job.elastic
    return (min(job.request or role.max, role.max) * role.shape.gpus) if role is not None else 0


def possible(job: Job, most: int) -> Job:
    """The job as it may ask for what a product has, `most` GPUs at most: one that could do with fewer than it asks
    for would else wait for ever."""
    role = job.elastic
    if role is None or asked(job) <= most:
        return job
    count = most // max(1, role.shape.gpus)
    legal = [size for size in role.sizes or (count,) if role.min <= size <= count]
    return replace(job, request=max(legal)) if legal else job


def capacity_of(snapshot: Snapshot) -> dict[str, int]:
    """GPUs of open nodes by product; "" where nodes carry none."""
    nodes = snapshot.nodes
    gpus = np.where(nodes.open, nodes.gpus(nodes.total), 0)
    ids, names = nodes.domains(PRODUCT)
    found = {name: int(gpus[ids == i].sum()) for i, name in enumerate(names)}
    return {name: count for name, count in found.items() if count} or {"": int(gpus.sum())}


def memory_of(snapshot: Snapshot) -> dict[str, int]:
    """MiB of a GPU by product, the most of one open node, where nodes say it."""
    found: dict[str, int] = {}
    for record, usable in zip(snapshot.nodes.records, snapshot.nodes.open, strict=True):
        memory = record.labels.get(GPU_MEMORY, "")
        if usable and memory.isdigit():
            product = record.labels.get(PRODUCT, "")
            found[product] = max(int(memory), found.get(product, 0))
    return found


def speeds(job: Job, names: Sequence[str]) -> list[float]:
    """iterations/s on each product at the replicas that it asks for; 1 where nothing was measured at all."""
    count = job.request or elastic_role(job).max
    found = {config.product: speed for config, speed in alone(job.samples) if config.replicas == count}
    best = max(found.values(), default=1.0)
    return [found.get(name, best) for name in names]


def received(job: Job, product: str, now: float, length: float) -> float:
    """Seconds that it has spent on iterations on a product in all: in a round of `length` s only whole ones are
    made, and the authors' simulator counts no more than those."""
    meter = job.facts.by_product.get(product)
    if meter is None:
        return 0.0
    made = speeds(job, [product])[0] * length
    return meter.at(now) * (math.floor(made + 1e-9) / made if made >= 1.0 else 1.0)


def owed(
    job: Job, kept: Kept, names: Sequence[str], now: float, since: float, length: float
) -> dict[str, float]:
    """By product: what its shares came to, less what it received, over all allocations so far (s)."""
    if not kept:
        return dict.fromkeys(names, 0.0)
    return {
        name: kept["owed"].get(name, 0.0)
        + kept["share"].get(name, 0.0) * since
        - (received(job, name, now, length) - kept["had"].get(name, 0.0))
        for name in names
    }


def steps_left(job: Job, now: float) -> float:
    """Iterations to do (samples, where speeds are samples/s): what the job reports, else what its owner declared, in
    seconds at its best speed."""
    if (report := job.report) is not None and report.total > 0.0:
        return max(0.0, report.total - report.step) * samples_a_step(job)
    work = HOUR if job.remaining_work is None else left_of(job, now)
    best = max((speed for _, speed in alone(job.samples)), default=1.0)
    return work * best if math.isfinite(best) else work
