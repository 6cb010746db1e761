"""Speeds and the costs of changes, measured from reports that are believed (`reports`): pure steps of a `Track`.

`measured` takes the point of a believed report, `changed` a change of the bound replicas, `closed` ends one.

- *A speed* is d samples / dt where the job tells samples, else d step / dt. A job that has told samples once is
  measured in samples for good: what one iteration is may change with its size. Not measured: the first WARM_UP
  seconds after a change and up to the second report after it. One speed every QUICK seconds, then every CALM; the
  median of the last KEPT of a configuration counts, published from two that agree (within a factor of AGREE) or
  three, and again when it has moved by more than TOLD. A speed beyond the limit is left out; ODD in a row are
  believed instead of the earlier ones of this configuration, and of all where those don't explain it.
- *Replicas that join* are bound long before they take part (an image to pull, a framework to import), and the
  others go on meanwhile. What is measured while the job tells another number of `workers` than are bound (in place:
  than its GPUs or pods) does not count. Where it tells none, what is as fast as before (within ALIKE) does not count
  for the first JOINING seconds.
- *Beside another job* on the same GPU is a configuration of its own (`Config.beside`), in which speeds count once
  that one trains, too (`core.state.neighbours`), and are published from BESIDE of them. That another one sits down
  or leaves is no change that costs, nor is another batch size: nothing of the job was restarted.
- *The cost of a change*: from the last report before it (at most RECENT seconds before) until the new speed is
  measured and its step is passed, less what the steps between would have taken: at the old speed as far as the time
  before the change goes, the others at the new one. (The first report beyond its step says too little: who goes on
  may tell then what was done before all stood still for those that join.) Changes before that are one change. Time
  spent waiting after a stop is not counted. A job that never reports: until all of its replicas are bound again, if
  it had none meanwhile; where some went on, nobody knows how long training stood still.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median_low

from muster.core.devices.slots import SUFFIX
from muster.core.progress.history import CONFIGS, COSTS, KEPT, Change, Point, Track, doubted, limit_of
from muster.types import Config

QUICK, CALM = 2.0, 10.0
"""s between two speeds: of the first ones of a configuration, and later on."""
JOINING, ALIKE = 60.0, 0.1
ODD = 3
WARM_UP = 10.0
"""s after a change that are not measured."""
AGREE = 1.5
BESIDE = 5
"""Speeds of a configuration beside another job before their median is published: two agree by chance."""
TOLD = 0.02
RECENT = 60.0
LEAST_COST, MOST_COST = 0.1, 3600.0
RESTART = "restart"
"""Cause of a change in which all replicas ended, though not to wait."""


def _counts(config: Config) -> set[int]:
    """What a training may call its workers: replicas, those of a role; in place GPUs, or pods, each on a node of its
    own."""
    counts = {config.replicas, *(count for _, count in config.roles)}
    if any(role.endswith(SUFFIX) for role, _ in config.roles):
        counts.add(len(config.nodes))
    return counts


def measured(track: Track, point: Point) -> Track:
    """With a speed from `base` to the point, where it is due."""
    if not track.config.replicas or track.counts < 2 or point.at < track.since + WARM_UP:
        return track
    workers = track.newest.workers if track.newest is not None else 0
    if workers and workers not in _counts(track.config):
        return track if track.base is None else replace(track, base=None)
    if point.samples and not track.batch:  # from now on samples count: what was measured was something else
        fresh = replace(track, speeds=(), medians={}, limit=math.inf, odd=0, base=None, old=0.0)
        track = replace(fresh, batch=_ratio(point))
    base = track.base
    if base is None or (track.batch and not base.samples):
        return replace(track, base=point)
    passed = point.at - base.at
    if passed < QUICK or (track.batch and not point.samples):
        return track
    speeds = next((s for c, s in reversed(track.speeds) if c == track.config), ())
    if passed < CALM and len(speeds) >= ODD:
        return track
    units = point.samples - base.samples if track.batch else point.step - base.step
    steps = point.step - base.step
    if units <= 0.0 or steps <= 0.0:  # a counter was set back
        return replace(track, base=point)
    speed = units / passed
    if (
        track.old
        and not workers
        and point.at < track.since + JOINING
        and abs(speed / track.old - 1.0) <= ALIKE
    ):
        return replace(track, base=point)
    if speed > track.limit:
        odd = track.odd + 1
        if odd < ODD:
            return replace(track, base=point, odd=odd)
        speeds = ()
        while speed > track.limit:
            track = doubted(track)
    speeds = (*speeds, speed)[-KEPT:]
    batch = units / steps if track.batch else 0.0
    kept = (*((c, s) for c, s in track.speeds if c != track.config), (track.config, speeds))[-CONFIGS:]
    medians = _published(track.medians, kept, track.config, speeds)
    newest = track.newest
    found = medians.get(track.config, 0.0)
    if newest is not None and found:
        newest = replace(newest, speed=found / (batch or 1.0))
    limit = track.limit if medians is track.medians else limit_of(medians, track.config)
    return replace(
        track,
        base=point,
        batch=batch,
        speeds=kept,
        medians=medians,
        odd=0,
        newest=newest,
        limit=limit,
    )


def _ratio(point: Point) -> float:
    return point.samples / point.step if point.step else point.samples


def _published(
    medians: Mapping[Config, float],
    kept: tuple[tuple[Config, tuple[float, ...]], ...],
    config: Config,
    speeds: tuple[float, ...],
) -> Mapping[Config, float]:
    """The medians with that of `config` as the last; the very same object where nothing moved by more than TOLD and
    the order of what was measured beside another job is right."""
    before = medians.get(config)
    if len(speeds) == 1 or (len(speeds) == 2 and max(speeds) > AGREE * min(speeds)):
        return medians
    if config.beside and len(speeds) < BESIDE:
        return medians
    new = median_low(speeds)
    alike = before is not None and abs(new - before) <= TOLD * before
    if alike and (not config.beside or [c for c in medians if c.beside][-1] == config):
        return medians
    known = {c for c, _ in kept if c != config}
    return {**{c: s for c, s in medians.items() if c in known}, config: new}


# ---- a change ----


def changed(track: Track, config: Config, now: float, cause: str, whole: bool = True) -> Track:
    """The bound replicas became `config` because of a "start", "resize", "move" or "stop" (Config(): none is bound).

    Several in a row until training goes on count as one; once one is a stop, time without a replica is no cost.
    whole: all replicas that were granted are bound, which ends the change of a job that never reports.
    """
    change = track.change
    if config != track.config:
        if change is not None and change.passed is not None:  # measured but for its speed, which never came
            track, change = closed(track, late=True), None
        restarts = _of_pods(config) != _of_pods(track.config)
        if change is None and track.config.replicas and restarts:
            last = track.newest
            before = None if last is None else Point(min(now, max(last.at, now - RECENT)), last.step)
            change = Change(cause, now, before, 0.0 if last is None else last.speed)
        elif change is not None:
            if change.cause == "stop" and not track.config.replicas:
                change = change._replace(idle=change.idle + max(0.0, now - track.since))
            if cause == "stop":
                change = change._replace(cause=cause)
        if change is not None and change.cause != "stop" and not config.replicas:
            change = change._replace(cause=RESTART)
        newest = track.newest
        if newest is not None and (newest.speed or newest.boundary):
            newest = replace(newest, speed=0.0, boundary=False)
        track = replace(
            track,
            config=config,
            since=now,
            newest=newest,
            counts=0,
            base=None,
            limit=limit_of(track.medians, config),
            odd=0,
            change=change,
            doubt=None,
            old=_old(track, config),
        )
    if change is not None and change.before is None and whole and config.replicas:
        taken = now - change.began - change.idle if change.cause in ("stop", RESTART) else 0.0
        spent = (*track.costs, min(MOST_COST, taken))[-COSTS:] if taken > LEAST_COST else track.costs
        track = replace(track, change=None, costs=spent)
    return track


def _of_pods(config: Config) -> Config:
    """What a job is restarted for: neither for another job beside it nor for a batch size that it is told."""
    return replace(config, beside="", batch=0)


def _old(track: Track, config: Config) -> float:
    """The speed of those that go on while others join them; 0 where the job starts or becomes smaller."""
    if not 0 < track.config.replicas < config.replicas or config.product != track.config.product:
        return 0.0
    return track.medians.get(track.config, track.old)


def unmeasured(track: Track) -> Track:
    """As if the next speed began with the next report."""
    return track if track.base is None else replace(track, base=None)


def closed(track: Track, late: bool = False) -> Track:
    """Ends the change whose step was passed, once the new speed is known (late: at any speed that is)."""
    change, newest = track.change, track.newest
    if change is None or change.before is None or change.passed is None or newest is None:
        return track
    speed, until = track.medians.get(track.config, 0.0), change.passed
    if late:
        speed = speed or max(track.medians.values(), default=0.0)
        if not speed:
            return replace(track, change=None)
    elif newest.speed and speed:  # measured since the change: whatever stood still goes on
        until = Point(newest.at, newest.step)
    else:
        return track
    steps = until.step - change.before.step
    early = min(steps, change.speed * (change.began - change.before.at))
    work = (early / change.speed if early else 0.0) + (steps - early) * (track.batch or 1.0) / speed
    taken = until.at - change.before.at - change.idle - work
    spent = (*track.costs, min(MOST_COST, max(LEAST_COST, taken)))[-COSTS:]
    return replace(track, change=None, costs=spent)
