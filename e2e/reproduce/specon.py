"""SpeCon (papers/specon): its default scheduler's figures, what its three algorithms gain over it, and the decisions
of one run of the authors.

What the paper leaves open is stated in `muster.sim.presets.specon`. Two constants (a VAE's length, what containers
cost each other) are fitted to what is printed of Fig. 5's *default* scheduler, and to nothing else; the gain is a
prediction, with the paper's parameters. How lengths vary and the fit's own freedom are ranges, as are the lengths of
the other models.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from e2e.reproduce._specon_replay import Judged, Verdict, replay
from e2e.reproduce._specon_run import between, decisions, judged_again, twice
from e2e.reproduce.entry import Entry, Range
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.presets import specon
from muster.sim.result import Result
from muster.sim.workload import Workload

SEEDS, DRAWS = 10, 16
DEFAULT, OURS = "specon-default", "specon"
BEST = 0.5
"""The overhead that fits best."""
SPREADS = (0.25, 0.5, 0.75)
PRINTED = "the paper's Fig. 5, default scheduler"
FIT = f"VAE's length and overhead: fitted to {PRINTED}; alpha, interval, weights: the paper"
LENGTHS = (
    "overhead of neighbours (0 to 0.2, a VAE's length with each by Fig. 5's average), lengths of the other models, "
    "arrivals: free; alpha, interval, weights: the paper"
)
AUTHORS = "the authors' data (one run)"
REPLAYED = (
    f"{AUTHORS}; categories, ends, arrivals: free, any; whether numbers are the order of arrival: free, both"
)


class Change(NamedTuple):
    """SpeCon against the default scheduler, in % of it: average completion time, makespan; and containers moved, and
    moved more than once."""

    jct: float
    makespan: float
    moved: float
    again: float


def entries(data: Path) -> list[Entry]:
    """Sections VI-B to VI-D, and the authors' run."""
    return [*_fitted(), *_predicted(), *_mixed(), *_decisions(data)]


# ---- Fig. 5 ----


def _fitted() -> list[Entry]:
    why = "two constants for four figures"
    return [
        Entry(f"default, 20 VAE, {name}", target, "s", 0.03, why, True, partial(_statistic, i), source=FIT,
              fitted=True, basis="paper")
        for i, (name, target) in enumerate(
            (("the 9 fastest, mean", 226.0), ("the 11 slowest, mean", 313.0), ("the slowest", 348.7),
             ("makespan", 1260.0), ("average completion time", 275.2))
        )
    ]  # fmt: skip


def _statistic(which: int) -> float:
    result = _run(_vae(0, BEST, 0.0), DEFAULT)
    took = np.sort(result.ended - result.submitted)
    return float((took[:9].mean(), took[9:].mean(), took[-1], _makespan(result), took.mean())[which])


def _predicted() -> list[Entry]:
    found = []
    for variation in (0.0, 0.1, 0.2):
        why = (
            "all alike: those that are nearly done are slowed for new ones, which can't lower the mean"
            if not variation
            else "the default scheduler's own figures with this variation are above what the paper prints"
        )
        for which, (words, target) in enumerate((("completion time", -14.7), ("makespan", -5.6))):
            source = f"{FIT}; overhead {min(specon.FITTED)} to {max(specon.FITTED)}" + (
                f", {DRAWS} draws of lengths" if variation else ""
            )
            name = f"20 VAE every 50 s, lengths vary by {100 * variation:.0f} %, {words}"
            measure = partial(_gain, variation, which)
            found.append(
                Entry(
                    name,
                    target,
                    "%",
                    0.0,
                    why,
                    not variation,
                    measure,
                    "inside",
                    False,
                    source,
                    basis="paper",
                )
            )
    return found


def _gain(variation: float, which: int) -> Range:
    """Headline: the mean over draws at the best fit; the range is that over draws and fits."""
    found = {
        overhead: [
            _change_of_vae(seed, overhead, variation)[which] for seed in range(DRAWS if variation else 1)
        ]
        for overhead in specon.FITTED
    }
    everything = [gain for gains in found.values() for gain in gains]
    return Range(float(np.mean(found[BEST])), min(everything), max(everything))


@lru_cache
def _change_of_vae(seed: int, overhead: float, variation: float) -> Change:
    return _change(_vae(seed, overhead, variation))


def _vae(seed: int, overhead: float, variation: float) -> Workload:
    alone = specon.FITTED[overhead]
    return specon.workload(seed, "fixed", overhead=overhead, alone=alone, variation=variation)


# ---- the random experiments ----


def _mixed() -> list[Entry]:
    found = []
    for name, experiment, jct, makespan, quick, default in (
        ("20 mixed", "mixed-20", -13.6, -24.7, True, (None, 1421.0)),
        ("30 mixed", "mixed-30", -7.6, -14.8, False, (865.7, 1760.0)),
        ("8 workers, 50 mixed", "mixed-50", -7.2, -11.1, False, (596.3, 2070.0)),
    ):
        why = f"one drawn workload there; here {SEEDS} draws, lengths that differ by 25 to 75 %, overheads"
        rows: list[tuple[str, float | None, str, Callable[[], Range]]] = [
            (f"default, {name}, {words}", target, "s", partial(_before, experiment, which))
            for which, (words, target) in enumerate(
                zip(("completion time", "makespan"), default, strict=True)
            )
            if target is not None
        ]
        rows += [
            (f"{name}, {words}", target, "%", partial(_drawn, experiment, which))
            for which, (words, target) in enumerate((("completion time", jct), ("makespan", makespan)))
        ]
        found += [
            Entry(title, target, unit, 0.0, why, quick, measure, "inside", False, LENGTHS, basis="paper")
            for title, target, unit, measure in rows
        ]
    return found


