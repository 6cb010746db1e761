"""Estimate `reported`: what jobs report, as far as it goes, then what is declared, learned or known of their model.

The live cluster's own. Sources: papers/afs-coddl 4.5 (overestimate first, re-adjust later), Optimus's speed law and
loss curve (fits of papers/adaptive-gpu-scheduler-sidecar III-C and papers/gang-scheduler-coach 4.2).

**Speed**, the first of these that there is, and bounds by the later ones (`core.progress.curves.curve`):

1. measured: the medians of the job's own reports (`core.progress.report_filter`), of one GPU product (the one that it
   runs on, else the one with most measured counts). Where it runs now counts before other placements of as many
   replicas, else the best of them does. With parameter servers: Coach's surface over workers and servers;
2. declared: `muster.dev/speed`. A job that has reported nothing is believed just as `declared` believes it;
3. learned: measured of a job with the same image and model before (`core.progress.learned`, in
`job.memory["learned"]`);
4. a reference table of models (`policylib.references`), by the model's name, the GPU product and the batch;
5. overestimate first: linear. A job that reports and is not measured yet is so up to its fair part of the GPUs, or
   what it has; one that reports nothing without a bound, since it may never: GPUs must not idle for it.

**Remaining** (s on one replica), the first of these: iterations left (`total` - `step`; unknown once the step is
beyond its total) over the speed on one replica, or as a part of what is declared where no speed is known; those that
the loss curve needs until the job's `target` (none left once it was there RUNNING points in a row); declared work
less progress; the iterations that such jobs took before; unknown.

**Cost** of a change: measured of this job, else of such jobs before, else `cost`.

`observe` keeps (bounded, and changed seldom since each change is written): `losses`, 64 points of the loss series,
ever wider apart; `converged`; `batch`, samples of an iteration; and `expected`/`compared`: the speed that was
believed of a number of replicas before it was tried, and the last COMPARED comparisons [time, replicas, believed,
measured].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from muster.cached import MIB, cached
from muster.core.progress.curves import Points, curve, interpolated, with_servers
from muster.core.progress.estimate import declared
from muster.core.progress.fits import fit_convergence
from muster.core.progress.learned import Lesson, learned_of
from muster.core.progress.report_filter import config_of
from muster.points import Estimation
from muster.policylib.references import PAPER, References
from muster.types import GPU, PRODUCT, Config, Job, Report, Snapshot, elastic_role

NAME = "reported"
MOST = 1024
"""Replicas up to which a curve is made; the core stays at its last speed beyond."""
LOSSES = 64
RUNNING = 3
FARTHEST = 100.0
"""Times the iterations done, beyond which the end of a loss curve is unknown: it may never come."""
COMPARED = 8
AHEAD = 30.0
"""s for which training is believed to have gone on since its last report."""
SERVERS = ("server", "ps", "parameter-server")


class Believed(NamedTuple):
    """speeds: at 0, 1 ... replicas, in the unit of the measurements where there are any, empty = linear.
    one: speed on one replica in samples/s (iterations/s), 0 = never measured.
    """

    speeds: tuple[float, ...]
    one: float


@dataclass(frozen=True, slots=True)
class Reported:
    """fair: whether a job that reports is bounded by its fair part until it is measured, where nothing else is known.
    cost: s of a change where none was measured. ceiling: what evaluations rise towards where they rise (1.0:
    accuracies).
    """

    fair: bool = True
    cost: float = 30.0
    ceiling: float = 1.0

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:
        """Relative speeds at 0, 1 ... replicas of the elastic role, remaining work, and speed and cost of changes."""
        lesson = learned_of(job)
        if not job.samples and job.report is None and job.speed and lesson is None:
            return declared(job, snapshot.now)
        believed = self.believed(job, snapshot, lesson)
        speeds = believed.speeds
        one = speeds[1] if len(speeds) > 1 else 1.0
        cost = job.facts.last_cost or (lesson.cost if lesson is not None else 0.0) or self.cost
        return Estimation(
            remaining=self.remaining(job, snapshot, believed.one, lesson),
            speeds=tuple([s / one for s in speeds]),
            speed=lambda config: _speed(job, config, speeds),
            cost=lambda before, after: 0.0 if before is None or before == after else cost,
        )

    # ---- speed ----

    def believed(self, job: Job, snapshot: Snapshot, lesson: Lesson | None) -> Believed:
        """The curve by the first source that there is."""
        role = elastic_role(job)
        most = max(1, min(role.max, MOST))
        owned = interpolated(job.speed)
        learned = lesson.curve(role.name) if lesson is not None else ()
        if job.samples:
            points = points_of(job, snapshot)
            if points:
                servers = _servers(job, role.name)
                if servers:
                    surface = with_servers(_surface_points(job, role.name, servers), servers[1], most)
                    learned = surface or learned
                prior = owned or ((0.0, *reference(job, snapshot)) if len(points) == 1 else ())
                speeds = curve(points, most, learned, prior, owned)
                return Believed(speeds, speeds[1])
        one = 0.0
        if lesson is not None and learned and lesson.counts_samples == _tells_samples(job, lesson):
            one = learned[1]
        if owned:
            return Believed(owned, one)
        if lesson is not None and learned:
            return Believed(curve(lesson.points(role.name), most), one)
        found = reference(job, snapshot)
        if found:
            return Believed(curve(tuple(enumerate(found, start=1)), most), 0.0)
        if self.fair and job.report is not None:
            fair = min(max(fair_part(job, snapshot), len(role.on)), most)
            return Believed(tuple([float(n) for n in range(fair + 1)]), 0.0)
        return Believed((), 0.0)

    # ---- length ----

    def remaining(self, job: Job, snapshot: Snapshot, one: float, lesson: Lesson | None) -> float:
        """Seconds on one replica; one: speed there in the unit of the samples, 0 = not measured."""
        report, now = job.report, snapshot.now
        if report is None:
            believed = declared(job, now).remaining
            if math.isnan(believed) and lesson is not None and lesson.work and one > 0.0:
                return max(0.0, lesson.work / one - job.facts.progress.at(now))
            return believed
        step = report.step
        if job.running and report.speed > 0.0:
            step += report.speed * min(AHEAD, max(0.0, now - report.at))
        if report.total > 0.0:
            if report.step > report.total:
                return math.nan
            left = report.total - min(step, report.total)
            if one > 0.0:
                return left * _batch(job) / one
            if job.remaining_work is not None:
                return job.remaining_work * left / report.total
            return math.nan
        if report.target is not None and one > 0.0:
            end = self.end(job)
            if not math.isnan(end):
                return max(0.0, end - step) * _batch(job) / one
        if job.remaining_work is not None:
            return max(0.0, job.remaining_work - job.facts.progress.at(now))
        if lesson is not None and lesson.work > step * _batch(job) and one > 0.0:
            return lesson.work / one - step * _batch(job) / one
        return math.nan

    def end(self, job: Job) -> float:
        """The iteration at which the loss is where training stops, nan where the curve does not tell."""
        report = job.report
        if report is None or report.target is None:
            return math.nan
        losses = losses_of(job)
        if report.loss is not None and report.step > 0.0 and (not losses or losses[-1][0] < report.step):
            losses = (*losses, (report.step, report.loss))
        if _reached(losses, report.target):
            return 0.0
        return _end(losses, report.target, self.ceiling)

    # ---- memory ----

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """What is kept of a job's reports, None where nothing is new."""
        report = job.report
        if report is None:
            return None
        before = job.memory.get(NAME)
        kept: dict[str, object] = dict(before) if isinstance(before, Mapping) else {}
        losses = _thinned(losses_of(job), report)
        if losses is not None:
            kept["losses"] = [list(point) for point in losses]
            kept["converged"] = converged(losses, report.target)
        batch = _measured_batch(job, snapshot)
        if batch and abs(batch - _number(kept.get("batch"))) > 0.02 * batch:
            kept["batch"] = float(f"{batch:.6g}")
        kept |= self._compared(job, snapshot, kept)
        return kept if kept != before else None

    def _compared(self, job: Job, snapshot: Snapshot, kept: Mapping[str, object]) -> dict[str, object]:
        """What is believed of the present number of replicas until it is measured; then both."""
        count = len(elastic_role(job).on)
        if not count or not job.samples:
            return {}
        measured = dict(points_of(job, snapshot)).get(count, 0.0)
        before = kept.get("expected")
        expected = before if isinstance(before, Sequence) and len(before) == 2 else (0, 0.0)
        if measured <= 0.0:
            speeds = self.believed(job, snapshot, learned_of(job)).speeds
            believed = speeds[min(count, len(speeds) - 1)] if speeds else 0.0
            if expected[0] == count and abs(believed - _number(expected[1])) <= 0.02 * believed:
                return {}
            return {"expected": [count, float(f"{believed:.6g}")]}
        if expected[0] != count or not _number(expected[1]):
            return {}
        said = [round(snapshot.now, 3), count, _number(expected[1]), float(f"{measured:.6g}")]
        found = kept.get("compared")
        rest = list(found) if isinstance(found, Sequence) else []
        return {"expected": [0, 0.0], "compared": [*rest, said][-COMPARED:]}


