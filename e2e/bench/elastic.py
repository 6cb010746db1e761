"""The same 60 elastic jobs on the lab under afs-l and under fifo gangs at their fixed request, and what `muster
simulate` says of them; plans from dumped snapshots replayed.

The jobs are drawn (seeded) over the measured curves of the AFS paper's models (`TRACES`); processes only count
(e2e/bench/trainings.py). Everything is in this machine's seconds: a trace second is 1/SPEED of one, in the lab, in
the annotations and in the simulated workload alike, so that nothing has to be scaled back.
"""

from __future__ import annotations

import csv
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from e2e.bench.course import lab_of
from e2e.bench.report import OUT, Progress, Result
from e2e.bench.trainings import Seen, Trained, Trainings
from e2e.cluster import Cluster, Pod
from e2e.demo.drive import TICK, Watch, a_namespace, under_way
from e2e.elastic import INDEX, reader
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.errors import LabError
from e2e.scenario import RUN_SECONDS, job
from muster.sim.replaying import replay

SPEED = 20.0
"""Trace seconds in one of this machine's: the most that the issue allows."""
NODES, GPUS = 8, 4
REQUESTS, WEIGHTS = (1, 2, 4, 8), (0.3, 0.25, 0.25, 0.2)
MEDIAN, SIGMA, SHORTEST, LONGEST = 360.0, 1.0, 120.0, 3600.0
"""Trace seconds that a job takes with what it requests: lognormal, cut."""
LOAD = 1.2
"""GPU-seconds asked for by GPU-seconds there are while jobs arrive."""
MOST = 16
DUMP_EVERY = 0.5
AIM, NEAR = 1.5, 0.05
LIMIT = 1800.0
CONFIG = {"estimate": "declared", "resizeCost": False}
"""Both sides of the comparison: speeds as annotated, and the policy as printed."""


def measure(
    progress: Progress, *, jobs: int = 60, seed: int = 1, rounds: int = 3, keep: bool = False
) -> Result:
    """`rounds` runs of each, alternating. LabError where the traces are missing."""
    where = f"{NODES} nodes x {GPUS} GPUs, {SPEED:g}x compressed, seed {seed}"
    result = Result("elastic", f"{jobs} elastic jobs on {where}")
    folder = OUT / "elastic"
    folder.mkdir(parents=True, exist_ok=True)
    drawn, models = draw(jobs, seed)
    write(drawn, folder / "jobs.csv")
    pause = 30.0 / SPEED
    runs: dict[str, list[dict[str, Any]]] = {"afs-l": [], "fifo": []}
    for number in range(rounds):
        for profile, found in runs.items():
            with lab_of(f"bench-{profile}", _shape(profile), keep) as one:
                found.append(_run(progress, one, profile, drawn, pause, folder / f"{profile}-{number}"))
    said = _figures(result, runs, drawn, models, pause, folder)
    result.data |= {
        "arguments": {"jobs": jobs, "seed": seed, "rounds": rounds},
        "runs": runs,
        "simulated": said,
    }
    return result


# ---- the jobs ----


def draw(count: int, seed: int) -> tuple[list[Trained], dict[str, tuple[float, ...]]]:
    """Jobs by submission and the curves they use (name of the job -> relative speeds at 0, 1, 2 ... replicas)."""
    path = Path(os.environ.get("TRACES", "../shared/data")) / "afs" / "models.json"
    if not path.is_file():
        raise LabError(
            f"elastic: needs the measured curves of the AFS paper: no file {path}; set TRACES to their folder"
        )
    measured = json.loads(path.read_text())
    rng = random.Random(seed)
    found, curves, asked = [], {}, 0.0
    for number in range(count):
        model = rng.choice(sorted(measured))
        times = measured[model]["time_per_iter_s"][:MOST]
        speeds = (0.0, *(times[0] / t for t in times))
        request = min(rng.choices(REQUESTS, WEIGHTS)[0], len(times))
        length = min(LONGEST, max(SHORTEST, rng.lognormvariate(0.0, SIGMA) * MEDIAN)) / SPEED
        asked += request * length
        name = f"job-{number:02}"
        curves[name] = speeds
        found.append(Trained(name, 0.0, request, 1, len(times), length * speeds[request], speeds))
    window = asked / (NODES * GPUS * LOAD)
    arrivals = sorted(rng.uniform(0.0, window) for _ in found)
    return [Trained(**{**vars(one), "at": at}) for one, at in zip(found, arrivals, strict=True)], curves


