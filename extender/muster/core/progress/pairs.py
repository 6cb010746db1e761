"""How two jobs train that share a GPU, as measured: what part of its speed alone each of them keeps there.

A job's speed beside another one is a sample of its own (`Config.beside`), and so never passes for one that it has
alone. Both parts together are what the pair is worth: 1.0 is what taking turns gives. Below LEAST it isn't worth its
trouble: no such pair is made on a cluster, and one that is measured so is taken apart (`core.sharing.gpu_sharing`).
What is known of a job is its own samples, else what jobs of its kind have taught (`core.progress.learned`). Where
only one of the two is known, the other counts as slowed as much: by the law of the references both are
(`policylib.references`). Only jobs in place share on a cluster; of others nothing is said here.
"""

from __future__ import annotations

from hashlib import sha256

from muster.core.progress.learned import NAMES, learned_of, part_of
from muster.types import Job, elastic_role

LEAST = 1.1
"""Sum of both parts from which two jobs may share a GPU."""


def name_beside(job: Job, other: Job) -> str:
    """What a job's configurations call the one on its GPU: its model, which another tenant is not to read; of such a
    one, or of one without a model, a digest that is the same for all of its kind."""
    known = bool(other.model) and max(len(other.model), len(other.image)) <= NAMES
    if known and job.key.namespace == other.key.namespace:
        return other.model
    kind = (other.key.namespace, other.image, other.model) if known else tuple(other.key)
    return f"#{sha256(repr(kind).encode()).hexdigest()[:16]}"


def part_kept(job: Job, other: Job, product: str) -> float | None:
    """The job's speed beside such another one over its speed alone, on a GPU of the product; of several
    configurations as measured last (`Track.medians` has that order). None where nobody knows it, and of jobs that are
    not in place."""
    if not job.roles or not elastic_role(job).devices:
        return None
    beside, lesson = name_beside(job, other), learned_of(job)
    tells_samples = job.report is not None and job.report.samples > 0.0
    same_unit = lesson if lesson is not None and lesson.counts_samples == tells_samples else None
    found = [
        config
        for config in job.samples
        if (config.beside, config.product) == (beside, product) and config.batch in (0, job.batch)
    ]
    for config in reversed(found):
        part = part_of(job.samples, config, same_unit)
        if part is not None:
            return part
    return lesson.parts().get((product, beside)) if lesson is not None else None


def parts_kept(job: Job, other: Job, product: str) -> tuple[float, float] | None:
    """What each of the two keeps on one GPU of the product, None where nothing was measured of them."""
    one, two = part_kept(job, other, product), part_kept(other, job, product)
    if one is None and two is None:
        return None
    return (one or two or 0.0, two or one or 0.0)


def too_slow(job: Job, other: Job, product: str) -> str:
    """Why they are not to share a GPU, for their owners; "" where they may."""
    parts = parts_kept(job, other, product)
    if parts is None or sum(parts) >= LEAST:
        return ""
    return (
        f"on one GPU with another job the two trained at {sum(parts):.2f} times the speed of one alone, and they "
        f"share one from {LEAST:g} times on"
    )
