# Over 300 lines: what is believed of a report is decided in this one place.
"""From what replicas report to what can be believed of it: pure steps of a `Track`, a few microseconds each.

`follow` takes a report; `samples`, `report`, `cost`, `silent_from` and `every` read, `worth_telling` says when a
cycle and a write are due. Nothing that is reported is trusted:

- A number that is none (NaN, infinite, negative, beyond 1e15) is left out, and with a bad `step` the whole report.
  Times are the server's; one from the future counts as now, one from before the last report is late and left out.
- *Several replicas* tell the same progress: the farthest step counts, from when it was first told.
- *A smaller step* is a late duplicate while it is no more than LAG seconds of work behind. Farther behind it is a
  restart from a checkpoint: at once where no speed was measured since the last change; else if the next report goes
  on from it while for PATIENCE seconds nobody has told more than before.
- *A step that is too far*, by more than PLAUSIBLE (10) times the known speed over the time that has passed (more in a
  configuration that is new to the job: `limit_of`), is kept in doubt. It is believed if the next report goes on from
  it, no faster than PLAUSIBLE times that; and after ODD (3), each farther than the last, what was measured here is
  forgotten (all, where that is not enough): it was wrong. A `total` that more than doubles or halves is
  believed when it is told twice.
- Speeds and costs are measured from what is believed: see `measured`.
- *Silence* begins after SILENT seconds without a report, or PAUSES times the longest pause after which the job went
  on; later where its replicas have just changed. A pause that was silence counts as one that just was none, so a
  job that reports each half hour is called silent a few times, and one that hung once is found again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median

from muster.core.progress.batch import MOST as BATCH
from muster.core.progress.history import (
    EMPTY,
    MOST,
    NONE,
    PLAUSIBLE,
    Point,
    Track,
    doubted,
    from_plain,
    to_plain,
)
from muster.core.progress.measure import CALM, JOINING, ODD, QUICK, changed, closed, measured
from muster.types import Config, Job, Phase, Report, Role

__all__ = (
    "EMPTY",
    "PLAUSIBLE",
    "Track",
    "config_of",
    "cost",
    "costs",
    "every",
    "follow",
    "from_plain",
    "report",
    "samples",
    "silent_from",
    "to_plain",
    "trained_on",
    "worth_telling",
)

LAG = 5.0
"""s of work by which a replica's report may lie behind the farthest."""
PATIENCE = 15.0
GRACE = 2.0
"""s that are added to the time between two reports: steps are whole, and reports come in bursts."""
SILENT, PAUSES = 60.0, 4.0
A_REPLICA = 0.2
"""s for each replica that a single one of them waits between reports, as it is asked to (server/reports.every)."""
SKEW = 60.0
"""s by which the last report may lie in the future; more means that a clock was set back."""
DECADE = 20
"""Tells of a job without a total for each e-fold of its steps; likewise parts of a total."""


# ---- a report ----


def follow(track: Track, report: Report, config: Config, now: float) -> Track:
    """The track after a report that arrived while the bound replicas form `config`; `report.speed` is not read."""
    after = _followed(track, report, config, now)
    pause = after.heard - track.heard
    if pause <= max(track.usual, SILENT / PAUSES) or not track.heard or track.heard < after.since:
        return after
    return replace(after, usual=min(pause, _patience(track)))


def _followed(track: Track, report: Report, config: Config, now: float) -> Track:
    if config is not track.config and config != track.config:
        track = changed(track, config, now, "resize" if track.config.replicas else "start")
    if not 0.0 <= report.step <= MOST:
        return track
    at = min(report.at, now) if report.at > 0.0 else now  # NaN is not above 0
    if at < track.heard <= now + SKEW:
        return track
    if 0 < report.batch <= BATCH and report.batch != track.told_batch:
        track = replace(track, told_batch=report.batch)
        if track.config.replicas:  # another batch size is another configuration
            track = changed(track, replace(track.config, batch=report.batch), now, "resize")
    told = report.samples if 0.0 <= report.samples <= MOST else 0.0
    point = Point(at, report.step, told)
    last = track.newest
    if last is None:  # a change before it has no point to be measured from
        return replace(track, newest=_clean(report, at, None, 0.0), heard=at, counts=1, change=None)
    if track.heard > now + SKEW:  # a clock was set back
        last = replace(last, at=at)
        since = min(track.since, at)
        track = replace(track, newest=last, heard=at, since=since, base=None, doubt=None)
    ahead = point.step - last.step
    if ahead < 0.0:
        return _behind(track, report, point, last)
    if ahead > _reach(track, at - last.at):
        doubt = track.doubt
        farther = doubt if doubt is not None and last.step < doubt.step < point.step else None
        odd = track.odd + 1 if farther is not None else max(1, track.odd)
        if farther is not None and point.step - farther.step <= PLAUSIBLE * _reach(track, at - farther.at):
            track = replace(track, base=doubt if track.base is not None else None, odd=odd)
        elif odd < ODD:
            return replace(track, heard=at, doubt=point, odd=odd)
        else:
            track = replace(track, base=None)
        if odd >= ODD:  # also where one report after the other goes on from the last one
            track = replace(track, odd=0)
            while ahead > _reach(track, at - last.at):
                track = doubted(track)
    if ahead == 0.0:
        newest = replace(
            _clean(report, last.at, track, last.speed), boundary=report.boundary or last.boundary
        )
        return replace(
            track,
            newest=last if newest == last else newest,
            heard=at,
            counts=min(2, track.counts + 1),
            doubted_total=_total(report, track)[1],
        )
    return _advanced(track, report, point)


