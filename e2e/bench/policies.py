"""The same elastic jobs under each family of policies, on labs and in `muster simulate --release` with what GPUs took
there to change hands, replica by replica, and the plans of its dumped snapshots made again.

Jobs and training are those of `elastic`. What a run found is kept below out/bench/policies: a measure that was cut
off goes on where it was, and more families can be added to a table.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.bench.drawn import Drawing, draw, write
from e2e.bench.elastic import LOAD, NEAR, measured
from e2e.bench.live import Going, Run, differing, wave
from e2e.bench.predicted import PAUSE, SEEDS, Side, both_ways
from e2e.bench.report import OUT, Progress, Result
from e2e.bench.trainings import Trained
from muster.sim.submission import Model

FAMILIES = (
    "fifo", "gang", "gang-pack", "max-min", "afs-l", "afs-l-packed", "afs-p", "afs-s", "srtf", "srsf", "optimus",
    "tiresias-l", "themis", "specon", "reshape-restart", "termination",
)  # fmt: skip
"""Policies for which these jobs are enough."""
OTHERS = ("similarity", "gavel-isolation", "pollux", "coach", "tide")
"""Run only where asked for: rounds, as compressed as the jobs, jobs that report, or roles."""
VARIANTS = ("srtf-max", "srtf-e", "srsf-max", "srsf-e", "tiresias-l-max", "afs-p-packed", "tide-packed")
"""Profiles of the same families with other arguments, or one more plugin."""
ALL = (*FAMILIES, *OTHERS, *VARIANTS)
SPEED = 20.0
"""40x a second of this machine is 40 trace seconds: live is up to 10 % worse than simulated."""


def measure(
    progress: Progress,
    *,
    families: Sequence[str] = FAMILIES,
    jobs: int = 30,
    seed: int = 1,
    rounds: int = 3,
    load: float = LOAD,
    speed: float = SPEED,
    beside: int = 2,
    resize_cost: bool = False,
    draws: int = len(SEEDS),
    results: Path | None = None,
    keep: bool = False,
    labs_named: str = "bench",
    curves: Mapping[str, Model] | None = None,
) -> Result:
    """A row a family, means of `rounds` runs, `beside` labs at a time. resize_cost: a change has to gain more than it
    costs, as by default on a cluster. draws: of the simulator for each run. results: where runs are kept; those with
    the same jobs are not run again; curves: of the models that jobs are of, by default those measured of the AFS
    paper's. LabError where these are missing or a run comes to no end."""
    drawing = Drawing(jobs, seed, load, speed=speed)
    folder = results or OUT / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(drawing, curves or measured())
    write(drawn, folder / "jobs.csv")
    asked: dict[str, Any] = {"jobs": jobs, "seed": seed, "load": load, "speed": speed}
    kept = Kept(folder, asked | ({"resizeCost": True} if resize_cost else {}))
    sides = [Side(name, name, resize_cost=resize_cost, hurried=speed) for name in families]
    todo = [(side, n) for n in range(rounds) for side in sides if kept.run(side.name, n) is None]
    if len(todo) < rounds * len(sides):
        progress.say(f"{rounds * len(sides) - len(todo)} runs are in {folder} and are not run again")
    replayed(progress, [(side, n) for n in range(rounds) for side in sides if (side, n) not in todo], kept)
    _runs(progress, todo, drawn, drawing, beside, kept, keep, labs_named)
    result = Result(
        "policies", f"{jobs} jobs on {drawing.gpus} GPUs, {speed:g}x compressed, load {load:g}, seed {seed}"
    )
    rows = {
        side.name: _row(side, [kept.of(side.name, n) for n in range(rounds)], drawn, drawing, folder, draws)
        for side in sides
    }
    for name, row in rows.items():
        result.row(
            f"{name}: average JCT (trace s) live; simulated with --release --release-spread 1; without, its delay in "
            "--restart",
            f"{row['live_s']:.0f}; {row['simulated_s']:.0f}: {100 * row['off']:+.1f} %; "
            f"{row['simulated_at_once_s']:.0f}: {100 * row['off_at_once']:+.1f} %",
            f"with it within {100 * NEAR:.0f} %",
            abs(row["off"]) <= NEAR,
        )
        if row["off_by_place"] is not None:
            result.row(
                "    with the median of all places, not of the last one of each start or growth (s here)",
                f"{row['place_s']:.2f}: {100 * row['off_by_place']:+.1f} %",
            )
        result.row(
            "    release, delay (medians, s here); first start (trace s): live, simulated with --release, without",
            f"{row['release_s']:.2f}, {row['usual_delay_s']:.2f}; {row['wait_live_s']:.0f}, "
            f"{row['wait_simulated_s']:.0f}, {row['wait_at_once_s']:.0f}",
        )
        result.row(
            "    changes of running jobs, live, simulated",
            f"{row['changes']:.0f}, {row['restarts_simulated']:.0f}",
        )
        alike = row["dumps"] - row["differ"]
        result.row(
            "    plans replayed identically", f"{alike} of {row['dumps']}", "all", alike == row["dumps"]
        )
    result.data |= {
        "arguments": kept.arguments | {"rounds": rounds, "beside": beside, "draws": draws},
        "families": rows,
    }
    return result