class Point(NamedTuple):
    """What is free: how lengths differ, the overhead of a neighbour, the draw of models and arrivals."""

    spread: float
    overhead: float
    seed: int


@lru_cache
def _workload(experiment: str, point: Point) -> tuple[Workload, Result]:
    """With the run under the default scheduler."""
    alone = specon.BY_AVERAGE[point.overhead]
    workload = specon.workload(
        point.seed, experiment, spread=point.spread, overhead=point.overhead, alone=alone
    )
    return workload, _run(workload, DEFAULT)


@lru_cache
def _change_of(experiment: str, point: Point) -> Change:
    return _change(*_workload(experiment, point))


def _points() -> list[Point]:
    """Every spread without overhead, every overhead at the middle spread."""
    sides = [(spread, 0.0) for spread in SPREADS]
    sides += [(SPREADS[1], overhead) for overhead in specon.BY_AVERAGE if overhead]
    return [Point(*side, seed) for side in sides for seed in range(SEEDS)]


def _drawn(experiment: str, which: int) -> Range:
    return Range.of([_change_of(experiment, point)[which] for point in _points()])


def _before(experiment: str, which: int) -> Range:
    """The default scheduler's own."""
    figure = (_jct, _makespan)[which]
    return Range.of([figure(_workload(experiment, point)[1]) for point in _points()])


# ---- the authors' decisions ----


def _decisions(data: Path) -> list[Entry]:
    once = 'Algorithm 2, lines 9 and 15; "reallocated at most once"'
    most = f"{once}: our policy's `most_moves` is 1"
    theirs = f"{once}; of the authors' run alone, nothing of ours is measured"
    shown = "which run it is is not said; 30 mixed jobs on 4 workers come nearest"
    return [
        Entry("20 mixed, containers moved twice, against the authors' run", twice(data), "", 0.0, most, True,
              partial(_drawn, "mixed-20", 3), "at most", source=f"{LENGTHS}; target: {AUTHORS}", fitted=True,
              basis="authors"),
        Entry("authors' run, containers moved twice", None, "", 0.0, theirs, True, partial(twice, data),
              source=AUTHORS),
        Entry("authors' run, containers that stay and are judged again", None, "", 0.0, theirs, True,
              partial(judged_again, data), source=AUTHORS),
        Entry("authors' run, median time between decisions", None, "s", 0.0, "the paper's interval is 30 s", True,
              partial(between, data), source=AUTHORS),
        *_replayed(data),
        Entry("30 mixed, containers moved, against the authors' run", float(sum(d.moved for d in
              decisions(data))), "", 0.0, shown, False, partial(_drawn, "mixed-30", 2), "inside", False, LENGTHS,
              basis="authors"),
    ]  # fmt: skip


def _replayed(data: Path) -> list[Entry]:
    """Row by row (`_specon_replay`): how many follow, contradict, and are neither."""
    why = "categories, ends and arrivals are not in the file; no claim of ours, each row is judged by itself"
    verdicts: tuple[tuple[Verdict, str], ...] = (
        ("yes", "follows"),
        ("no", "is contradicted"),
        ("undecidable", "is undecidable"),
    )
    found = []
    for part, whose, of in (
        ("target", "Algorithm 2's or 3's target", "decisions of 29"),
        ("container", "Algorithm 3's container", "decisions of 3"),
    ):
        for verdict, words in verdicts:
            told = partial(_rows, data) if (part, verdict) == ("target", "undecidable") else None
            found.append(
                Entry(f"authors' run, row by row, {whose} {words}", None, of, 0.0, why, True,
                      partial(_judged, data, part, verdict), source=REPLAYED, detail=told)
            )  # fmt: skip
    return found


def _judged(data: Path, part: str, verdict: Verdict) -> Range:
    """With numbers that say nothing of arrivals, and as the order of these."""
    both = [replay(decisions(data), numbered=numbered) for numbered in (False, True)]
    return Range.first([float(sum(getattr(row, part) == verdict for row in rows)) for rows in both])


def _rows(data: Path) -> list[str]:
    rows: tuple[Judged, ...] = replay(decisions(data))
    return [str(row) for row in rows]


# ---- runs ----


def _change(workload: Workload, before: Result | None = None) -> Change:
    before = before or _run(workload, DEFAULT)
    after = _run(workload, OURS)
    return Change(
        100.0 * (_jct(after) / _jct(before) - 1.0),
        100.0 * (_makespan(after) / _makespan(before) - 1.0),
        float(np.count_nonzero(after.moves)),
        float(np.count_nonzero(after.moves > 1)),
    )


def _run(workload: Workload, profile: str) -> Result:
    """E has no noise here, so nothing is smoothed."""
    assert workload.cluster is not None
    arguments = {"specon": {"smoothing": 0.0}} if profile == OURS else {}
    result = simulate(workload, workload.cluster, build(profile, arguments), Options())
    assert not result.cut, result.cut
    return result


def _jct(result: Result) -> float:
    return float(np.mean(result.ended - result.submitted))


def _makespan(result: Result) -> float:
    return float(np.max(result.ended) - np.min(result.submitted))
