"""What is kept of a job's reports (`Track`), and the same as plain values for its Gang. `core.progress.report_filter`
fills it.

Everything is bounded: CONFIGS configurations, KEPT speeds of each, three costs. As plain values it is a small JSON
object (some hundred bytes, 4 kB at most); an older or broken one is read as nothing known, never as an error. Why a
dump's codec does not serve here: `core.plain_values`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from muster.types import Config, Report

KEPT = 7
"""Speeds of a configuration whose median counts."""
CONFIGS = 24
"""Configurations that are remembered; the one that was measured longest ago goes first."""
COSTS = 3
MOST = 1e15
"""Steps, samples or totals beyond this are no numbers of a training."""
FORM = 1
"""Of the plain values; another one is not read."""

NONE = Config()
"""No replica is bound."""


class Point(NamedTuple):
    """Where training was: at (s), iterations, samples (0 = not told)."""

    at: float
    step: float
    samples: float = 0.0


class Change(NamedTuple):
    """A change of the bound replicas whose cost is still being measured.

    cause: of its first step, or "stop" if any was one, else "restart" if no replica ran meanwhile. began: s. before:
    the last report before it (None: the job never reported), speed: iterations/s until then. idle: s without a
    replica that are no cost (it was stopped to wait). passed: the first report beyond `before` since.
    """

    cause: str
    began: float
    before: Point | None
    speed: float = 0.0
    idle: float = 0.0
    passed: Point | None = None


@dataclass(frozen=True, slots=True)
class Track:
    """What a job's reports have told; times in s on the server's clock.

    config: bound replicas, since when. newest: the farthest believed report, its `speed` iterations/s as measured in
    this configuration since the last change (0 = not yet). heard: when any replica last reported, 0 = never. counts:
    reports since the last change, as far as anybody asks (0, 1, 2 = measuring). base: from where the next speed is
    measured. batch: samples of an iteration, 0 = it tells none and speeds are iterations/s. speeds: the last KEPT of
    each configuration, measured longest ago first; medians: what is published of them, longest ago first (beside
    another job: measured longest ago first); limit: speed beyond which nothing is believed at once (inf: nothing is
    known yet); odd: speeds in a row that were beyond it. costs: s of the last changes, oldest first. change: the one
    being measured. doubt: a report that is believed if the next one goes on from it; doubted_total: likewise for a
    total. old: speed before replicas joined a job that went on, 0 where none did: as long as it lasts, they may still
    be starting. usual: longest pause (s) between two reports that was no silence, 0 while all were short. told_batch:
    global batch size, as last told, 0 = never (`batch` above is measured).
    """

    config: Config = NONE
    since: float = 0.0
    newest: Report | None = None
    heard: float = 0.0
    counts: int = 0
    base: Point | None = None
    batch: float = 0.0
    speeds: tuple[tuple[Config, tuple[float, ...]], ...] = ()
    medians: Mapping[Config, float] = field(default_factory=dict)
    limit: float = math.inf
    odd: int = 0
    costs: tuple[float, ...] = ()
    change: Change | None = None
    doubt: Point | None = None
    doubted_total: float = 0.0
    old: float = 0.0
    usual: float = 0.0
    told_batch: int = 0


EMPTY = Track()


# ---- plain values ----


def plain_config(config: Config) -> list[object]:
    """[[[role, replicas]...], [[replicas on a node, nodes]...], product, batch, beside]: nodes by run lengths."""
    nodes = [[count, len(list(run))] for count, run in groupby(config.nodes)]
    return [[list(role) for role in config.roles], nodes, config.product, config.batch, config.beside]


def config_from(value: Any) -> Config:
    """Raises TypeError or ValueError where it is none."""
    roles, nodes, product, batch, beside = value
    runs = [(whole(count), whole(times)) for count, times in nodes]
    if sum(times for _, times in runs) > 100_000:
        raise ValueError("expected at most 100000 nodes")
    return Config(
        tuple((text(name), whole(count)) for name, count in roles),
        tuple(count for count, times in runs for _ in range(times)),
        text(product),
        whole(batch),
        text(beside),
    )


def to_plain(track: Track) -> dict[str, object]:
    """JSON values from which `from_plain` makes the track again, but for what a few reports tell again."""
    if track == EMPTY:
        return {}
    plain: dict[str, object] = {
        "form": FORM,
        "config": plain_config(track.config),
        "since": round(track.since, 3),
        "heard": round(track.heard, 3),
        "batch": short(track.batch),
        "speeds": [[plain_config(c), [short(s) for s in speeds]] for c, speeds in track.speeds],
        "medians": [[plain_config(c), short(s)] for c, s in track.medians.items()],
        "costs": [round(cost, 3) for cost in track.costs],
    }
    if track.newest is not None:
        r = track.newest
        plain["newest"] = [
            *(round(r.at, 3), r.step, r.total, r.epoch, r.steps_per_epoch, r.loss, short(r.speed)),
            *(r.boundary, r.target, r.samples),
            *([short(r.noise)] if r.noise or r.loss_at else []),
            *([round(r.loss_at, 3)] if r.loss_at else []),
        ]
    if track.usual:
        plain["usual"] = round(track.usual, 3)
    if track.told_batch:
        plain["toldBatch"] = track.told_batch
    if track.change is not None:
        c = track.change
        points = [None if p is None else list(p) for p in (c.before, c.passed)]
        plain["change"] = [c.cause, round(c.began, 3), short(c.speed), round(c.idle, 3), *points]
    return plain


def from_plain(value: object) -> Track:
    """The track that `to_plain` wrote; `EMPTY` for anything else."""
    try:
        return _from(value)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return EMPTY


def _from(value: Any) -> Track:
    if value["form"] != FORM:
        return EMPTY
    speeds = tuple(
        (config_from(c), tuple(positive(s) for s in list(kept)[-KEPT:])) for c, kept in value["speeds"]
    )[-CONFIGS:]
    newest = value.get("newest")
    config = config_from(value["config"])
    medians = {config_from(c): positive(s) for c, s in value["medians"]}
    if len(medians) > CONFIGS:
        raise ValueError("too many configurations")
    report = None if newest is None else _report(newest)
    return Track(
        config=config,
        since=number(value["since"]),
        newest=report,
        heard=number(value["heard"]),
        counts=2 if report is not None and report.speed > 0.0 else 0,
        batch=number(value["batch"]),
        speeds=speeds,
        medians=medians,
        limit=limit_of(medians, config),
        costs=tuple(number(cost) for cost in list(value["costs"])[-COSTS:]),
        change=_change(value.get("change")),
        usual=number(value.get("usual", 0.0)),
        told_batch=whole(value.get("toldBatch", 0)),
    )


def _report(value: Sequence[Any]) -> Report:
    at, step, total, epoch, steps_per_epoch, loss, speed, boundary, target, samples, *more = value
    return Report(
        at=number(at),
        step=number(step),
        total=number(total),
        epoch=whole(epoch),
        steps_per_epoch=number(steps_per_epoch),
        loss=None if loss is None else number(loss),
        speed=number(speed),
        boundary=bool(boundary),
        target=None if target is None else number(target),
        samples=number(samples),
        noise=number(more[0]) if more else 0.0,
        loss_at=number(more[1]) if more[1:] else 0.0,
    )


def _change(value: Any) -> Change | None:
    if value is None:
        return None
    cause, began, speed, idle, before, passed = value
    points = [None if p is None else Point(*(number(x) for x in p)) for p in (before, passed)]
    return Change(text(cause), number(began), points[0], number(speed), number(idle), points[1])


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a number, found {value!r}")
    return float(value)


def positive(value: Any) -> float:
    if not 0.0 < number(value) <= MOST:
        raise ValueError(f"expected a number above 0, found {value!r}")
    return float(value)


def whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a whole number, found {value!r}")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {value!r}")
    return value


def short(value: float) -> float:
    """Six digits are more than a speed has."""
    return float(f"{value:.6g}")


PLAUSIBLE = 10.0


def limit_of(medians: Mapping[Config, float], config: Config) -> float:
    """Speed beyond which nothing is believed at once: PLAUSIBLE times what is known of the configuration. Of one that
    is new to the job PLAUSIBLE times that again, from the fastest other one times the growth in replicas (no job
    grows more than linearly): another GPU, one node for sixteen, or a sixteenth of the batch may well be ten times as
    fast. inf where nothing is known at all."""
    if not medians or not config.replicas:
        return math.inf
    own = medians.get(config)
    if own is not None:
        return PLAUSIBLE * own
    count = config.replicas
    return PLAUSIBLE**2 * max(s * max(1.0, count / max(1, c.replicas)) for c, s in medians.items())


def doubted(track: Track) -> Track:
    """What was measured is wrong: what is known of this configuration; where nothing is, all."""
    config = track.config
    medians = {c: s for c, s in track.medians.items() if c != config} if config in track.medians else {}
    speeds = tuple((c, s) for c, s in track.speeds if c in medians)
    return replace(track, speeds=speeds, medians=medians, limit=limit_of(medians, config))