# ---- measured speeds ----


def points_of(job: Job, snapshot: Snapshot) -> Points:
    """(replicas of the elastic role, speed) as measured, by replicas; see the module's docstring."""
    role = elastic_role(job)
    servers = _servers(job, role.name) if len(job.roles) > 1 else None
    alone = []
    for config, speed in job.samples.items():
        count = config.count(role.name)
        if count and speed > 0.0 and not config.beside and not (servers and _other(config, servers)):
            alone.append((config.product, count, speed))
    kinds = {product for product, _, _ in alone}
    if len({count for _, count, _ in alone}) == len(alone) and len(kinds) <= 1:
        return tuple(
            sorted([(count, speed) for _, count, speed in alone])
        )  # most jobs: nothing to choose from
    now = config_of(job, lambda node: _product(snapshot, node)) if job.running else Config()
    chosen = now.product
    if chosen not in kinds or not job.running:
        chosen = max(kinds, key=lambda kind: (sum(1 for product, _, _ in alone if product == kind), kind))
    points: dict[int, float] = {}
    for product, count, speed in alone:
        if product == chosen:
            points[count] = max(speed, points.get(count, 0.0))
    if now.count(role.name) in points and now in job.samples:
        points[now.count(role.name)] = job.samples[now]
    return tuple(sorted(points.items()))


