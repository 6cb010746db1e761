# Over 300 lines: one experiment: its labs, its simulations and the table that compares them.
"""The same elastic jobs on labs under afs-l and under fifo gangs at their fixed request, and what `muster simulate`
says of them; plans from dumped snapshots replayed.

The jobs are drawn (e2e/bench/drawn.py) over the measured curves of the AFS paper's models (`TRACES`); processes only
count (e2e/bench/trainings.py). Everything is in this machine's seconds: a trace second is 1/speed of one, in the lab,
in the annotations and in the simulated workload alike, so that nothing has to be scaled back.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from e2e.bench import demand
from e2e.bench.course import lab_of
from e2e.bench.drawn import SHORTEST, Drawing, draw, part_of_philly, write
from e2e.bench.predicted import (
    ELASTIC,
    GPUS_A_NODE,
    LOADS,
    PAUSE,
    THRIFTY,
    Side,
    explored,
    simulate,
    table,
)
from e2e.bench.report import OUT, Progress, Result
from e2e.bench.trainings import Seen, Trained, Trainings
from e2e.cluster import Cluster, Pod
from e2e.demo.drive import TICK, Watch, under_way
from e2e.elastic import INDEX, reader
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.errors import LabError
from e2e.scenario import RUN_SECONDS, a_namespace, job
from muster.sim import models
from muster.sim.replaying import replay
from muster.sim.submission import Model
from muster.sim.traces import Asked, read

LOAD = 2.0
"""GPU-seconds asked for by GPU-seconds there are while jobs arrive. What a job of AFS's traces sees on that paper's
cluster is 2.1, and its busy hours have a median of 1.7 (e2e/bench/demand.py; `--simulate-only` prints both)."""
DUMP_EVERY = 1.0
AIM, NEAR = 1.5, 0.05
LIMIT = 1800.0
ALSO = ("tide", "afs-p", "max-min", "optimus")
"""Elastic profiles that may run beside afs-l."""
SEEDS = 5

Run = dict[str, Any]


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
    differ = _differing([Path(path) for found in runs.values() for run in found for path in run["dumps"]])
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


def manifest(one: Trained) -> dict[str, Any]:
    """The Job with all the replicas that it may have."""
    speed = ",".join(f"{n}={one.speeds[n]:.6f}" for n in range(1, one.most + 1))
    notes = {
        "muster.dev/remaining-work": f"{one.work:.3f}",
        "muster.dev/speed": speed,
        "muster.dev/request": str(one.request),
    }
    return job(
        one.name,
        one.most,
        success_on="0",
        min_replicas=one.least,
        max_replicas=one.most,
        annotations=notes,
        labels={"bench/job": one.name},
        backoff_limit=0,
        stop_seconds=0,
    )


# ---- on labs ----


@dataclass
class Going:
    """Runs that go on at the same time. over: all of them are to stop; done: jobs that each has seen end."""

    reading: Callable[[int], object]
    over: threading.Event = field(default_factory=threading.Event)
    done: dict[str, int] = field(default_factory=dict)

    def has(self, run: str, done: int) -> None:
        self.done[run] = done
        self.reading(sum(self.done.values()))


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
    """Rounds in order, sides alternating, each on a lab of its own: `beside` labs are brought up, then all run."""
    todo = [(side, number) for number in range(rounds) for side in sides]
    found: dict[str, list[Run]] = {side.name: [] for side in sides}
    with progress.reading("jobs done, all runs", len(todo) * len(drawn)) as reading:
        going = Going(reading)
        for first in range(0, len(todo), beside):
            wave = todo[first : first + beside]
            with contextlib.ExitStack() as labs:
                ready = [
                    labs.enter_context(lab_of(f"bench-{side.name}-{number}", _shape(side, drawing), keep))
                    for side, number in wave
                ]
                with ThreadPoolExecutor(len(wave)) as several:
                    runs = [
                        several.submit(
                            _run, going, lab, side, drawn, PAUSE / drawing.speed, folder / f"{side.name}-{number}"
                        )
                        for lab, (side, number) in zip(ready, wave, strict=True)
                    ]  # fmt: skip
                    try:
                        for (side, _), run in zip(wave, runs, strict=True):
                            found[side.name].append(run.result())
                    except BaseException:
                        going.over.set()
                        raise
    return found


def _shape(side: Side, drawing: Drawing) -> Shape:
    """Nodes of a drawing's GPUs; the side's settings as values of the chart."""
    own = {"profile", "order"}
    values = [
        f"{'' if key in own else 'config.'}{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in side.settings().items()
    ]
    nodes = drawing.gpus // GPUS_A_NODE
    return Shape(groups=(NodeGroup(nodes, GPUS_A_NODE),), set_values=tuple(values))


def seen(pod: Pod, gone: bool) -> Seen:
    return Seen(pod.labels.get("bench/job", ""), pod.name, pod.node, gone or pod.terminal or pod.deleted)


def _run(going: Going, one: Lab, side: Side, drawn: Sequence[Trained], pause: float, folder: Path) -> Run:
    """One run of all jobs: average JCT and delay (s of this machine), how many changes, dumped snapshots."""
    cluster = Cluster(one.kubeconfig)
    trainings, waiting = Trainings(pause), list(drawn)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    dumps: dict[float, Path] = {}
    token = reader(cluster)
    with (
        a_namespace(cluster, f"bench-{side.profile}") as namespace,
        Watch(cluster, namespace, seen) as watch,
        ThreadPoolExecutor(8) as callers,
    ):
        calls: list[Future[None]] = []
        dump: Future[None] | None = None
        began = last = time.monotonic()
        while not going.over.is_set():
            now = time.monotonic() - began
            while waiting and waiting[0].at <= now:
                trained = side.has(waiting.pop(0))
                trainings.submitted(trained, now)
                calls.append(callers.submit(_submit, cluster, manifest(trained), namespace))
            for sighting in watch.seen():
                trainings.saw(sighting, now)
            calls += [callers.submit(_finish, cluster, namespace, name) for name in trainings.due(now)]
            calls = under_way(calls)
            if (dump is None or dump.done()) and time.monotonic() - last >= DUMP_EVERY:
                last = time.monotonic()
                dump = callers.submit(_dump, one, token, folder, dumps)
            going.has(one.name, len(drawn) - len(waiting) - trainings.left)
            if (not waiting and not trainings.left) or now > LIMIT:
                break
            time.sleep(TICK)
        under_way(calls)
    if waiting or trainings.left:
        left = len(waiting) + trainings.left
        raise LabError(f"elastic: {left} jobs of {side.name} were not done within {LIMIT:.0f} s")
    return {
        "jct_s": round(trainings.jct(), 3),
        "delay_s": round(trainings.delay(), 3),
        "wait_s": round(trainings.wait(), 3),
        "changes": sum(t.changes for t in trainings.jobs.values()),
        "binds": len(trainings.delays),
        "seconds": round(now, 1),
        "dumps": [str(path) for path in dumps.values()],
        "jobs": {name: round((t.ended or 0.0) - t.submitted, 3) for name, t in trainings.jobs.items()},
    }


def _submit(cluster: Cluster, body: dict[str, Any], namespace: str) -> None:
    cluster.submit(body, namespace=namespace)


def _finish(cluster: Cluster, namespace: str, name: str) -> None:
    """Its leader ends well; the Job's successPolicy ends the rest."""
    for pod in cluster.pods(namespace, name):
        if pod.labels.get(INDEX) == "0" and pod.node and not pod.deleted:
            notes = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
            cluster.patch(f"/api/v1/namespaces/{namespace}/pods/{pod.name}", notes)