def _advanced(track: Track, report: Report, point: Point) -> Track:
    """The step is believed: it is the newest, a change may be over, a speed may be measured."""
    last = track.newest
    total, doubted = _total(report, track)
    newest = _clean(report, point.at, track, last.speed if last is not None else 0.0, total)
    change = track.change
    if (
        change is not None
        and change.before is not None
        and change.passed is None
        and point.step > change.before.step
        and track.config.replicas
    ):
        change = change._replace(passed=point)
    track = Track(  # a constructor's call is several times faster than dataclasses.replace
        track.config,
        track.since,
        newest,
        point.at,
        min(2, track.counts + 1),
        track.base,
        track.batch,
        track.speeds,
        track.medians,
        track.limit,
        track.odd,
        track.costs,
        change,
        None,
        doubted,
        track.old,
        track.usual,
        track.told_batch,
    )
    return closed(measured(track, point))


def _behind(track: Track, report: Report, point: Point, last: Report) -> Track:
    """A smaller step than before: late, or a restart from a checkpoint (see the module's docstring)."""
    here = track.medians.get(track.config) or min(track.medians.values(), default=0.0)
    rate = here / (track.batch or 1.0)
    slack = max(2.0, rate * LAG if rate else min(100.0, 0.01 * last.step))
    if last.step - point.step <= slack:
        return replace(track, heard=point.at)
    doubt = track.doubt
    restarted = last.speed <= 0.0 or (
        doubt is not None
        and doubt.step < point.step
        and doubt.at < point.at
        and point.at - last.at >= PATIENCE
    )
    if not restarted:
        return replace(track, heard=point.at, doubt=point)
    total, doubted = _total(report, track)
    newest = _clean(report, point.at, track, last.speed, total)
    return replace(
        track,
        newest=replace(newest, epoch=report.epoch if 0 <= report.epoch <= MOST else 0),
        heard=point.at,
        counts=1,
        base=None,
        doubt=None,
        doubted_total=doubted,
    )


def _reach(track: Track, gap: float) -> float:
    """Steps that are believed at once, `gap` seconds after the last report."""
    if track.limit == math.inf:
        return math.inf
    return track.limit / (track.batch or 1.0) * (max(0.0, gap) + GRACE) + 1.0


def _clean(
    report: Report, at: float, track: Track | None, speed: float, total: float | None = None
) -> Report:
    """The report without what is no number; what it does not tell stays as it was."""
    last = track.newest if track is not None else None
    if total is None:
        total = _total(report, track)[0]
    loss = report.loss if report.loss is not None and abs(report.loss) <= MOST else None
    target = report.target if report.target is not None and abs(report.target) <= MOST else None
    epoch = report.epoch if 0 <= report.epoch <= MOST else 0
    length = report.steps_per_epoch if 0.0 < report.steps_per_epoch <= MOST else 0.0
    told = report.samples if 0.0 <= report.samples <= MOST else 0.0
    loss_at = 0.0
    if last is not None:
        told = told or last.samples
        if loss is None and last.loss is not None:
            loss, loss_at = last.loss, last.loss_at or last.at
        target = last.target if target is None else target
        epoch = epoch or last.epoch
        length = length or last.steps_per_epoch
    workers = report.workers if 0 < report.workers <= MOST else 0
    batch = report.batch if 0 < report.batch <= BATCH else last.batch if last is not None else 0
    noise = report.noise if 0.0 < report.noise <= MOST else last.noise if last is not None else 0.0
    return Report(
        *(at, report.step, total, epoch, length, loss, speed, report.boundary, target, told, workers, batch),
        noise=noise,
        loss_at=loss_at,
    )


