"""Model similarity (papers/model-similarity-rounds-packing): what rounds and packing gain.

The paper names a public repository of its authors, which was not reached, so that its measured times are not known
here: jobs run by the law of `muster.policylib.references`, and on Gavel's measured table
(`muster.sim.presets.similarity_gavel`). Of the law two constants are not the paper's: `launch`, the host's time for
a layer, is free, and `reached`, the part of peaks and links that is reached, is fitted to the paper's Fig. 3. Figures
are shown over what is measured of the one (0.05 to 0.6 ms), the other at 0.3 and 0.8 too, and over three sets of
draws. The headline is in the paper's unit: a job's length counts in steps, and choices are ranked by iterations/s.
The paper's figures are means over ten repetitions, and so is each here (packing: over three, of 200 jobs each); on
Gavel's table ranges are over single repetitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from e2e.reproduce.entry import Entry, Range
from muster.policylib.references import PAPER, Law
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.presets import similarity, similarity_gavel
from muster.sim.result import Result
from muster.sim.workload import Workload

SEEDS, FEW = 10, 3
SETS = 3
"""Of so many draws each."""
BASELINES = (
    "gavel-fifo",
    "gavel-isolation",
    "gavel-max-min-perf",
    "gavel-ftf-perf",
    "gavel-min-total-duration-perf",
)
LAWS = (PAPER, Law(launch=5e-5), Law(launch=6e-4), Law(reached=0.3), Law(reached=0.8))
"""What the preset assumes; ten bare kernel launches a layer at the least, and Gavel's table at the most; parts of the
peak on both sides, of which Gavel's table has the upper one."""
UNIT = "in the paper's unit"
OTHER = "lengths in samples, choices by samples/s: not the paper's"
LAW = (
    "law: public data sheets; launch (0.05 to 0.6 ms), draws (three sets): free; part of peaks and links reached (0.3"
    " to 0.8): 0.5 fits Fig. 3; pairs: Gavel's measured means"
)
TABLE = "Gavel's measured table; jobs' lengths: free, drawn"


class Mean(NamedTuple):
    """Means over the repetitions, s."""

    makespan: float
    jct: float
    waiting: float


def entries(data: Path) -> list[Entry]:
    """Sections 6.1 and 6.2."""
    table = str(data / "gavel" / "simulation_throughputs.json.gz")
    found = []
    for mode, target in (("gpu_ngpu", -33.0), ("gpu_ngpu_bs", -29.0)):
        for words, own, why in (("", True, UNIT), (", by samples", False, OTHER)):
            name = f"rounds, 25 jobs, {mode}, makespan{words}"
            found.append(_entry(name, target, why, LAW, partial(_rounds, mode, own)))
        name = f"rounds on Gavel's table, 25 jobs, {mode}, makespan"
        why = "measured speeds of other models on other GPUs, which differ more"
        found.append(_entry(name, target, why, TABLE, partial(_rounds_measured, mode, table)))
    for which, (what, target) in enumerate((("makespan", -16.0), ("JCT", -20.0), ("waiting", -35.0))):
        for words, own, why in (("", True, UNIT), (", by samples", False, OTHER)):
            name = f"packing, 200 jobs, gpu_ngpu_bs, {what}{words}"
            found.append(_entry(name, target, why, LAW, partial(_packing, own, which)))
        name = f"packing on Gavel's table, 100 jobs, gpu_ngpu, {what}"
        why = "measured pairs; a job may not change its batch size there, since other sizes are other configurations"
        found.append(_entry(name, target, why, TABLE, partial(_packing_measured, table, which)))
    for minutes in (6, 12, 30):
        why = "every three minutes has the lowest makespan in the paper; no figure"
        name = f"rounds of {minutes} min against 3, 25 jobs, makespan"
        found.append(Entry(name, None, "%", 0.0, why, False, partial(_length, minutes), source=LAW))
    why = (
        "what a model loses whose neighbour in the table stands for it; the paper's jobs are all in its table"
    )
    found.append(Entry("leave-one-out, 25 jobs, JCT", None, "%", 0.0, why, False, _left_out, source=LAW))
    why = "the paper's policy is below all five baselines; here those keep the GPUs that users asked for"
    found.append(
        Entry(
            "makespan, 25 jobs, best baseline / gpu_ngpu", 1.0, "x", 0.0, why, False, _baselines, "at least",
            source=LAW, basis="direction",
        )
    )  # fmt: skip
    return found