def write(drawn: Sequence[Trained], path: Path) -> None:
    """The jobs, as they were drawn (s of this machine)."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("job", "submit_s", "request", "least", "most", "work"))
        rows.writerows((j.name, round(j.at, 3), j.request, j.least, j.most, round(j.work, 3)) for j in drawn)


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


# ---- on the lab ----


def _shape(profile: str) -> Shape:
    values = [f"profile={profile}", *(f"config.{key}={str(value).lower()}" for key, value in CONFIG.items())]
    return Shape(groups=(NodeGroup(NODES, GPUS),), set_values=tuple(values))


def seen(pod: Pod, gone: bool) -> Seen:
    return Seen(pod.labels.get("bench/job", ""), pod.name, pod.node, gone or pod.terminal or pod.deleted)


def _run(
    progress: Progress, one: Lab, profile: str, drawn: Sequence[Trained], pause: float, folder: Path
) -> dict[str, Any]:
    """One run of all jobs: average JCT and delay (s of this machine), how many changes, dumps that replay."""
    cluster = Cluster(one.kubeconfig)
    trainings, waiting = Trainings(pause), list(drawn)
    folder.mkdir(parents=True, exist_ok=True)
    dumps: dict[float, Path] = {}
    token = reader(cluster)
    with (
        a_namespace(cluster, f"bench-{profile}") as namespace,
        Watch(cluster, namespace, seen) as watch,
        ThreadPoolExecutor(8) as callers,
        progress.reading(profile, len(drawn)) as reading,
    ):
        calls: list[Future[None]] = []
        dump: Future[None] | None = None
        began = last = time.monotonic()
        while True:
            now = time.monotonic() - began
            while waiting and waiting[0].at <= now:
                trained = waiting.pop(0)
                if profile == "fifo":
                    trained = replace(trained, least=trained.request, most=trained.request)
                trainings.submitted(trained, now)
                body = manifest(trained)
                calls.append(callers.submit(_submit, cluster, body, namespace))
            for sighting in watch.seen():
                trainings.saw(sighting, now)
            calls += [callers.submit(_finish, cluster, namespace, name) for name in trainings.due(now)]
            calls = under_way(calls)
            if (dump is None or dump.done()) and time.monotonic() - last >= DUMP_EVERY:
                last = time.monotonic()
                dump = callers.submit(_dump, one, token, folder, dumps)
            reading(len(drawn) - len(waiting) - trainings.left)
            if (not waiting and not trainings.left) or now > LIMIT:
                break
            time.sleep(TICK)
        under_way(calls)
    if trainings.left:
        raise LabError(f"elastic: {trainings.left} jobs of {profile} were not done within {LIMIT:.0f} s")
    different = [str(path) for path in dumps.values() if not replays(path)]
    return {
        "jct_s": round(trainings.jct(), 3),
        "delay_s": round(trainings.delay(), 3),
        "changes": sum(t.changes for t in trainings.jobs.values()),
        "binds": len(trainings.delays),
        "dumps": len(dumps),
        "dumps_that_differ": different,
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


MUSTER = (sys.executable, "-m", "muster.cli")


# ---- the simulator, and the figures ----


def simulate(
    profile: str, drawn: Sequence[Trained], curves: dict[str, tuple[float, ...]], restart: float, folder: Path
) -> float:
    """Average JCT (s of this machine) by `muster simulate --restart`, on the same jobs and configuration."""
    rigid = profile == "fifo"
    workload = {
        "muster_workload": 1,
        "origin": "e2e.bench elastic",
        "models": {name: {"iterations_per_s": list(speeds[1:])} for name, speeds in curves.items()},
        "cluster": [{"nodes": NODES, "gpus": GPUS, "product": "gpu"}],
        "jobs": [
            {"job": j.name, "submit_s": j.at, "request": j.request, "model": j.name, "work": j.work}
            | ({"least": j.request, "most": j.request} if rigid else {"least": j.least, "most": j.most})
            for j in drawn
        ],
    }  # fmt: skip
    trace = folder / f"{profile}.json"
    trace.write_text(json.dumps(workload))
    settings = folder / f"{profile}.yaml"
    settings.write_text(json.dumps({"profile": profile, **CONFIG}))
    options = ["--profile", str(settings), "--trace", str(trace), "--restart", f"{restart:.3f}", "--json"]
    done = subprocess.run([*MUSTER, "simulate", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"elastic: muster simulate: {done.stderr.strip()}")
    figures: dict[str, Any] = next(iter(json.loads(done.stdout).values()))
    return float(_figure(figures, "avg_jct_h")) * 3600.0


def _figure(found: Any, name: str) -> Any:
    if isinstance(found, dict):
        if name in found:
            return found[name]
        for value in found.values():
            inner = _figure(value, name)
            if inner is not None:
                return inner
    return None


def _figures(
    result: Result,
    runs: dict[str, list[dict[str, Any]]],
    drawn: Sequence[Trained],
    curves: dict[str, tuple[float, ...]],
    pause: float,
    folder: Path,
) -> dict[str, list[float]]:
    mean: Callable[[str, str], float] = lambda profile, key: statistics.fmean(r[key] for r in runs[profile])  # noqa: E731
    ratio = mean("fifo", "jct_s") / mean("afs-l", "jct_s")
    for profile, found in runs.items():
        averages = ", ".join(f"{run['jct_s'] * SPEED:.0f}" for run in found)
        result.row(
            f"{profile}: average JCT, {len(found)} runs (trace s); changes; s until a free place is used",
            f"{averages}; {mean(profile, 'changes'):.0f}; {mean(profile, 'delay_s'):.2f}",
        )
    result.row("afs-l against fifo gangs at fixed request", f"{ratio:.2f}x", f">= {AIM}x", ratio >= AIM)
    simulated: dict[str, list[float]] = {}
    for profile, found in runs.items():
        simulated[profile] = [simulate(profile, drawn, curves, pause + r["delay_s"], folder) for r in found]
        off = mean(profile, "jct_s") / statistics.fmean(simulated[profile]) - 1.0
        result.row(
            f"{profile}: live against muster simulate --restart with the delays of the run",
            f"{100 * off:+.1f} %", f"within {100 * NEAR:.0f} %", abs(off) <= NEAR,
        )  # fmt: skip
    dumps = sum(r["dumps"] for found in runs.values() for r in found)
    differ = sum(len(r["dumps_that_differ"]) for found in runs.values() for r in found)
    result.row(
        "dumped snapshots whose plan is replayed identically",
        f"{dumps - differ} of {dumps}",
        "all",
        not differ,
    )
    return simulated
