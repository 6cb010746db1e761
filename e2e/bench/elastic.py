"""The same elastic jobs on labs under afs-l and under fifo gangs at their fixed request, and what `muster simulate`
says of them; plans from dumped snapshots replayed.

The jobs are drawn (e2e/bench/drawn.py) over the measured curves of the AFS paper's models (`TRACES`); processes only
count (e2e/bench/trainings.py). Everything is in this machine's seconds: a trace second is 1/speed of one, in the lab,
in the annotations and in the simulated workload alike, so that nothing has to be scaled back.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from e2e.bench import demand
from e2e.bench.drawn import SHORTEST, Drawing, draw, part_of_philly, write
from e2e.bench.live import Going, Run, differing, wave
from e2e.bench.predicted import (
    ELASTIC,
    LOADS,
    PAUSE,
    THRIFTY,
    Side,
    both_ways,
    explored,
    simulate,
    table,
)
from e2e.bench.report import OUT, Progress, Result
from e2e.bench.trainings import Trained
from e2e.lab.errors import LabError
from muster.sim import models
from muster.sim.submission import Model
from muster.sim.traces import Asked, read

LOAD = 2.0
"""GPU-seconds asked for by GPU-seconds there are while jobs arrive. What a job of AFS's traces sees on that paper's
cluster is 2.1, and its busy hours have a median of 1.7 (e2e/bench/demand.py; `--simulate-only` prints both)."""
AIM, NEAR = 1.5, 0.05
ALSO = ("tide", "afs-p", "max-min", "optimus")
"""Elastic profiles that may run beside afs-l."""
SEEDS = 5


def measure(
    progress: Progress,
    *,
    jobs: int = 60,
    seed: int = 1,
    rounds: int = 3,
    load: float = LOAD,
    request: int = 0,
    order: str = "backfill",
    beside: int = 2,
    also: Sequence[str] = (),
    keep: bool = False,
) -> Result:
    """`rounds` runs of each side, `beside` labs at a time. order: fifo's. also: elastic profiles beside afs-l.
    LabError where the traces are missing."""
    drawing = Drawing(jobs, seed, load, request)
    curves = measured()
    sides = (ELASTIC, Side("fifo", "fifo", order), *(Side(name, name) for name in also))
    result = Result("elastic", _title(drawing))
    folder = OUT / "elastic"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(drawing, curves)
    write(drawn, folder / "jobs.csv")
    runs = _runs(progress, sides, drawn, drawing, rounds, beside, folder, keep)
    # Plans are made again when nothing is measured any more: it takes both cores.
    progress.say("making the plans of all dumped snapshots again")
    differ = differing([Path(path) for found in runs.values() for run in found for path in run["dumps"]])
    said = _figures(result, sides, runs, drawn, drawing, folder)
    dumps = sum(len(run["dumps"]) for found in runs.values() for run in found)
    result.row(
        "dumped snapshots whose plan is replayed identically",
        f"{dumps - len(differ)} of {dumps}", "all", not differ,
    )  # fmt: skip
    result.data |= {
        "arguments": {"jobs": jobs, "seed": seed, "rounds": rounds, "load": load, "request": request, "order": order,
                      "beside": beside, "also": list(also)},
        "runs": {
            name: [run | {"dumps": len(run["dumps"])} for run in found] for name, found in runs.items()
        },
        "dumps_that_differ": differ,
        "simulated": said,
    }  # fmt: skip
    return result


def foretell(
    progress: Progress,
    *,
    jobs: int = 60,
    seed: int = 1,
    load: float | None = None,
    request: int = 0,
    seeds: int = SEEDS,
) -> Result:
    """Without a lab: the ratio as `muster simulate` has it, over loads (or one) and `seeds` seeds from `seed`."""
    loads = LOADS if load is None else (load,)
    drawings = [Drawing(jobs, seed + more, one, request) for one in loads for more in range(seeds)]
    result = Result("elastic-simulated", f"simulated only: {_title(drawings[0], several=True)}")
    _stands_for(result, progress)
    with progress.reading("drawings simulated", len(drawings)) as reading:
        points = []
        for point in explored(drawings, measured(), OUT / "elastic-simulated"):
            points.append(point)
            reading(len(points))
    table(result, points, AIM)
    result.data |= {
        "arguments": {"jobs": jobs, "seed": seed, "loads": loads, "request": request, "seeds": seeds},
        "points": [
            {"load": p.drawing.load, "seed": p.drawing.seed, "jct_s": p.jct, "restarts": p.restarts}
            for p in points
        ],
    }
    return result


def measured() -> Mapping[str, Model]:
    """The curves of the AFS paper's models. LabError where TRACES does not name their folder."""
    path = _traces() / "models.json"
    if not path.is_file():
        raise LabError(
            f"elastic: needs the measured curves of the AFS paper: no file {path}; set TRACES to their folder"
        )
    return models.read("measured", path)


def _traces() -> Path:
    return Path(os.environ.get("TRACES", "../shared/data")) / "afs"