class Kept:
    """Runs that were made, a file each. arguments: what the jobs depend on; a run of others doesn't count."""

    def __init__(self, folder: Path, arguments: Mapping[str, Any]) -> None:
        self.folder, self.arguments = folder, dict(arguments)

    def _path(self, family: str, number: int) -> Path:
        return self.folder / f"{family}-{number}.run.json"

    def run(self, family: str, number: int) -> Run | None:
        """The run; None where it is still to be made."""
        path = self._path(family, number)
        found: Run | None = json.loads(path.read_text()) if path.is_file() else None
        if found is None or found["arguments"] != self.arguments or "release_s" not in found:
            return None
        return found

    def of(self, family: str, number: int) -> Run:
        """The run. KeyError where it was not made."""
        found = self.run(family, number)
        if found is None:
            raise KeyError((family, number))
        return found

    def keep(self, family: str, number: int, run: Run) -> None:
        """Written whole or not at all: a measure may be cut off at any time."""
        path = self._path(family, number)
        half = path.with_suffix(".part")
        half.write_text(json.dumps(run | {"arguments": self.arguments}))
        half.replace(path)


def _runs(
    progress: Progress,
    todo: Sequence[tuple[Side, int]],
    drawn: Sequence[Trained],
    drawing: Drawing,
    beside: int,
    kept: Kept,
    keep: bool,
    labs_named: str,
) -> None:
    """Plans are made again between waves: when nothing is measured."""
    for first in range(0, len(todo), beside):
        part = todo[first : first + beside]
        names = ", ".join(f"{side.name} {number}" for side, number in part)
        with progress.reading(f"runs {first + 1} to {first + len(part)} of {len(todo)} ({names}): jobs done",
                              len(part) * len(drawn)) as reading:  # fmt: skip
            wave(Going(reading), part, drawn, drawing, kept.folder, keep, labs_named,
                 lambda side, number, run: kept.keep(side.name, number, run))  # fmt: skip
        replayed(progress, part, kept)


def replayed(progress: Progress, runs: Sequence[tuple[Side, int]], kept: Kept) -> None:
    """The plans of their dumps are made again, where they were not yet."""
    for side, number in runs:
        run = kept.of(side.name, number)
        if "differ" in run:
            continue
        differ = differing([Path(path) for path in run["dumps"]])
        dumps = len(run["dumps"])
        kept.keep(side.name, number, run | {"dumps": dumps, "differ": differ})
        progress.say(
            f"  {side.name} {number}: live {run['jct_s']:.2f} s; {len(differ)} of {dumps} plans differ"
        )


def _row(
    side: Side, runs: Sequence[Run], drawn: Sequence[Trained], drawing: Drawing, folder: Path, draws: int
) -> dict[str, Any]:
    """Means of a family's runs: JCT and wait in trace seconds, delays in this machine's."""

    def mean(key: str) -> float:
        return statistics.fmean(run[key] for run in runs)

    pause = PAUSE / drawing.speed
    said, at_once = both_ways(side, drawn, pause, runs, folder, range(draws))
    placed = [run | {"release_s": run["place_s"]} for run in runs if "place_s" in run]
    by_place, _ = both_ways(side, drawn, pause, placed, folder, range(draws))
    simulated, without = (statistics.fmean(one.jct for one in found) for found in (said, at_once))
    return {
        "live_s": mean("jct_s") * drawing.speed,
        "simulated_s": simulated * drawing.speed,
        "simulated_at_once_s": without * drawing.speed,
        "off": mean("jct_s") / simulated - 1.0,
        "off_at_once": mean("jct_s") / without - 1.0,
        "place_s": statistics.fmean(run["release_s"] for run in placed) if placed else None,
        "off_by_place": mean("jct_s") / statistics.fmean(one.jct for one in by_place) - 1.0
        if placed
        else None,
        "wait_live_s": mean("wait_s") * drawing.speed,
        "wait_simulated_s": statistics.fmean(one.wait for one in said) * drawing.speed,
        "wait_at_once_s": statistics.fmean(one.wait for one in at_once) * drawing.speed,
        "restarts_simulated": statistics.fmean(one.restarts for one in said),
        "release_s": mean("release_s"),
        "delay_s": mean("delay_s"),
        "usual_delay_s": mean("usual_delay_s"),
        "changes": mean("changes"),
        "dumps": sum(run["dumps"] for run in runs),
        "differ": sum(len(run["differ"]) for run in runs),
    }
