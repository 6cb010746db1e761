"""The SideCar paper's Workload One, live: 40 jobs on 2 nodes x 8 GPUs, time-compressed, under the paper's default,
its termination-based scheduler, and its own by restarts and in place; beside the simulator, and beside the paper.

Jobs, arrivals and curves are those of `make reproduce` (muster.sim.presets.sidecar, seed 0). Three things differ, in
the simulations here too: both nodes have the mean speed of a V100 and a P100, since a declared speed has no product;
trainings only count; and the default's random number of GPUs is what a job asks for, drawn before. Live it is a gang
of just so many: Muster leaves no GPU idle for a job that could start with fewer.

A run that was made is kept below out/bench/workload-one: a measure that was cut off goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from e2e.bench import workload_one_live as live
from e2e.bench.change_costs import BY_RESTART, IN_PLACE, AsPlayed, Figures, simulated
from e2e.bench.drawn import write
from e2e.bench.live import Going, Run
from e2e.bench.policies import Kept
from e2e.bench.predicted import SEEDS
from e2e.bench.report import OUT, Progress, Result
from e2e.bench.trainings import Trained
from e2e.lab.errors import LabError
from e2e.reproduce.sidecar import OVERHEADS, PAPER
from muster import live_recipes, profiles
from muster.policylib.completion import Terms
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.presets import sidecar
from muster.sim.workload import Cluster, Group, Workload
from muster.types import JobKey
from muster_plugins.sidecar_default import drawn

DEFAULT, TERMINATION, RESTART, OURS = "sidecar-default", "termination", "reshape-restart", "reshape"
PROFILES = (DEFAULT, TERMINATION, RESTART, OURS)
SPEED = 40.0
NEAR = 0.05
PERIOD = 1.0
"""Seconds of this machine until a policy looks again at a job that adjusts."""
SETTLING = {OURS: sidecar.UP, RESTART: sidecar.UP_BY_RESTART, TERMINATION: sidecar.UP_BY_RESTART}
"""Trace s in which a job counts as adjusting: nothing reports here, so as long as a change takes at most."""


def workload(profile: str, jobs: int = 0) -> Workload:
    """The paper's, on two nodes of the mean speed of its products, as this profile has it. jobs: only the first so
    many; 0 = all."""
    made = sidecar.workload(0, "1")
    mean = (1.0 + sidecar.PRODUCTS[sidecar.V100]) / 2.0
    models = {
        name: replace(model, speeds={k: v * mean for k, v in model.speeds.items()}, products={})
        for name, model in made.models.items()
    }
    submissions = made.submissions[:jobs] if jobs else made.submissions
    if profile == DEFAULT:
        counts = [drawn(live.SIZES, 0, JobKey(live.SPACE, one.name)) for one in submissions]
        submissions = [
            replace(one, request=n, min=n, max=n, sizes=(n,))
            for one, n in zip(submissions, counts, strict=True)
        ]
    return replace(
        made,
        submissions=submissions,
        models=models,
        cluster=Cluster((Group(live.NODES, live.GPUS, "mean"),)),
    )


def trained(made: Workload, speed: float) -> list[Trained]:
    """The same jobs as the lab has them, from the first submission on, in seconds of this machine. Between two
    allowed numbers of GPUs a job is as fast as on the lower one."""
    first = made.submissions[0].submitted
    found = []
    for one in made.submissions:
        speeds = made.models[one.model].speeds
        curve = [0.0] + [
            speeds[max(n for n in live.SIZES if n <= count)] / speeds[1] for count in range(1, live.GPUS + 1)
        ]
        found.append(
            Trained(
                one.name,
                (one.submitted - first) / speed,
                one.request,
                one.min,
                one.max,
                one.work / speeds[1] / speed,
                tuple(curve),
                one.model,
            )
        )
    return found


def arguments(profile: str, speed: float, period: float) -> dict[str, dict[str, Any]]:
    """Of the profile's plugin, in seconds of which there are `speed` trace seconds in one. period: trace s."""
    if profile == DEFAULT:
        return {DEFAULT: {"draw": False}}
    plugin = "termination" if profile == TERMINATION else "reshape"
    own: dict[str, Any] = {"restart": True} if profile == RESTART else {}
    seconds = {key: value / speed for key, value in asdict(Terms()).items()}
    return {plugin: {**own, **seconds, "settling": SETTLING[profile] / speed, "period": period / speed}}


def foretold(
    profile: str, made: Workload, run: Run | None, speed: float, draws: int = len(SEEDS)
) -> list[Figures]:
    """By the simulator: with the costs of a live run, under the profile as a cluster has it, each replica with a
    release of its own, so many times; without a run with Fig. 3's. LabError where a job does not end."""
    if run is None or not run["release_s"] or profile == OURS:
        return [_foretold(profile, made, run, speed)]
    return [_foretold(profile, made, run, speed, seed) for seed in range(draws)]