def _title(drawing: Drawing, *, several: bool = False) -> str:
    which = "" if several else f", load {drawing.load:g}, seed {drawing.seed}"
    which += f", at most {drawing.request} asked for" if drawing.request else ""
    return (
        f"{drawing.jobs} elastic jobs on {drawing.gpus} GPUs, {drawing.speed:g}x compressed{which}; of Philly's jobs "
        f"the {100 * part_of_philly(drawing):.0f} % of {SHORTEST / 60:.0f} to {drawing.longest / 60:.0f} min"
    )


def _stands_for(result: Result, progress: Progress) -> None:
    """What load clusters have, from the traces."""
    found = []
    for path in sorted(_traces().glob("trace_*.csv.gz")):
        progress.say(f"reading {path.name}")
        found.append(demand.jobs(read(Asked(path))[0]))
    if not found:
        return
    loads = [demand.load(one) for one in found]
    busy = np.concatenate([demand.busy_hours(one) for one in found])
    result.row(
        f"load of AFS's {len(found)} traces on its {demand.GPUS} GPUs: least, median, most",
        f"{min(loads):.2f}, {statistics.median(loads):.2f}, {max(loads):.2f}",
    )
    result.row("the same as a job sees it: mean over all jobs", f"{demand.seen_by_a_job(found):.2f}")
    hours = f"hours of {demand.BUSY} submissions or more"
    result.row(
        f"GPUs asked for at once by GPUs, {hours}: quarter, median, three quarters",
        ", ".join(f"{value:.2f}" for value in np.quantile(busy, (0.25, 0.5, 0.75))),
    )


def _runs(
    progress: Progress,
    sides: Sequence[Side],
    drawn: Sequence[Trained],
    drawing: Drawing,
    rounds: int,
    beside: int,
    folder: Path,
    keep: bool,
) -> dict[str, list[Run]]:
    """Rounds in order, sides alternating: `beside` labs are brought up, then all run."""
    todo = [(side, number) for number in range(rounds) for side in sides]
    found: dict[str, list[Run]] = {side.name: [] for side in sides}
    with progress.reading("jobs done, all runs", len(todo) * len(drawn)) as reading:
        going = Going(reading)
        for first in range(0, len(todo), beside):
            part = todo[first : first + beside]
            for (side, _), run in zip(part, wave(going, part, drawn, drawing, folder, keep), strict=True):
                found[side.name].append(run)
    return found


def _figures(
    result: Result,
    sides: Sequence[Side],
    runs: dict[str, list[Run]],
    drawn: Sequence[Trained],
    drawing: Drawing,
    folder: Path,
) -> dict[str, list[float]]:
    """Rows; average JCT as simulated (s of this machine), by side."""

    def mean(side: Side, key: str) -> float:
        return statistics.fmean(run[key] for run in runs[side.name])

    elastic, rigid, *others = sides
    pause = PAUSE / drawing.speed
    for side in sides:
        averages = ", ".join(f"{run['jct_s'] * drawing.speed:.0f}" for run in runs[side.name])
        result.row(
            f"{side.name}: average JCT of each run (trace s); changes; s until a free place is used",
            f"{averages}; {mean(side, 'changes'):.0f}; {mean(side, 'delay_s'):.2f}",
        )
    ratio = mean(rigid, "jct_s") / mean(elastic, "jct_s")
    result.row(
        f"afs-l against fifo gangs at fixed request ({rigid.order})",
        f"{ratio:.2f}x",
        f">= {AIM}x",
        ratio >= AIM,
    )
    for side in others:
        result.row(
            f"{side.name} against afs-l, average JCT", f"{mean(side, 'jct_s') / mean(elastic, 'jct_s'):.2f}x"
        )
    simulated: dict[str, list[float]] = {}
    for side in sides:
        said, at_once = both_ways(side, drawn, pause, runs[side.name], folder)
        simulated[side.name] = [one.jct for one in said]
        off, off_at_once = (
            mean(side, "jct_s") / statistics.fmean(one.jct for one in found) - 1.0
            for found in (said, at_once)
        )
        result.row(
            f"{side.name}: live against muster simulate --release --release-spread 1; without, the delay in restarts",
            f"{100 * off:+.1f} %; {100 * off_at_once:+.1f} %", f"within {100 * NEAR:.0f} %", abs(off) <= NEAR,
        )  # fmt: skip
        result.row(
            "    mean wait for the first start (trace s): live; simulated",
            f"{mean(side, 'wait_s') * drawing.speed:.0f}; "
            f"{statistics.fmean(one.wait for one in said) * drawing.speed:.0f}",
        )
    # What changes cost: where they are free, and where each has to gain more than it costs.
    restart = pause + mean(elastic, "usual_delay_s")
    for what, found in (
        ("afs-l simulated: as it is", simulate(elastic, drawn, restart, folder)),
        ("... if restarts were free", simulate(elastic, drawn, 0.0, folder)),
        ("... with resizeCost: true", simulate(THRIFTY, drawn, restart, folder)),
    ):
        result.row(
            f"{what}: average JCT (trace s); restarts", f"{found.jct * drawing.speed:.0f}; {found.restarts}"
        )
    return simulated
