"""When a job will be done in another configuration: SideCar's prediction, with all its terms.

Source: papers/adaptive-gpu-scheduler-sidecar, III-C: "the predicted completion time of a new job is the sum of job
initialization time in Kubernetes, training process initialization time, model training time, model checkpoint time
before termination, training process termination time, and job termination time in Kubernetes"; of a running job
that is reshaped, the checkpoint, termination and initialization of its training process, its training, and the
same end. Where it has to be restarted (on another node, or for want of a SideCar) the job's own termination and
initialization come on top.

Training time is remaining iterations over the iterations/s of the offline profile (its Table IV: by number and
product of GPUs), which is `Job.samples` here; what the profile lacks follows the owner's declared curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.cached import MIB, cached
from muster.core.progress.curves import alone, at_count, interpolated
from muster.core.progress.estimate import left_of, samples_a_step, step_at
from muster.core.progress.fits import fit_convergence
from muster.types import Job


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds that a job spends not training, from the offline profile (III-B.1).

    Fig. 3 gives sums only. job_start: pod and container, 263 - 180 = 83 s in (c). job_stop: 174 - 83 = 91 s from
    the end of one job to the pod of the next in (a). checkpoint + process_stop + process_start = 27 s when a job
    shrinks in (c); thirds of it are an assumption (they only ever occur as this sum and at a job's very start and
    end). more: a process that comes back with more GPUs took 37 - 27 = 10 s longer. These are the paper's; where a
    change of the job was measured, see `Overheads.measured`.
    """

    job_start: float = 83.0
    process_start: float = 9.0
    checkpoint: float = 9.0
    process_stop: float = 9.0
    job_stop: float = 91.0
    more: float = 10.0

    @property
    def terms(self) -> tuple[float, float, float, float, float, float]:
        """In the order above."""
        return (
            *(self.job_start, self.process_start, self.checkpoint),
            *(self.process_stop, self.job_stop, self.more),
        )


@dataclass(frozen=True, slots=True)
class Overheads(Terms):
    """What they come to for one job."""

    @property
    def beginning(self) -> float:
        return self.job_start + self.process_start

    @property
    def ending(self) -> float:
        return self.checkpoint + self.process_stop + self.job_stop

    def change(self, *, grows: bool, restart: bool) -> float:
        process = self.checkpoint + self.process_stop + self.process_start + (self.more if grows else 0.0)
        return process + (self.job_stop + self.job_start if restart else 0.0)

    def measured(self, seconds: float, *, restart: bool) -> Overheads:
        """All terms in their proportion, so that a change that makes no job larger takes `seconds` (above 0): what a
        cluster measures is one sum, from the change until training goes on. restart: whether that was a restart."""
        usual = self.change(grows=False, restart=restart)
        if usual <= 0.0:
            return self
        return Overheads(*(term * seconds / usual for term in self.terms))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is believed of one job. left: work still to be done, nan = unknown; rates: work done a second by
    (product, replicas); curve: speed relative to one replica at 0, 1, 2 ... (empty: linear)."""

    left: float
    rates: Mapping[tuple[str, int], float]
    curve: tuple[float, ...]

    def rate(self, replicas: int, product: str) -> float:
        """Measured; else the curve, scaled by the nearest measured count, of this product if there is any."""
        found = self.rates.get((product, replicas))
        if found is not None:
            return found
        if not self.rates:
            return self.relative(replicas)
        of_product = [(p, n) for p, n in self.rates if p == product] or list(self.rates)
        known = min(of_product, key=lambda c: (abs(c[1] - replicas), c))
        return self.rates[known] * self.relative(replicas) / self.relative(known[1])

    def relative(self, replicas: int) -> float:
        return at_count(self.curve, replicas)

    def training(self, replicas: int, product: str) -> float:
        """Seconds of training that are left, nan = unknown, +inf where it can't run so."""
        if math.isnan(self.left) or self.left <= 0.0:
            return self.left
        rate = self.rate(replicas, product)
        return self.left / rate if rate > 0.0 else math.inf


def forecast(
    job: Job, now: float, points: tuple[tuple[float, float], ...] = (), ceiling: float = 1.0
) -> Forecast:
    """The forecast of a job at `now` (s).

    Iterations left: its declared total less what is done; else, where it stops at a target of its accuracy, by
    the accuracy curve through `points` (iterations, accuracy) and its newest report; else the owner's declared
    seconds on one replica. Those are seconds on the product on which one replica is fastest.
    """
    curve = interpolated(job.speed)
    rates = {
        (config.product, config.replicas): speed
        for config, speed in alone(job.samples)
        if len(config.nodes) <= 1 and speed > 0.0
    }
    left = _iterations(job, now, points, ceiling)
    if not math.isnan(left):
        return Forecast(left * samples_a_step(job), rates, curve)
    if job.remaining_work is None:
        return Forecast(math.nan, rates, curve)
    seconds = left_of(job, now)
    one = max((speed for (_, count), speed in rates.items() if count == 1), default=0.0)
    if one > 0.0:
        return Forecast(seconds * one, rates, curve)
    return Forecast(seconds, {}, curve)


def _iterations(job: Job, now: float, points: tuple[tuple[float, float], ...], ceiling: float) -> float:
    report = job.report
    if report is None:
        return math.nan
    step = step_at(job, now)
    if report.total > 0.0:
        return max(0.0, report.total - step)
    if report.target is None:
        return math.nan
    known = dict(points)
    if report.loss is not None and report.step > 0.0:
        known[report.step] = report.loss
    if len(known) < 3:
        return math.nan
    end = _end(tuple(sorted(known.items())), ceiling, report.target)
    return max(0.0, end - step) if math.isfinite(end) else math.nan


@cached("ends of training", 8 * MIB)  # asked for by share, estimate and every cycle until the next report
def _end(points: tuple[tuple[float, float], ...], ceiling: float, target: float) -> float:
    """The iteration at which the curve through `points` is at `target`; nan where there is no curve."""
    fitted = fit_convergence([k for k, _ in points], [a for _, a in points], ceiling, target)
    return math.nan if fitted is None else fitted.step_at(target)


def is_curve(points: object) -> bool:
    """Whether these are pairs of numbers, as (iterations, accuracy)."""
    if not isinstance(points, Sequence) or isinstance(points, str):
        return False
    return all(
        isinstance(pair, Sequence) and len(pair) == 2 and all(type(x) in (int, float) for x in pair)
        for pair in points
    )