def _other(config: Config, servers: tuple[str, int]) -> bool:
    return config.count(servers[0]) != servers[1]


def _servers(job: Job, elastic: str) -> tuple[str, int] | None:
    """The role of the parameter servers, and how many there are now (else at least)."""
    for role in job.roles:
        if role.name in SERVERS and role.name != elastic:
            return role.name, role.bound or max(1, role.min)
    return None


def _surface_points(job: Job, elastic: str, servers: tuple[str, int]) -> tuple[tuple[int, int, float], ...]:
    best: dict[tuple[int, int], float] = {}
    for config, speed in job.samples.items():
        counts = config.count(elastic), config.count(servers[0])
        if speed > 0.0 and min(counts) > 0 and not config.beside:
            best[counts] = max(speed, best.get(counts, 0.0))
    return tuple((w, p, s) for (w, p), s in sorted(best.items()))


def _speed(job: Job, config: Config, speeds: tuple[float, ...]) -> float:
    """Of any configuration: as measured, else the curve, scaled by what is measured of the same product."""
    found = job.samples.get(config)
    if found is not None:
        return found
    name = elastic_role(job).name
    count = config.count(name)
    if not speeds:
        return float(count)
    believed = speeds[min(count, len(speeds) - 1)]
    own = [
        s / speeds[min(c.count(name), len(speeds) - 1)]
        for c, s in job.samples.items()
        if c.product == config.product and c.beside == config.beside and c.count(name)
    ]
    return believed * (sum(own) / len(own) if own else 1.0)


def _product(snapshot: Snapshot, node: str) -> str:
    row = snapshot.nodes.index.get(node)
    return "" if row is None else snapshot.nodes.records[row].labels.get(PRODUCT, "")


def fair_part(job: Job, snapshot: Snapshot) -> int:
    """Replicas of the elastic role in an equal share M / n of the GPUs, at least what it needs to run."""
    nodes, role = snapshot.nodes, elastic_role(job)
    column = nodes.resource_index.get(GPU)
    gpus = 0 if column is None else int(nodes.total[:, column].sum())
    count = sum(
        [other.max > 0 for other in snapshot.jobs.values()]
    )  # one that is over has no replica to come
    fair = gpus // max(1, count) // max(1, role.shape.gpus)
    return max(1, role.min, fair)


