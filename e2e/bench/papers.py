"""Policies that a paper made for jobs of its own, on those jobs: live, with trainings that report, and simulated.

What `policies` compares are jobs of one GPU product that report nothing: `specon`, `similarity`, Gavel's policies and
`coach` have nothing to go by there. Here each has a workload that it was made for (`muster workload`), compressed:
losses that fall, products on which models differ, epochs that end, workers and servers. `coddl` measures jobs in
place at sizes below their share: it has drawn jobs in place, shorter and in this machine's seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.bench import papers_in_place as in_place
from e2e.bench import papers_live as live
from e2e.bench.live import Going, Run, side_by_side
from e2e.bench.paper import Paper, Releases, foretold
from e2e.bench.paper_in_place import InPlace, Packed
from e2e.bench.paper_profiles import PAPERS
from e2e.bench.policies import Kept, replayed
from e2e.bench.predicted import SEEDS, Side
from e2e.bench.report import OUT, Progress, Result
from e2e.lab import Lab

NEAR = 0.05


def measure(
    progress: Progress,
    *,
    names: Sequence[str] = tuple(PAPERS),
    rounds: int = 3,
    beside: int = 2,
    results: Path | None = None,
    keep: bool = False,
) -> Result:
    """A row a profile, means of `rounds` runs, `beside` labs at a time. results: where runs are kept and found
    again. LabError where a run comes to no end."""
    folder = results or OUT / "papers"
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: Kept(folder, _arguments(PAPERS[name])) for name in names}
    todo = [(name, n) for n in range(rounds) for name in names if kept[name].run(name, n) is None]
    for first in range(0, len(todo), beside):
        part = todo[first : first + beside]
        count = sum(len(PAPERS[name].workload().submissions) for name, _ in part)
        words = ", ".join(f"{name} {number}" for name, number in part)
        with progress.reading(f"{words}: jobs done", count) as reading:
            _wave(Going(reading), part, kept, folder, keep)
    for name in names:
        replayed(progress, [(Side(name, name), number) for number in range(rounds)], kept[name])
    result = Result("papers", "policies on the jobs of their papers")
    found = {name: _row(PAPERS[name], [kept[name].of(name, n) for n in range(rounds)]) for name in names}
    for name, row in found.items():
        _rows(result, name, row)
    result.data |= {"rounds": rounds, "beside": beside, "profiles": found}
    return result


def _arguments(paper: Paper) -> dict[str, Any]:
    return {
        "preset": paper.preset,
        "parameters": dict(paper.parameters),
        "speed": paper.speed,
        "places": paper.places,
    } | ({"shorter": paper.shorter} if isinstance(paper, Packed) else {})


def _wave(
    going: Going, todo: Sequence[tuple[str, int]], kept: Mapping[str, Kept], folder: Path, keep: bool
) -> None:
    def one(place: int, lab: Lab, later: float) -> Run:
        name, number = todo[place]
        paper = PAPERS[name]
        there = folder / f"{name}-{number}"
        if isinstance(paper, InPlace):
            made = in_place.run(going, lab, paper, there, later)
        else:
            made = live.run(going, lab, paper, there, later)
        kept[name].keep(name, number, made)
        return made

    shapes = []
    for name, number in todo:
        place = folder / f"{name}-{number}"
        place.mkdir(parents=True, exist_ok=True)
        shapes.append((f"bench-{name}-{number}", live.shape(PAPERS[name], place)))
    side_by_side(going, shapes, one, keep)


def _row(paper: Paper, runs: Sequence[Run]) -> dict[str, Any]:
    """Means of a profile's runs, trace s."""

    def mean(key: str) -> float:
        return statistics.fmean(run[key] for run in runs)

    speed = paper.speed
    left = [(Releases.of(run, speed), run["began"]) for run in runs]
    said = [foretold(paper, releases, 0.0, began, seed) for releases, began in left for seed in SEEDS]
    delayed = [foretold(paper, Releases(), run["usual_delay_s"] * speed, run["began"]) for run in runs]
    row: dict[str, Any] = {"live": {"jct": mean("jct_s") * speed, "makespan": mean("makespan_s") * speed}}
    row["live"]["changes"] = mean("changes")
    for key, several in (("release", said), ("delay", delayed)):
        row[key] = {
            what: statistics.fmean(getattr(one, what) for one in several)
            for what in ("jct", "makespan", "changes")
        }
    row |= {key: mean(key) for key in ("release_s", "usual_delay_s", "wait_s")}
    row |= {
        "each": [run["jct_s"] * speed for run in runs],
        "reports": sum(run["reports"] for run in runs),
        "dumps": sum(run["dumps"] for run in runs),
        "differ": sum(len(run["differ"]) for run in runs),
    }
    return row


def _rows(result: Result, name: str, row: Mapping[str, Any]) -> None:
    lived, said, delayed = row["live"], row["release"], row["delay"]
    for what, words in (("jct", "mean JCT"), ("makespan", "makespan")):
        here = lived[what]
        off, also = (here / one[what] - 1.0 for one in (said, delayed))
        result.row(
            f"{name}: {words} (trace s) live; simulated with --release; the same without, each change so much longer",
            f"{here:.0f}; {said[what]:.0f}: {100 * off:+.1f} %; {delayed[what]:.0f}: {100 * also:+.1f} %",
            f"with it within {100 * NEAR:.0f} %",
            abs(off) <= NEAR,
        )
    result.row(
        "    changes of running jobs, live, simulated; release, delay (medians, s here); reports",
        f"{lived['changes']:.0f}, {said['changes']:.0f}; {row['release_s']:.2f}, {row['usual_delay_s']:.2f}; "
        f"{row['reports']}",
    )
    alike = row["dumps"] - row["differ"]
    result.row("    plans replayed identically", f"{alike} of {row['dumps']}", "all", alike == row["dumps"])
