"""Model similarity (papers/model-similarity-rounds-packing): what rounds and packing gain.

The paper's measured times are not published; jobs run by the law of `muster.policylib.references`, and on Gavel's
measured table (`muster.sim.presets.similarity_gavel`). The paper's figures are means over ten repetitions, as here
(packing: three, of 200 jobs each).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from e2e.reproduce.entry import Entry
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.presets import similarity, similarity_gavel
from muster.sim.result import Result
from muster.sim.workload import Workload

SEEDS, FEW = 10, 3
BASELINES = (
    "gavel-fifo",
    "gavel-isolation",
    "gavel-max-min-perf",
    "gavel-ftf-perf",
    "gavel-min-total-duration-perf",
)
LAW = "the measured times are not published; how much rounds gain is how much GPUs differ, here by a law"
OWN = "the same where length is counted in steps and batches are ranked by iterations/s, as the paper does"
SAMPLES = "by samples/s a job takes a large batch, which fills its GPU and leaves little to a second one"
STEPS = (
    "by iterations/s it takes the smallest batch, which leaves most of a GPU idle: the paper's lie in between"
)
MEASURED = "measured speeds of other models on other GPUs, which differ more: only the sign is claimed"


class Mean(NamedTuple):
    """Means over the repetitions, s."""

    makespan: float
    jct: float
    waiting: float


def entries(data: Path) -> list[Entry]:
    """Sections 6.1 and 6.2."""
    found = []
    for mode, target in (("gpu_ngpu", -33.0), ("gpu_ngpu_bs", -29.0)):
        for words, own, why in (("", False, LAW), (", steps and iterations/s", True, OWN)):
            name = f"rounds, 25 jobs, {mode}, makespan{words}"
            found.append(Entry(name, target, "%", 0.0, why, not own, partial(_rounds, mode, own), "sign"))
        name = f"rounds on Gavel's table, 25 jobs, {mode}, makespan"
        found.append(
            Entry(name, target, "%", 0.0, MEASURED, False, partial(_rounds_measured, mode, str(data)), "sign")
        )
    for words, own, why in (("", False, SAMPLES), (", steps and iterations/s", True, STEPS)):
        for which, (what, target) in enumerate((("makespan", -16.0), ("JCT", -20.0), ("waiting", -35.0))):
            name = f"packing, 200 jobs, gpu_ngpu_bs, {what}{words}"
            found.append(Entry(name, target, "%", 0.0, why, False, partial(_packing, own, which), "sign"))
    for minutes in (6, 12, 30):
        why = "every three minutes has the lowest makespan in the paper; no figure"
        name = f"rounds of {minutes} min against 3, 25 jobs, makespan"
        found.append(Entry(name, None, "%", 0.0, why, False, partial(_length, minutes)))
    why = (
        "what a model loses whose neighbour in the table stands for it; the paper's jobs are all in its table"
    )
    found.append(Entry("leave-one-out, 25 jobs, JCT", None, "%", 0.0, why, True, _left_out))
    why = "the paper's policy is below all five baselines; here those keep the GPUs that users asked for"
    found.append(
        Entry(
            "makespan, 25 jobs, best baseline / gpu_ngpu", 1.0, "x", 0.0, why, False, _baselines, "at least"
        )
    )
    return found


# ---- figures ----


def _rounds(mode: str, own: bool) -> float:
    """Changed decisions against unchanged ones, makespan, %."""
    fixed, changed = (_mean(25, SEEDS, own, mode=mode, cd=cd) for cd in (False, True))
    return 100.0 * (changed.makespan / fixed.makespan - 1.0)


@lru_cache
def _rounds_measured(mode: str, data: str) -> float:
    table = str(Path(data) / "gavel" / "simulation_throughputs.json.gz")
    references = similarity_gavel.references(table)
    found = []
    for cd in (False, True):
        arguments = {"mode": mode, "cd": cd, "references": references}
        results = [_run(similarity_gavel.workload(s, table=table), arguments) for s in range(SEEDS)]
        found.append(np.mean([_makespan(r) for r in results]))
    return float(100.0 * (found[1] / found[0] - 1.0))


def _packing(own: bool, which: int) -> float:
    """With packing against without, %."""
    alone, packed = (_mean(200, FEW, own, mode="gpu_ngpu_bs", jp=jp) for jp in (False, True))
    return 100.0 * (packed[which] / alone[which] - 1.0)


def _length(minutes: int) -> float:
    short, other = (_mean(25, SEEDS, False, round_s=60.0 * m) for m in (3, minutes))
    return 100.0 * (other.makespan / short.makespan - 1.0)


def _left_out() -> float:
    known, left_out = (_mean(25, SEEDS, False, leave_out=out) for out in (False, True))
    return 100.0 * (left_out.jct / known.jct - 1.0)


def _baselines() -> float:
    ours = _mean(25, FEW, False).makespan
    found = []
    for name in BASELINES:
        plugin = name.removesuffix("-perf")
        arguments = {plugin: {"round": 180.0}}
        profile = replace(build(name, arguments), round=180.0)
        results = [_simulated(similarity.workload(s), profile) for s in range(FEW)]
        found.append(np.mean([_makespan(r) for r in results]))
    return float(min(found) / ours)


# ---- runs ----


@lru_cache
def _mean(jobs: int, seeds: int, own: bool, round_s: float = 180.0, **parameters: Any) -> Mean:
    """own: the paper's units, both of a job's length and of throughput."""
    arguments = {**parameters, "unit": "iterations" if own else "samples"}
    counts = "steps" if own else "samples"
    results = [
        _run(similarity.workload(seed, jobs=jobs, counts=counts), arguments, round_s) for seed in range(seeds)
    ]
    return Mean(
        float(np.mean([_makespan(r) for r in results])),
        float(np.mean([np.mean(r.ended - r.submitted) for r in results])),
        float(np.mean([np.mean(r.started - r.submitted) for r in results])),
    )


def _run(workload: Workload, arguments: dict[str, Any], round_s: float = 180.0) -> Result:
    return _simulated(workload, build("similarity", {"similarity": arguments}), round_s)


def _simulated(workload: Workload, profile: Any, round_s: float = 180.0) -> Result:
    assert workload.cluster is not None
    result = simulate(workload, workload.cluster, profile, replace(similarity.OPTIONS, round=round_s))
    assert not result.cut, result.cut
    return result


def _makespan(result: Result) -> float:
    return float(np.max(result.ended) - np.min(result.submitted))