def _total(report: Report, track: Track | None) -> tuple[float, float]:
    """The believed total, and one that is in doubt."""
    new = report.total if 0.0 < report.total <= MOST else 0.0
    last = track.newest.total if track is not None and track.newest is not None else 0.0
    if not new or new == last:
        return last, track.doubted_total if track is not None and not new else 0.0
    if not last or 0.5 <= new / last <= 2.0 or (track is not None and new == track.doubted_total):
        return new, 0.0
    return last, new


# ---- reading ----


def samples(track: Track) -> Mapping[Config, float]:
    """Median speed by configuration, samples/s of a job that tells samples, else iterations/s. The same object
    until one of them changes."""
    return track.medians


def report(track: Track) -> Report | None:
    """The farthest believed report; its speed (iterations/s) is 0 until measured since the last change."""
    return track.newest


def costs(track: Track) -> tuple[float, ...]:
    """Seconds of the last three changes, oldest first."""
    return track.costs


def cost(track: Track) -> float:
    """Their median, 0 where none was measured."""
    return median(track.costs) if track.costs else 0.0


def silent_from(track: Track, listens: float = 0.0) -> float:
    """When (s) silence begins unless a replica reports before; inf of a job that never reported, runs nowhere or has
    told all of its steps. listens: since when anybody has taken in reports; what was missed before is no silence."""
    newest = track.newest
    if newest is None or not track.heard or not track.config.replicas:
        return math.inf
    if 0.0 < newest.total <= newest.step:
        return math.inf
    last = track.heard
    if track.since > last:
        last = track.since + JOINING + 2.0 * cost(track)
    return max(last, listens) + _patience(track)


def _patience(track: Track) -> float:
    return max(SILENT, PAUSES * max(track.usual, A_REPLICA * track.config.replicas))


def every(newest: Report | None) -> float:
    """Seconds between reports that are of use after this one: few while a configuration is measured."""
    return CALM if newest is not None and newest.speed > 0.0 else QUICK


def worth_telling(before: Track, after: Track) -> bool:
    """Whether the reports since `before` are worth a cycle and a write: the first one, a median that moved, a speed
    measured again, a cost, another total or target, a boundary or its epoch, each twentieth of the way, and the first
    one after a silence."""
    old, new = before.newest, after.newest
    if after.heard - before.heard >= SILENT and after.heard >= silent_from(before):
        return True
    if after.medians is not before.medians or after.costs != before.costs:
        return True
    if new is old or new is None:
        return False
    if old is None:
        return True
    return (
        new.boundary != old.boundary
        or after.told_batch != before.told_batch
        or (new.boundary and new.epoch != old.epoch)
        or (new.speed > 0.0) != (old.speed > 0.0)
        or new.total != old.total
        or new.target != old.target
        or _way(new) != _way(old)
    )


def _way(report: Report) -> int:
    """Twentieths of the total; without one, of an e-fold of the steps."""
    if report.total > 0.0:
        return int(min(1.0, report.step / report.total) * DECADE) + (report.step > report.total)
    return int(math.log(report.step) * DECADE) if report.step >= 1.0 else 0


def trained_on(job: Job) -> tuple[Role, ...]:
    """The roles whose replicas make up its `Config`: of a job in place its GPUs alone, of another one all."""
    return tuple(role for role in job.roles if role.devices) or job.roles


def config_of(job: Job, product_of: Callable[[str], str]) -> Config:
    """How a job runs: bound replicas by role, and of those with GPUs (else of all) how many stand on each node. Of a
    job in place they are its GPUs, not its pods.

    product_of: GPU product of a node by name; of several products "". As the simulator's configurations are; whom it
    shares its GPUs with the simulator adds itself.
    """
    if not job.bound:
        return NONE
    roles = trained_on(job)
    bound = {role.name: [m.node for m in role.members if m.phase is Phase.BOUND] for role in roles}
    elastic = {role.name for role in roles if role.shape.gpus} or set(bound)
    on = Counter(node for name, nodes in bound.items() if name in elastic for node in nodes)
    products = {product_of(node) for node in on}
    return Config(
        tuple(sorted((name, len(nodes)) for name, nodes in bound.items() if nodes)),
        tuple(sorted(on.values(), reverse=True)),
        products.pop() if len(products) == 1 else "",
        job.batch,
        job.beside,
    )
