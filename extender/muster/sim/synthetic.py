"""Jobs drawn with a seed: arrivals, sizes, lengths and models each from a stream of their own, so that changing one
leaves the others as they were.

    arrivals   once | every:T | poisson:T (mean gap) | uniform:T (within T) | day (Philly's hours of the day)
    sizes      1=70,2=10,4=15,8=5 (GPUs=weight)
    lengths    fixed:T | uniform:LEAST:MOST | lognormal:T:SIGMA (median) | exponential:T (mean) | philly
    models     one of them for each job, uniform over those that gain up to its size; none: linear and rigid

A length is seconds on the GPUs that the job asks for. T is 90, 90s, 5m, 1.5h or 2d.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.core.bounds import REPLICAS, WORK, shown
from muster.errors import UsageError
from muster.sim.arguments import pairs, seconds
from muster.sim.philly import CLASSES, PHILLY, quantile
from muster.sim.submission import Linear, Model, Submission
from muster.sim.traces.drawn import Drawn
from muster.sim.workload import Cluster, Workload
from muster.types import FloatArray, IntArray

DAY = 86400.0
SIGMA = 100.0
"""Of a logarithm of seconds: beyond it lengths are none, or without end."""
SIZES = "1=70,2=10,4=12,8=8"


@dataclass(frozen=True)
class Recipe:
    """How jobs are drawn; the texts are as the module's head has them. cap: no job is longer (s), 0 = no limit."""

    jobs: int = 100
    seed: int = 0
    arrivals: str = "poisson:5m"
    sizes: str = SIZES
    lengths: str = "lognormal:1h:1.2"
    cap: float = 0.0
    models: Mapping[str, Model] = field(default_factory=dict)


def draw(recipe: Recipe, cluster: Cluster | None = None) -> Workload:
    """The jobs by arrival. Raises UsageError where a text can't be understood."""
    streams = [np.random.default_rng([recipe.seed, stream]) for stream in range(3)]
    at = _arrivals(recipe.arrivals, recipe.jobs, streams[0])
    gpus = _sizes(recipe.sizes, recipe.jobs, streams[1])
    length = _lengths(recipe.lengths, gpus, streams[2])
    if recipe.cap:
        length = np.minimum(length, recipe.cap)
    for option, text, drawn in (
        ("--arrivals", recipe.arrivals, at),
        ("--lengths", recipe.lengths, length),
    ):
        if not (drawn <= WORK.most).all():
            raise UsageError(f"{option}: must come to at most {WORK.most:g} s; found {shown(text)}")
    return made(at, gpus, length, recipe.models, recipe.seed, cluster)


def made(
    at: FloatArray,
    gpus: IntArray,
    length: FloatArray,
    models: Mapping[str, Model],
    seed: int,
    cluster: Cluster | None = None,
) -> Workload:
    """A workload of (J,) arrivals (s), sizes (GPUs) and lengths (s on those GPUs)."""
    give = Drawn(models, seed) if models else None
    submissions = []
    for number, (when, size, lasts) in enumerate(
        zip(at.tolist(), gpus.tolist(), length.tolist(), strict=True)
    ):
        when, lasts = round(when, 3), max(round(lasts, 3), 1.0)
        job = Submission(f"job-{number:04}", when, "linear", lasts * size, size, size, size)
        try:
            submissions.append(give(job, lasts) if give else job)
        except ValueError as error:
            raise UsageError(f"--sizes: {error}") from error
    known: dict[str, Model] = dict(models) if models else {"linear": Linear()}
    return Workload(submissions, known, (), cluster, f"drawn with seed {seed}")