def _dump(one: Lab, token: str, folder: Path, dumps: dict[float, Path]) -> None:
    answer = httpx.get(
        f"{one.service_url()}/debug/snapshot",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=30,
    )
    if answer.status_code != 200:
        return  # the right was given a moment ago
    text = answer.text
    at = float(json.loads(text)["snapshot"]["now"])
    if at not in dumps:
        path = folder / f"{at:.3f}.json"
        path.write_text(text)
        dumps[at] = path


def replays(path: Path) -> bool:
    """Whether `muster replay` makes the very plan that is in the dump."""
    found: list[Any] = json.loads(replay(str(path), None, True, False))["differences"]
    return not found


def _differing(dumps: Sequence[Path]) -> list[str]:
    """The dumps whose plan comes out differently."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as several:
        same = list(several.map(replays, dumps, chunksize=20))
    return [str(path) for path, one in zip(dumps, same, strict=True) if not one]


# ---- the figures ----


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
        said = [simulate(side, drawn, pause + run["delay_s"], folder) for run in runs[side.name]]
        simulated[side.name] = [one.jct for one in said]
        off = mean(side, "jct_s") / statistics.fmean(simulated[side.name]) - 1.0
        result.row(
            f"{side.name}: live against muster simulate --restart with the delays of the run",
            f"{100 * off:+.1f} %", f"within {100 * NEAR:.0f} %", abs(off) <= NEAR,
        )  # fmt: skip
        # In the simulator a first start takes no time: what live is slower by here is in every JCT.
        result.row(
            "    mean wait for the first start (trace s): live; simulated",
            f"{mean(side, 'wait_s') * drawing.speed:.0f}; "
            f"{statistics.fmean(one.wait for one in said) * drawing.speed:.0f}",
        )
    # What changes cost: where they are free, and where each has to gain more than it costs.
    restart = pause + mean(elastic, "delay_s")
    for what, found in (
        ("afs-l simulated: as it is", simulate(elastic, drawn, restart, folder)),
        ("... if restarts were free", simulate(elastic, drawn, 0.0, folder)),
        ("... with resizeCost: true", simulate(THRIFTY, drawn, restart, folder)),
    ):
        result.row(
            f"{what}: average JCT (trace s); restarts", f"{found.jct * drawing.speed:.0f}; {found.restarts}"
        )
    return simulated