def _entry(name: str, target: float, why: str, source: str, measure: Callable[[], Range]) -> Entry:
    return Entry(name, target, "%", 0.0, why, False, measure, "inside", False, source, basis="paper")


# ---- figures ----


def _over_laws(figure: Callable[[Law, int], float]) -> Range:
    """figure: of a law and a set of draws. The first law's on the first set, between all laws on it and that law on
    all sets."""
    found = [figure(law, 0) for law in LAWS] + [figure(PAPER, which) for which in range(1, SETS)]
    return Range.first(found)


def _rounds(mode: str, own: bool) -> Range:
    """Changed decisions against unchanged ones, makespan, %."""

    def change(law: Law, draws: int) -> float:
        fixed, changed = (
            _mean(25, SEEDS, own, law=law, draws=draws, mode=mode, cd=cd) for cd in (False, True)
        )
        return 100.0 * (changed.makespan / fixed.makespan - 1.0)

    return _over_laws(change)


@lru_cache
def _rounds_measured(mode: str, table: str) -> Range:
    """Over the ten repetitions."""
    references = similarity_gavel.references(table)
    found = []
    for seed in range(SEEDS):
        workload = similarity_gavel.workload(seed, table=table)
        fixed, changed = (
            _makespan(_run(workload, {"mode": mode, "cd": cd, "references": references}))
            for cd in (False, True)
        )
        found.append(100.0 * (changed / fixed - 1.0))
    return Range.of(found)


def _packing(own: bool, which: int) -> Range:
    """With packing against without, %."""

    def change(law: Law, draws: int) -> float:
        alone, packed = (
            _mean(200, FEW, own, law=law, draws=draws, mode="gpu_ngpu_bs", jp=jp) for jp in (False, True)
        )
        return 100.0 * (packed[which] / alone[which] - 1.0)

    return _over_laws(change)


@lru_cache
def _packed_measured(table: str) -> tuple[tuple[Mean, Mean], ...]:
    """Without and with packing, by repetition."""
    references = similarity_gavel.references(table)
    found = []
    for seed in range(FEW):
        workload = similarity_gavel.workload(seed, jobs=100, table=table)
        alone, packed = (_run(workload, {"jp": jp, "references": references}) for jp in (False, True))
        found.append((_means([alone]), _means([packed])))
    return tuple(found)


def _packing_measured(table: str, which: int) -> Range:
    return Range.of(
        [100.0 * (packed[which] / alone[which] - 1.0) for alone, packed in _packed_measured(table)]
    )


def _length(minutes: int) -> Range:
    def change(law: Law, draws: int) -> float:
        short, other = (_mean(25, SEEDS, round_s=60.0 * m, law=law, draws=draws) for m in (3, minutes))
        return 100.0 * (other.makespan / short.makespan - 1.0)

    return _over_laws(change)


def _left_out() -> Range:
    def change(law: Law, draws: int) -> float:
        known, left_out = (_mean(25, SEEDS, law=law, draws=draws, leave_out=out) for out in (False, True))
        return 100.0 * (left_out.jct / known.jct - 1.0)

    return _over_laws(change)


def _baselines() -> Range:
    def ratio(law: Law, draws: int) -> float:
        seeds = range(draws * FEW, (draws + 1) * FEW)
        theirs = [np.mean([_baseline(name, seed, law) for seed in seeds]) for name in BASELINES]
        return float(min(theirs) / _mean(25, FEW, law=law, draws=draws).makespan)

    return _over_laws(ratio)


def _baseline(name: str, seed: int, law: Law) -> float:
    """Its makespan, s."""
    profile = replace(build(name, {name.removesuffix("-perf"): {"round": 180.0}}), round=180.0)
    workload = similarity.workload(seed, counts="steps", launch=law.launch, reached=law.reached)
    return _makespan(_simulated(workload, profile))


# ---- runs ----


@lru_cache(maxsize=256)
def _mean(
    jobs: int,
    seeds: int,
    own: bool = True,
    round_s: float = 180.0,
    law: Law = PAPER,
    draws: int = 0,
    **parameters: Any,
) -> Mean:
    """own: the paper's units, both of a job's length and of throughput. draws: which set of so many seeds."""
    arguments = {**parameters, "unit": "iterations" if own else "samples", "references": law}
    counts = "steps" if own else "samples"
    return _means(
        [
            _run(
                similarity.workload(seed, jobs, counts=counts, launch=law.launch, reached=law.reached),
                arguments,
                round_s,
            )
            for seed in range(draws * seeds, (draws + 1) * seeds)
        ]
    )


def _means(results: Sequence[Result]) -> Mean:
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