def _arrivals(text: str, jobs: int, rng: np.random.Generator) -> FloatArray:
    kind, values = _parts(text, "--arrivals")
    match kind, values:
        case "once", []:
            return np.zeros(jobs)
        case "every", [gap]:
            return np.arange(jobs, dtype=np.float64) * gap
        case "poisson", [gap]:
            at: FloatArray = np.cumsum(rng.exponential(gap, jobs))
            first: FloatArray = at - at[:1]
            return first
        case "uniform", [within]:
            return np.sort(rng.uniform(0.0, within, jobs))
        case "day", []:
            return of_the_day(jobs, rng)
    raise UsageError(
        f"--arrivals: must be once, every:T, poisson:T, uniform:T or day, as poisson:5m; found {text!r}"
    )


def of_the_day(jobs: int, rng: np.random.Generator) -> FloatArray:
    """Moments of one day, as dense in each hour as Philly's submissions were (Philly has no time zone: its clock)."""
    weights = np.array(PHILLY.hours, dtype=np.float64)
    hours = rng.choice(24, size=jobs, p=weights / weights.sum())
    return np.sort((hours + rng.uniform(0.0, 1.0, jobs)) * 3600.0)


def _sizes(text: str, jobs: int, rng: np.random.Generator) -> IntArray:
    form = f"GPUS=WEIGHT,..., as {SIZES}"
    try:
        weights = {int(size): float(weight) for size, weight in pairs(text, "--sizes", form)}
    except ValueError:
        weights = {}
    if (
        not weights
        or not 1 <= min(weights) <= max(weights) <= REPLICAS.most
        or min(weights.values()) < 0
        or not 0 < sum(weights.values()) < math.inf
    ):
        raise UsageError(f"--sizes: must be {form}, each {REPLICAS}; found {shown(text)}")
    chances = np.array(list(weights.values())) / sum(weights.values())
    found: IntArray = rng.choice(np.array(list(weights), dtype=np.int64), size=jobs, p=chances)
    return found


def _lengths(text: str, gpus: IntArray, rng: np.random.Generator) -> FloatArray:
    kind, _, rest = text.partition(":")
    jobs = len(gpus)
    if kind == "lognormal":
        median, _, sigma = rest.partition(":")
        try:
            if (spread := float(sigma or "1")) > SIGMA:
                raise ValueError
            with np.errstate(divide="ignore", over="ignore"):  # no length, and one without end
                logs: FloatArray = rng.normal(np.log(seconds(median)), spread, jobs)
                return np.exp(logs)
        except (UsageError, ValueError):
            raise UsageError(
                f"--lengths: must be lognormal:MEDIAN:SIGMA, as lognormal:1h:1.2; found {text!r}"
            ) from None
    kind, values = _parts(text, "--lengths")
    match kind, values:
        case "fixed", [length]:
            return np.full(jobs, length)
        case "uniform", [least, most] if least <= most:
            return rng.uniform(least, most, jobs)
        case "exponential", [mean]:
            return rng.exponential(mean, jobs)
        case "philly", []:
            return philly_lengths(gpus, rng)
    raise UsageError(
        "--lengths: must be fixed:T, uniform:LEAST:MOST, lognormal:T:SIGMA, exponential:T or philly; "
        f"found {text!r}"
    )


def philly_lengths(gpus: IntArray, rng: np.random.Generator) -> FloatArray:
    """Durations (s) by class of size, between Philly's quantiles."""
    draws = rng.uniform(0.0, 1.0, len(gpus))
    last = len(CLASSES) - 1
    return np.array(
        [
            quantile(PHILLY.durations[min(bisect_left(CLASSES, size), last)], at)
            for size, at in zip(gpus.tolist(), draws.tolist(), strict=True)
        ]
    )


def _parts(text: str, option: str) -> tuple[str, Sequence[float]]:
    kind, *values = text.split(":")
    try:
        found = [seconds(value) for value in values]
    except UsageError as error:
        raise UsageError(f"{option} {text}: {error}") from error
    if any(value > WORK.most for value in found):
        raise UsageError(f"{option}: a time must be at most {WORK.most:g} s; found {shown(text)}")
    return kind, found
