"""Gavel's space sharing (Narayanan et al., OSDI'20, §3.1): which jobs may share GPUs, and their time together.

Only a pair that was measured is one, and only on products where the two together do more than taking turns. On a
cluster jobs in place are measured when they share a GPU: of those a pair is tried once, as worth what is believed of
one that was not measured, and afterwards only from LEAST times the speed of one alone (`core.progress.pairs`). With
all such pairs there would be a column of the programme for each two jobs. So a job in place is a pair with the TRIED
that came last before it, whichever these are, and of those before it that it was measured with (or its kind with
theirs) with the BEST that do most together, ties: those that came last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from muster.core.progress.learned import learned_of
from muster.core.progress.pairs import LEAST, parts_kept
from muster.policylib.lp import Market
from muster.types import FloatArray, Job, Snapshot, elastic_role

TRIED = 4
"""Jobs in place with which another one is tried in an allocation, of those that it was not measured with."""
BEST = 8
"""Jobs before it with which one in place is a pair by what was measured."""


def with_pairs(
    market: Market,
    jobs: Sequence[Job],
    names: Sequence[str],
    untried: float = 0.0,
    memory: Mapping[str, int] | None = None,
) -> Market:
    """The market with every pair that was measured and does more together than taking turns on some product.
    untried: what jobs in place are believed to do together that were not measured, 0 = they are no pair. memory: MiB
    of a GPU by product, into which both of a pair in place have to fit (None: whatever they need)."""
    pairs: dict[tuple[int, int], list[list[float]]] = {}
    known: dict[tuple[str, str, float], list[float]] = {}  # jobs of one model and size are alike
    met = [was_beside(job) for job in jobs]

    def beside(job: Job, other: Job, gpus: float) -> list[float]:
        key = (job.model, other.model, gpus)
        if key not in known:
            known[key] = packed_speeds(job, other, names)
        return known[key]

    for second, other in enumerate(jobs):
        tries = TRIED if untried else 0
        measured: dict[int, float] = {}
        for first in reversed(range(second)):
            if market.gpus[first] != market.gpus[second] or not (jobs[first].shareable and other.shareable):
                continue
            gpus = float(market.gpus[first])
            least, new = 1.0, True
            if elastic_role(other).devices:
                if not (tries or met[first] or met[second]):
                    continue
                need = jobs[first].gpu_memory + other.gpu_memory
                fits = [memory is None or need <= memory.get(name, 0) for name in names]
                if not any(fits):
                    continue
                least, alone = LEAST, (market.speed[first], market.speed[second])
                parts = [parts_kept(jobs[first], other, name) for name in names]
                new = not any(parts)
                if new and not tries:
                    continue
                tries -= new
                both = in_place(parts, alone, untried)
                both = [[x if fit else 0.0 for x, fit in zip(row, fits, strict=True)] for row in both]
            else:
                both = [beside(jobs[first], other, gpus), beside(other, jobs[first], gpus)]
            worth = [
                a / one + b / two if a > 0.0 and b > 0.0 and one > 0.0 and two > 0.0 else 0.0
                for a, b, one, two in zip(*both, market.speed[first], market.speed[second], strict=True)
            ]
            if max(worth) > least:
                pairs[first, second] = [
                    [x if w > least else 0.0 for x, w in zip(row, worth, strict=True)] for row in both
                ]
                if not new:
                    measured[first] = max(worth)
        for first in sorted(measured, key=lambda row: (-measured[row], -row))[BEST:]:
            del pairs[first, second]
    order = sorted(pairs, key=lambda pair: pair[::-1])
    both_on = np.array([pairs[pair] for pair in order], dtype=np.float64)
    return replace(market, pairs=tuple(order), together=both_on.reshape(len(pairs), 2, len(names)))


def was_beside(job: Job) -> bool:
    """Whether anything is known of it beside another one on its GPUs."""
    lesson = learned_of(job)
    return any(config.beside for config in job.samples) or (lesson is not None and bool(lesson.beside))


def in_place(
    parts: Sequence[tuple[float, float] | None], alone: tuple[FloatArray, FloatArray], untried: float
) -> list[list[float]]:
    """iterations/s of each on each product beside the other, in place. parts: what both keep, by product, None: not
    measured; alone: iterations/s of each; untried: see `with_pairs`."""
    both = [part or (untried / 2.0, untried / 2.0) for part in parts]
    return [[part[at] * float(x) for part, x in zip(both, alone[at], strict=True)] for at in (0, 1)]


def packed_speeds(job: Job, other: Job, names: Sequence[str]) -> list[float]:
    """iterations/s on each product beside another job; 0 where that was not measured."""
    count = job.request or elastic_role(job).max
    found = {c.product: s for c, s in job.samples.items() if c.replicas == count and c.beside == other.model}
    return [found.get(name, 0.0) for name in names]


def rode(job: Job, kept: Mapping[str, Any], snapshot: Snapshot) -> Mapping[str, Any] | None:
    """The memory of a job, with the time since the last look counted to the pair that it rode in."""
    if not kept:
        return None
    now = snapshot.now
    total = {product: meter.at(now) for product, meter in sorted(job.facts.by_product.items())}
    seen = kept.get("seen", kept["had"])
    spent = {name: dict(parts) for name, parts in kept.get("rode", {}).items()}
    partner = job.grant.beside if job.grant is not None else None
    if partner is not None:
        for product, seconds in total.items():
            if seconds > seen.get(product, 0.0):
                parts = spent.setdefault(str(partner), {})
                parts[product] = parts.get(product, 0.0) + seconds - seen.get(product, 0.0)
    return {**kept, "rode": spent, "seen": total}


def there(job: Job, product: str) -> bool:
    """Whether it owns GPUs of the product now."""
    return job.started and job.grant is not None and job.grant.product == product and job.grant.beside is None
