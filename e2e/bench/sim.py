"""The simulator against the AFS authors' own, and AFS's shares on a large cluster (issue 4, Measures).

CPU of whole processes, as `time` would tell it (their Python simulator: 1.06 ms a job on VC 6214e9, 0.6 ms a job of
event loop on 2869ce); the largest number of jobs and GPUs in this process. Needs the folder of real data (TRACES).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from e2e.bench.report import Progress, Result
from e2e.lab.errors import LabError
from e2e.lab.places import CHECKOUT
from muster.core.sharing.job_table import curves
from muster.points import load
from muster.policylib import afs
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.submission import Curve
from muster.sim.traces import Asked, read
from muster.sim.workload import Cluster, Group
from muster.types import IntArray, Nodes, SharingSnapshot, Table
from tests.policylib.plain_scan import plain_scan

THEIRS_MS = {"6214e9": 1.06, "2869ce": 0.6}
"""The authors' simulator, CPU a job (issue 4): the whole process, and its event loop alone."""
POLLUX_S = 49.0
"""Pollux's own simulator, workload-6 under Optimus."""
FLOOR, AIM, POLLUX_AIM = 3.0, 10.0, 20.0
TOGETHER_S = 60.0
SCRATCH_S, ARRIVAL_S = 1.0, 0.05