def reference(job: Job, snapshot: Snapshot, known: References = PAPER) -> tuple[float, ...]:
    """Speeds at 1, 2 ... replicas by the reference table; empty for a model or a product that it does not know."""
    role = elastic_role(job)
    if job.model not in known.characteristics:
        return ()
    product = next((_product(snapshot, m.node) for m in role.on), "")
    if not product:
        _, names = snapshot.nodes.domains(PRODUCT)
        product = names[0] if names else ""
    match = next((p for p in known.products if p and p in product.replace(" ", "")), "")
    gpus = max(1, role.shape.gpus)
    batch = job.batch or max(known.batches)
    speeds = [known.speed(job.model, match, n * gpus, batch) for n in range(1, known.most // gpus + 1)]
    return tuple(speeds) if speeds and min(speeds) > 0.0 else ()


# ---- iterations and losses ----


def _tells_samples(job: Job, lesson: Lesson) -> bool:
    """Whether the job counts in samples; before its first report it is believed to do as others did."""
    return lesson.counts_samples if job.report is None else job.report.samples > 0.0


def _batch(job: Job) -> float:
    """Samples of an iteration where speeds are samples/s, else 1."""
    report = job.report
    if report is None or report.samples <= 0.0:
        return 1.0
    kept = job.memory.get(NAME)
    found = _number(kept.get("batch")) if isinstance(kept, Mapping) else 0.0
    if found > 0.0:
        return found
    return report.samples / report.step if report.step > 0.0 else 1.0


def _measured_batch(job: Job, snapshot: Snapshot) -> float:
    """The same by the speed of the present configuration, which is told in both units; 0 where it is not."""
    report = job.report
    if report is None or report.samples <= 0.0 or report.speed <= 0.0 or not job.samples:
        return 0.0
    now = config_of(job, lambda node: _product(snapshot, node))
    return job.samples.get(now, 0.0) / report.speed


def losses_of(job: Job) -> tuple[tuple[float, float], ...]:
    """(iterations, loss) as kept."""
    kept = job.memory.get(NAME)
    found = kept.get("losses") if isinstance(kept, Mapping) else None
    if not isinstance(found, Sequence):
        return ()
    return tuple((_number(p[0]), _number(p[1])) for p in found if isinstance(p, Sequence) and len(p) == 2)


def _thinned(
    losses: tuple[tuple[float, float], ...], report: Report
) -> tuple[tuple[float, float], ...] | None:
    """With the newest loss, None where it is not kept: the points are at least a 48th of their span apart."""
    if report.loss is None or report.step <= 0.0:
        return None
    if losses and report.step < losses[-1][0]:  # from a checkpoint: what came after it will come again
        losses = tuple(p for p in losses if p[0] < report.step)
    elif losses and (
        report.step == losses[-1][0]
        or (len(losses) >= 8 and report.step - losses[-1][0] < (losses[-1][0] - losses[0][0]) / 48.0)
    ):
        return None
    losses = (*losses, (report.step, report.loss))
    if len(losses) > LOSSES:
        losses = losses[-1:0:-2][::-1]
    return losses


def _sound(losses: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    """Without values that lie off the median of theirs and both neighbours' by more than half of it: one wrong report
    is to bend no curve. At the ends the two nearest count as neighbours."""
    if len(losses) < 4:
        return list(losses)
    values = [v for _, v in losses]
    last = len(values) - 1
    result = []
    for i, (step, value) in enumerate(losses):
        middle = min(max(i, 1), last - 1)
        usual = sorted(values[middle - 1 : middle + 2])[1]
        if abs(value - usual) <= 0.5 * abs(usual):
            result.append((step, value))
    return result


def _reached(losses: tuple[tuple[float, float], ...], target: float) -> bool:
    """Whether the last RUNNING points are at the target, which lies below the first value or above it."""
    if len(losses) < RUNNING:
        return False
    rises = losses[0][1] < target
    return all((v >= target) if rises else (v <= target) for _, v in losses[-RUNNING:])


def converged(losses: tuple[tuple[float, float], ...], target: float | None) -> bool:
    """At its target; without one: its last quarter has gained less than a thousandth of all that was gained."""
    if target is not None:
        return _reached(losses, target)
    if len(losses) < 16:
        return False
    values = [v for _, v in _sound(losses)]
    quarter = len(values) // 4
    last, before = values[-quarter:], values[-2 * quarter : -quarter]
    gained = abs(sum(last) - sum(before)) / quarter
    return gained <= 1e-3 * (max(values) - min(values))


@cached("ends of training that reports", 8 * MIB)
def _end(losses: tuple[tuple[float, float], ...], target: float, ceiling: float) -> float:
    """The iteration at which the curve through the points is at `target`; nan where there is no curve."""
    points = _sound(losses)
    if len(points) < 4:
        return math.nan
    rises = points[0][1] < target
    top = math.nan if not rises else (ceiling if target < ceiling else 100.0)
    fitted = fit_convergence([k for k, _ in points], [v for _, v in points], top, target)
    end = math.inf if fitted is None else fitted.step_at(target)
    return end if end <= FARTHEST * points[-1][0] else math.nan


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
