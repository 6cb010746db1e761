"""What `muster simulate` says of drawn jobs under a side of the comparison, and how that depends on load and seed."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from e2e.bench.drawn import Drawing, draw
from e2e.bench.report import Result
from e2e.bench.trainings import Trained
from e2e.lab.errors import LabError
from e2e.lab.shape import NODES_A_RACK
from muster import profiles
from muster.policylib.completion import Terms
from muster.sim.presets import sidecar
from muster.sim.sim_nodes import RACK
from muster.sim.submission import Model

MUSTER = (sys.executable, "-m", "muster.cli")
PAUSE = 30.0
"""Trace seconds that a job stands still when its replicas change: checkpoint, rendezvous, restart."""
EXPECTED_DELAY = 0.5
"""Seconds of this machine until a free place is used, where nothing was measured."""
LOADS = (1.0, 1.5, 2.0, 3.0, 4.0)
GPUS_A_NODE = 4
SEEDS = (0, 1, 2)
"""Draws of what each replica takes to leave, and of a policy's coins."""


BY_RESTART = {**asdict(Terms()), "settling": sidecar.UP_BY_RESTART, "period": 10.0}

HOURS: Mapping[str, Mapping[str, float]] = {
    "afs-p": {"quantum": 7200.0},
    "afs-s": {"quantum": 7200.0},
    **{
        f"gavel-{policy}": {"round": 360.0, "interval": 1920.0}
        for policy in ("fifo", "isolation", "max-min", "ftf", "min-total-duration")
    },
    "pollux": {"delay": 30.0},
    "reshape-restart": BY_RESTART,
    "specon": {"interval": 30.0, "smoothing": 120.0},
    "termination": BY_RESTART,
    "themis": {"lease": 1200.0},
    "tiresias-l": {"threshold": 180_000.0},
}
"""Arguments in seconds (GPU-seconds) of plugins that decide in rounds, quanta or leases, or predict: defaults."""
RESIZE_COST: Mapping[str, float] = {"horizon": 600.0, "cost": 30.0}
"""Seconds in the defaults of the plugin `resize-cost`."""
PLUGIN = {"reshape-restart": "reshape"}
"""The plugin of that profile, where its name is another."""


def hours(profile: str) -> dict[str, Mapping[str, float]]:
    """By plugin of a profile, what HOURS has of it: by its name, or else of those that share for it."""
    name = profile.removesuffix("-perf")
    if name in HOURS:
        return {PLUGIN.get(name, name): HOURS[name]}
    return {plugin: HOURS[plugin] for plugin in profiles.NAMED[profile].shares if plugin in HOURS}


def estimated(profile: str, estimate: str) -> dict[str, str]:
    """The setting, for a profile that shares or moves jobs and has no estimate of its own: beside that it is
    refused."""
    known = profiles.NAMED[profile]
    return {"estimate": estimate} if (known.shares or known.rebalance) and not known.estimate else {}


@dataclass(frozen=True)
class Side:
    """A profile and what is set of it. resize_cost: a change has to gain more than it costs. hurried: by how much its
    rounds, and the seconds that it counts in (HOURS, RESIZE_COST), are shorter."""

    name: str
    profile: str
    order: str = "backfill"
    resize_cost: bool = False
    hurried: float = 1.0

    def settings(self) -> dict[str, Any]:
        """The keys of a muster.yaml; speeds as annotated, where the profile has no estimate of its own."""
        made = {
            "profile": self.profile,
            "order": self.order,
            **estimated(self.profile, "declared"),
            **({"resizeCost": self.resize_cost} if profiles.NAMED[self.profile].shares else {}),
        }
        if self.hurried == 1.0:
            return made
        recipe = profiles.NAMED[self.profile]
        arguments = (
            {plugin: dict(given) for plugin, given in recipe.arguments.items()} if recipe.round else {}
        )
        counted = {"resize-cost": RESIZE_COST} if self.resize_cost and recipe.shares else {}
        for plugin, given in (hours(self.profile) | counted).items():
            arguments.setdefault(plugin, {}).update(
                {key: seconds / self.hurried for key, seconds in given.items()}
            )
        if arguments:
            made["pluginArgs"] = arguments
        if not recipe.round:
            return made
        scores = [{"name": name, "weight": weight} for name, weight in recipe.scores]
        own = {"scores": scores, "shares": list(recipe.shares), "round": recipe.round / self.hurried}
        own["resize"] = recipe.resize
        name = f"{self.profile}-hurried"
        return made | {"profile": name, "profiles": [{"name": name, **own}]}

    @property
    def round(self) -> float:
        """Seconds of this machine between two rounds; 0 = none."""
        return profiles.NAMED[self.profile].round / self.hurried

    def has(self, job: Trained) -> Trained:
        """The job as this side may have it: gangs keep the size they ask for where nothing is shared."""
        shares = profiles.NAMED[self.profile].shares
        return job if shares else replace(job, least=job.request, most=job.request)


ELASTIC, RIGID = Side("afs-l", "afs-l"), Side("fifo", "fifo")
THRIFTY = Side("afs-l, resizeCost: true", "afs-l", resize_cost=True)
STRICT = Side("fifo, order: strict", "fifo", order="strict")


@dataclass(frozen=True)
class Said:
    """Average JCT and wait for the first start (s of the clock that the jobs are in), and how many started again or
    changed."""

    jct: float
    wait: float
    restarts: int

    @staticmethod
    def mean(several: Sequence[Said]) -> Said:
        return Said(
            statistics.fmean(one.jct for one in several),
            statistics.fmean(one.wait for one in several),
            round(statistics.fmean(one.restarts for one in several)),
        )