def measure(progress: Progress, *, rounds: int = 3) -> Result:
    """All of them, each the best of `rounds`."""
    data = Path(os.environ.get("TRACES", CHECKOUT.parent / "shared" / "data"))
    if not (data / "README.md").exists():
        raise LabError("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    result = Result("sim", f"The simulator, best of {rounds}", data={"arguments": {"rounds": rounds}})
    _whole(result, progress, data, rounds)
    _loop(result, progress, data, rounds)
    _together(result, progress, data)
    _pollux(result, progress, data, rounds)
    _shares(result, progress, data, rounds)
    return result


def _muster(arguments: Sequence[str]) -> tuple[float, float, dict[str, Any]]:
    """CPU seconds (user and system) and peak MiB of one `muster` process, and the JSON object that it printed."""
    command = [sys.executable, "-m", "muster.cli", *arguments]
    with tempfile.TemporaryFile() as told:
        child = subprocess.Popen(command, stdout=told, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        told.seek(0)
        printed = told.read()
    if child.returncode:
        raise LabError(f"muster {' '.join(arguments)}: exit {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, json.loads(printed)


def _simulate(trace: Path, profile: str) -> list[str]:
    return ["simulate", "--json", "--fluid", "--gpus", "64", "--profile", profile, "--trace", str(trace)]


def _whole(result: Result, progress: Progress, data: Path, rounds: int) -> None:
    trace = data / "afs" / "trace_6214e9.csv.gz"
    runs = []
    for number in range(rounds):
        runs.append(_muster(_simulate(trace, "afs-l")))
        progress.say(f"  6214e9, round {number + 1}: {runs[-1][0]:.1f} s CPU")
    cpu, memory, printed = min(runs, key=lambda run: run[0])
    jobs = printed["afs-l"]["jobs"]
    each = cpu / jobs * 1000.0
    times = THEIRS_MS["6214e9"] / each
    result.row(f"6214e9 ({jobs} jobs), afs-l, CPU of the whole process", f"{cpu:.1f} s, {each:.3f} ms a job")
    result.row("  against the authors' 1.06 ms a job", f"{times:.1f} x", "3 x, aim 10 x", times >= AIM)
    result.row("  memory", f"{memory:.0f} MiB")
    result.data["6214e9"] = {"cpu_s": [run[0] for run in runs], "jobs": jobs, "mib": memory, "times": times}


def _loop(result: Result, progress: Progress, data: Path, rounds: int) -> None:
    """With the compiled scan there already: its import is in the whole process above, where it pays by itself."""
    shared(crowd(data, 600, 250_000))
    workload, _ = read(Asked(data / "afs" / "trace_2869ce.csv.gz", gpus=64))
    profile, cluster = build("afs-l"), Cluster((Group(16, 4),), fluid=True)
    took = []
    for _ in range(rounds):
        began = time.process_time()
        simulate(workload, cluster, profile, Options(whole_seconds=True))
        took.append(time.process_time() - began)
    each = min(took) / len(workload.submissions) * 1000.0
    times = THEIRS_MS["2869ce"] / each
    progress.say(f"  2869ce: {min(took):.2f} s")
    result.row("2869ce, afs-l, event loop alone", f"{each:.3f} ms a job")
    result.row("  against the authors' 0.6 ms a job", f"{times:.1f} x", "3 x, aim 10 x", times >= AIM)
    result.data["2869ce"] = {"cpu_s": took, "times": times}


def _together(result: Result, progress: Progress, data: Path) -> None:
    total, jobs = 0.0, 0
    for trace in sorted((data / "afs").glob("trace_*.csv.gz")):
        cpu, _, printed = _muster(_simulate(trace, "afs-l"))
        total += cpu
        jobs += printed["afs-l"]["jobs"]
        progress.say(f"  {trace.name}: {cpu:.1f} s CPU")
    result.row(f"all 11 traces ({jobs} jobs), afs-l", f"{total:.1f} s CPU", "under 60 s", total < TOGETHER_S)
    result.data["together"] = {"cpu_s": total, "jobs": jobs}


def _pollux(result: Result, progress: Progress, data: Path, rounds: int) -> None:
    trace = data / "pollux" / "workloads" / "workload-6.csv"
    arguments = [
        "simulate",
        "--json",
        "--gpus",
        "64",
        "--gpus-per-node",
        "4",
        "--restart",
        "30",
        "--round",
        "60",
    ]
    runs = [
        _muster([*arguments, "--profile", "optimus-pollux", "--trace", str(trace)]) for _ in range(rounds)
    ]
    cpu = min(run[0] for run in runs)
    times = POLLUX_S / cpu
    progress.say(f"  Pollux workload-6: {cpu:.1f} s")
    result.row("Pollux workload-6, optimus-pollux, the whole process", f"{cpu:.1f} s CPU")
    result.row("  against its own simulator's 49 s", f"{times:.1f} x", "20 x", times >= POLLUX_AIM)
    result.data["pollux"] = {"cpu_s": [run[0] for run in runs], "times": times}


def crowd(data: Path, jobs: int, gpus: int, seed: int = 0) -> Table:
    """Jobs of AFS's models drawn uniformly, remaining work lognormal, as a table of `gpus` GPUs."""
    workload, _ = read(Asked(data / "afs" / "trace_2869ce.csv.gz", gpus=64))
    models = [m for m in workload.models.values() if isinstance(m, Curve)]
    rng = np.random.default_rng(seed)
    table = Table()
    _, table.curves = curves([(0.0, *(s / m.speeds[0] for s in m.speeds)) for m in models], 1)
    table.curve = rng.integers(len(models), size=jobs)
    table.remaining = rng.lognormal(0.0, 1.0, jobs) * 3600.0
    table.max = np.array([m.max for m in models], dtype=np.int64)[table.curve]
    table.min = table.unit = np.ones(jobs, dtype=np.int64)
    table.fixed = np.zeros(jobs, dtype=np.int64)
    table.submitted = np.arange(jobs, dtype=np.float64)
    table.have, table.executed = np.zeros(jobs, dtype=np.int64), np.zeros(jobs)
    table.sizes, table.gpus = {}, gpus
    return table


def shared(table: Table) -> tuple[float, IntArray]:
    """CPU seconds of AFS-L's stage two on a table, and the replicas."""
    began = time.process_time()
    replicas = afs.distribute(table, table.gpus - len(table), table.remaining)
    return time.process_time() - began, replicas


def _by_tide(table: Table) -> float:
    """CPU seconds of a whole decision of tide, reasons and all."""
    nodes = Nodes([])
    snapshot = SharingSnapshot(float(len(table)), nodes, nodes.total, {}, table=table)
    policy = load("tide")
    began = time.process_time()
    shares = policy.share(snapshot)
    assert int(shares.replicas.sum()) <= table.gpus
    return time.process_time() - began


def _shares(result: Result, progress: Progress, data: Path, rounds: int) -> None:
    before, after = crowd(data, 10_000, 100_000), crowd(data, 10_001, 100_000)
    shared(crowd(data, 600, 250_000))  # the import and the compiled kernel, once
    small = crowd(data, 600, 2000)
    steps, kind = afs._classes(small)
    plain = steps.count[kind, plain_scan(steps, kind.tolist(), small.remaining.tolist(), 1400)]
    equal = bool((shared(small)[1] == plain).all())
    scratch = min(shared(before)[0] for _ in range(rounds))
    arrival = min(shared(after)[0] for _ in range(rounds))
    progress.say(f"  10,000 jobs on 100,000 GPUs: {scratch * 1000:.0f} ms, one more: {arrival * 1000:.0f} ms")
    result.row(
        "AFS shares, 10,000 jobs on 100,000 GPUs", f"{scratch * 1000:.0f} ms", "1 s", scratch <= SCRATCH_S
    )
    result.row(
        "  after one arrival (from scratch again: nothing is kept)",
        f"{arrival * 1000:.0f} ms",
        "50 ms",
        arrival <= ARRIVAL_S,
    )
    result.row("  equal to the plain scan (600 jobs, 2,000 GPUs)", "yes" if equal else "no", "yes", equal)
    tide = min(_by_tide(before) for _ in range(rounds))
    result.row(
        "tide's shares, 10,000 jobs on 100,000 GPUs", f"{tide * 1000:.0f} ms", "1 s", tide <= SCRATCH_S
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result.row("  memory of this process", f"{peak:.0f} MiB")
    result.data["shares"] = {
        "scratch_s": scratch,
        "arrival_s": arrival,
        "equal": equal,
        "tide_s": tide,
        "mib": peak,
    }