def _foretold(profile: str, made: Workload, run: Run | None, speed: float, seed: int = 0) -> Figures:
    given: dict[str, dict[str, Any]] = {DEFAULT: {"draw": False}} if profile == DEFAULT else {}
    known, options = profiles.recipe(profile), Options(record=True)
    if run is not None:
        costs = IN_PLACE if profile == OURS else BY_RESTART
        release = 0.0 if profile == OURS else run["release_s"] * speed
        spread = 1.0 if release else 0.0
        options = replace(options, silent=True, release=release, release_spread=spread, seed=seed)
        made = replace(made, physics=AsPlayed(costs=costs, pod=run["usual_wait_s"] * speed))
        if profile != OURS:  # as the lab's Jobs say it
            tagged = [replace(one, tags={**one.tags, "resize": "restart"}) for one in made.submissions]
            made = replace(made, submissions=tagged)
        known = live_recipes.on_a_cluster(known, False, "declared")
        given = arguments(profile, 1.0, PERIOD * speed)
    assert made.cluster is not None
    built = profiles.build(profile, given, {profile: known})
    result = simulate(made, made.cluster, built, options)
    if result.cut or np.isnan(result.ended).any():
        raise LabError(f"workload-one: {profile}: not every job ended in the simulator")
    return simulated(result)


def measure(
    progress: Progress,
    *,
    names: Sequence[str] = PROFILES,
    jobs: int = 0,
    speed: float = SPEED,
    rounds: int = 1,
    draws: int = len(SEEDS),
    results: Path | None = None,
    keep: bool = False,
) -> Result:
    """Runs of each profile, one after the other, and their means. jobs: only the first so many (0: all); draws: of
    the simulator for each run; results: where runs are kept; those of the same jobs are not made again. LabError
    where a run comes to no end."""
    folder = results or OUT / "workload-one"
    folder.mkdir(parents=True, exist_ok=True)
    count = len(workload(OURS, jobs).submissions)
    kept = Kept(folder, {"jobs": count, "speed": speed})
    for name, n in [(name, n) for n in range(rounds) for name in names]:
        if kept.run(name, n) is not None:
            progress.say(f"{name}: run {n} is in {folder} and is not made again")
            continue
        todo = trained(workload(name, jobs), speed)
        write(todo, folder / f"{name}.csv")
        with progress.reading(f"{name} {n}: jobs done", count) as reading:
            run = live.run(
                Going(reading),
                f"bench-{name}",
                name,
                arguments(name, speed, PERIOD * speed),
                todo,
                speed,
                folder,
                keep,
            )
        kept.keep(name, n, run)
    result = Result(
        "workload-one",
        f"SideCar's Workload One, {count} jobs on {live.NODES} x {live.GPUS} GPUs, {speed:g}x compressed",
    )
    found = {}
    for name in names:
        runs, made = [kept.of(name, n) for n in range(rounds)], workload(name, jobs)
        lived = [as_figures(run, speed) for run in runs]
        said = [one for run in runs for one in foretold(name, made, run, speed, draws)]
        found[name] = {
            "live": Figures.mean(lived),
            "simulated": Figures.mean(said),
            "by Fig. 3": Figures.mean(foretold(name, made, None, speed)),
        }
        _rows(result, name, found[name], runs, speed)
        if len(lived) > 1 or len(said) > 1:
            ends = [f"{min(o.jct for o in of):.0f} to {max(o.jct for o in of):.0f}" for of in (lived, said)]
            result.row("    mean JCT of each: live; simulated with its costs", "; ".join(ends))
    for name in (OURS, RESTART):
        for against in (DEFAULT, TERMINATION):
            if name in found and against in found:
                _against(result, name, against, found)
    result.data |= {
        "arguments": {"jobs": count, "speed": speed, "rounds": rounds, "draws": draws},
        "profiles": {name: {how: vars(one) for how, one in each.items()} for name, each in found.items()},
    }
    return result


def as_figures(run: Run, speed: float) -> Figures:
    """A live run's, in trace s."""
    return Figures(run["makespan_s"] * speed, run["jct_s"] * speed, run["overhead"], run["changes"])


def _rows(result: Result, name: str, each: Mapping[str, Figures], runs: Sequence[Run], speed: float) -> None:
    lived, said = each["live"], each["simulated"]
    for what, words in (("makespan", "makespan"), ("jct", "mean JCT")):
        here, there, paper = (getattr(one, what) for one in (lived, said, each["by Fig. 3"]))
        off = here / there - 1.0
        result.row(
            f"{name}: {words} (trace s), live; simulated with its costs; with Fig. 3's",
            f"{here:.0f}; {there:.0f}: {100 * off:+.1f} %; {paper:.0f}",
            f"within {100 * NEAR:.0f} %",
            abs(off) <= NEAR,
        )
    if name == DEFAULT:
        return
    published = f"{OVERHEADS[name][0]:.1f} %" if name in OVERHEADS else "none"
    result.row(
        "    overhead of Table VIII, live; simulated; with Fig. 3's; the paper's",
        "; ".join(f"{100 * one.overhead:.1f} %" for one in each.values()) + f"; {published}",
    )
    result.row(
        "    changes, live; simulated; with Fig. 3's", "; ".join(str(one.changes) for one in each.values())
    )
    result.row(
        "    given up to used again; submission to training (medians, trace s)",
        "; ".join(
            f"{speed * fmean(run[what] for run in runs):.0f}" for what in ("release_s", "usual_wait_s")
        ),
    )


def _against(result: Result, name: str, against: str, found: Mapping[str, Mapping[str, Figures]]) -> None:
    for what, words in (("makespan", "makespan"), ("jct", "mean JCT")):
        gains = [
            100.0 * (getattr(found[name][how], what) / getattr(found[against][how], what) - 1.0)
            for how in ("live", "simulated", "by Fig. 3")
        ]
        published = f"{PAPER[what, against][0]:+.0f} %" if name == OURS else "none"
        result.row(
            f"{name} against {against}: {words}, live; simulated; with Fig. 3's; the paper's",
            "; ".join(f"{gain:+.0f} %" for gain in gains) + f"; {published}",
        )