def simulate(
    side: Side,
    drawn: Sequence[Trained],
    restart: float,
    folder: Path,
    *,
    gpus: int = 32,
    release: float = 0.0,
    seed: int = 0,
) -> Said:
    """`muster simulate --restart --release --release-spread 1 --silent` with these jobs on nodes like the lab's.
    LabError with its words where it fails."""
    jobs, nodes = [side.has(one) for one in drawn], gpus // GPUS_A_NODE
    workload = {
        "muster_workload": 1,
        "origin": "e2e.bench elastic",
        "models": {one.name: {"iterations_per_s": list(one.speeds[1:])} for one in jobs},
        "cluster": [
            {"nodes": nodes, "gpus": GPUS_A_NODE, "product": "gpu", "racks": -(-nodes // NODES_A_RACK)}
        ],
        "jobs": [
            {"job": j.name, "submit_s": j.at, "request": j.request, "model": j.name, "work": j.work}
            | {"min": j.least, "max": j.most}
            for j in jobs
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    trace, settings = folder / f"{side.name}.json", folder / f"{side.name}.yaml"
    trace.write_text(json.dumps(workload))
    settings.write_text(json.dumps(side.settings() | {"topologyLevels": [RACK]}))  # as in the lab
    options = ["--profile", str(settings), "--trace", str(trace), "--restart", f"{restart:.3f}"]
    options += ["--silent", "--json", "--seed", str(seed)]  # trainings of the lab only count
    if release:
        options += ["--release", f"{release:.3f}", "--release-spread", "1"]
    done = subprocess.run(
        [*MUSTER, "simulate", "--quiet", *options], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"elastic: muster simulate: {done.stderr.strip()}")
    (figures,) = json.loads(done.stdout).values()
    if figures["completed"] != len(jobs):
        raise LabError(f"elastic: muster simulate ended {figures['completed']} of {len(jobs)} jobs")
    return Said(
        float(figures["avg_jct_h"]) * 3600.0,
        float(figures["avg_queueing_h"]) * 3600.0,
        int(figures["restarts"]),
    )


def both_ways(
    side: Side,
    drawn: Sequence[Trained],
    pause: float,
    runs: Sequence[Mapping[str, Any]],
    folder: Path,
    seeds: Sequence[int] = SEEDS,
) -> tuple[list[Said], list[Said]]:
    """For each run: with the median time that GPUs took there to change hands (`--release`, mean of `seeds`), and as
    if they did at once and each change of a running job took the median delay longer. pause: s of this machine."""
    return (
        [
            Said.mean([simulate(side, drawn, pause, folder, release=run["release_s"], seed=n) for n in seeds])
            for run in runs
        ],
        [simulate(side, drawn, pause + run["usual_delay_s"], folder) for run in runs],
    )


@dataclass(frozen=True)
class Point:
    """One drawing under each side; JCT in trace seconds."""

    drawing: Drawing
    jct: Mapping[str, float]
    restarts: Mapping[str, int]

    def ratio(self, better: Side, than: Side) -> float:
        """How many times shorter the average JCT is."""
        return self.jct[than.name] / self.jct[better.name]


def explored(
    drawings: Sequence[Drawing], models: Mapping[str, Model], folder: Path, *, several: int = 2
) -> Iterator[Point]:
    """Each drawing under afs-l, without and with resizeCost, and fifo in both orders."""

    def point(drawing: Drawing) -> Point:
        drawn = draw(drawing, models)
        restart = PAUSE / drawing.speed + EXPECTED_DELAY
        place = folder / f"load-{drawing.load:g}-seed-{drawing.seed}"
        said = {
            side.name: simulate(side, drawn, restart, place, gpus=drawing.gpus)
            for side in (ELASTIC, THRIFTY, RIGID, STRICT)
        }
        return Point(
            drawing,
            {name: one.jct * drawing.speed for name, one in said.items()},
            {name: one.restarts for name, one in said.items()},
        )

    with ThreadPoolExecutor(several) as threads:
        yield from threads.map(point, drawings)


def table(result: Result, points: Sequence[Point], aim: float) -> None:
    """A row a load and pair of sides: the ratio for each seed, their mean."""
    seeds = ", ".join(str(s) for s in sorted({p.drawing.seed for p in points}))
    for load in sorted({p.drawing.load for p in points}):
        mine = [p for p in points if p.drawing.load == load]
        for better, than in ((ELASTIC, RIGID), (THRIFTY, RIGID), (ELASTIC, STRICT)):
            ratios = [p.ratio(better, than) for p in mine]
            mean = statistics.fmean(ratios)
            asked = (f">= {aim}x", mean >= aim) if (better, than) == (ELASTIC, RIGID) else ("", None)
            result.row(
                f"load {load:g}: {than.name} by {better.name}, seeds {seeds}; mean",
                f"{' '.join(f'{one:.2f}' for one in ratios)}; {mean:.2f}x",
                *asked,
            )
        result.row(
            f"load {load:g}: average JCT (trace s): {', '.join(mine[0].jct)}; restarts of afs-l, with resizeCost",
            ", ".join(f"{statistics.fmean(p.jct[name] for p in mine):.0f}" for name in mine[0].jct)
            + "; "
            + ", ".join(
                f"{statistics.fmean(p.restarts[side.name] for p in mine):.0f}" for side in (ELASTIC, THRIFTY)
            ),
        )
