"""SideCar (papers/adaptive-gpu-scheduler-sidecar): the case study, and workloads 1 to 4 against its two baselines.

The case study's seconds are Fig. 3's, which is the target: consistent by construction, and no more. The workloads'
inputs that the paper leaves open are stated in `muster.sim.presets.sidecar`; none was chosen by what came out. The
paper has one draw of arrivals and job types, and two scalings that contradict each other: figures here are means over
draws, under either scaling, with the range over these draws and over speeds that are free.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from e2e.reproduce.entry import Basis, Entry, Expect, Range
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.presets import sidecar
from muster.sim.result import Result
from muster.sim.workload import Workload

OURS, DEFAULT, TERMINATION = "reshape", "sidecar-default", "termination"
NUMBERS = ("1", "2", "3", "4")
DRAWS = {"1": 26, "2": 26, "3": 8, "4": 8}
"""Draws of arrivals and job types: the first two are seconds each, the others minutes."""


class Speeds(NamedTuple):
    """What is free of speeds: a K80's, of a P100's; a factor on those of the two models that no benchmark has."""

    k80: float = 0.275
    small: float = 1.0


FEW = 4
"""Draws with other speeds than the headline's."""
SMALL = (Speeds(small=0.5), Speeds(small=2.0))
OTHERS = {
    number: SMALL if number in "12" else (Speeds(k80=0.25), Speeds(k80=0.31), *SMALL) for number in NUMBERS
}
SCALINGS = {"introduction": "1.7, 2.4", "table-iv": "1.32"}
"""How the names of rows say which scaling of the paper is meant: two GPUs to one (and four)."""
OF_THE_FIGURE = "Fig. 3, which is the target: consistent by construction"
SPEEDS = (
    "speeds: public benchmarks; {}ResNet8's and LeNet's (half to double): free, 4 draws of each; costs: Fig. 3; "
    "scaling: {}, beyond it extrapolated; arrivals and types: free, {} draws"
)
K80 = "a K80's (0.25 to 0.31 of a P100's, headline 0.275), "
SLOW = (
    "; a K80 of the public benchmarks (0.275 of a P100) needs 37,000 s for an epoch of VGG16, and the default "
    "scheduler's random single GPU makes that its makespan: no cause found in the paper"
)
LONGER = (
    "Table VIII's rows contradict each other: 46 additions of 242 s are 29.3 % of 38,000 s, 16 of 37 s and as many "
    "removals of 27 s are 8.9 % of 11,500 s, about the makespan; ours are of all jobs' run time, as the text says"
)


def entries(data: Path) -> list[Entry]:  # noqa: ARG001 - nothing of this paper is in the data
    """Figs. 3, 6 and 11, Table VIII."""
    return [*_case_study(), *_workloads()]


# ---- the case study ----


def _case_study() -> list[Entry]:
    why = "one speed ratio for all three runs; (b) implies 0.85 and (c) 0.63, no single one is nearer than 4.2 %"
    found = [
        _consistent(f"case study, makespan, {name}", target, 0.05, why, partial(_makespan, profile))
        for name, target, profile in (
            ("default", 1249.0, DEFAULT),
            ("termination-based", 1143.0, "reshape-restart"),
            ("SideCar", 845.0, OURS),
        )
    ]
    for name, target, first, second in (
        ("SideCar less default", 678.5 - 851.0, OURS, DEFAULT),
        ("default less termination-based", 851.0 - 889.0, DEFAULT, "reshape-restart"),
    ):
        measure = partial(_later, first, second)
        found.append(
            _consistent(
                f"case study, JCT, {name}",
                target,
                0.0,
                "the order of the three",
                measure,
                "sign",
                "direction",
            )
        )
    return found


def _consistent(
    name: str,
    target: float,
    tolerance: float,
    why: str,
    measure: Callable[[], float],
    expect: Expect = "within",
    basis: Basis = "paper",
) -> Entry:
    return Entry(name, target, "s", tolerance, why, True, measure, expect, source=OF_THE_FIGURE, fitted=True,
                 basis=basis)  # fmt: skip


@lru_cache(maxsize=8)
def _case(profile: str) -> Result:
    requests: dict[str, dict[str, object]] = {DEFAULT: {"draw": False}}  # Table I says what each asks for
    return _simulated(sidecar.case_study(), profile, {k: v for k, v in requests.items() if k == profile})


def _makespan(profile: str) -> float:
    result = _case(profile)
    return float(result.ended.max() - result.submitted.min())


def _later(first: str, second: str) -> float:
    """The one's mean completion time less the other's."""
    one, other = ((_case(p).ended - _case(p).submitted).mean() for p in (first, second))
    return float(one - other)


# ---- the workloads ----


class Figures(NamedTuple):
    """Of one profile on one drawn workload: s, s, percent of all run time, additions, jobs that wait when the last
    one arrives (itself included)."""

    makespan: float
    jct: float
    overhead: float
    adds: float
    pending: float


@lru_cache(maxsize=2048)
def _figures(experiment: str, seed: int, scaling: str, profile: str, speeds: Speeds) -> Figures:
    workload = sidecar.workload(seed, experiment, scaling=scaling, **speeds._asdict())
    arguments: dict[str, dict[str, object]] = {DEFAULT: {"seed": seed}}
    if experiment == "4":  # the offline profile of accuracies
        arguments = {**arguments, **{p: {"accuracy": sidecar.accuracies("4")} for p in (OURS, TERMINATION)}}
    result = _simulated(workload, profile, {k: v for k, v in arguments.items() if k == profile})
    changing = sum(s.end - s.start for s in result.segments if s.note in ("grow", "shrink", "move", "change"))
    running = sum(s.end - s.start for s in result.segments if s.gpus)
    return Figures(
        float(result.ended.max() - result.submitted.min()),
        float((result.ended - result.submitted).mean()),
        100.0 * changing / running,
        result.gauges.get("grows", 0.0),
        # under a hand-over a job is started once its pod is (83 s); its GPUs are promised to it before
        float((result.started > result.submitted.max() + (sidecar.POD if profile == OURS else 0.0)).sum()),
    )


def _simulated(workload: Workload, profile: str, arguments: dict[str, dict[str, object]]) -> Result:
    assert workload.cluster is not None
    result = simulate(workload, workload.cluster, build(profile, arguments), Options(record=True))
    if result.cut or np.isnan(result.ended).any():
        raise RuntimeError(f"{profile}: {result.cut or 'a job never ended'}")
    return result


def _over_speeds(experiment: str, figure: Callable[[int, Speeds], float]) -> Range:
    """The mean over draws; the range over these, and over some with each other speed."""
    found = [figure(seed, Speeds()) for seed in range(DRAWS[experiment])]
    others = [figure(seed, speeds) for speeds in OTHERS[experiment] for seed in range(FEW)]
    return Range(float(np.mean(found)), min(found + others), max(found + others))


def _gain(experiment: str, scaling: str, against: str, what: str) -> Range:
    """Percent less than the other profile's (negative = better)."""

    def gain(seed: int, speeds: Speeds) -> float:
        ours, other = (getattr(_figures(experiment, seed, scaling, p, speeds), what) for p in (OURS, against))
        return float(100.0 * (ours / other - 1.0))

    return _over_speeds(experiment, gain)


def _drawn(experiment: str, scaling: str, profile: str, what: str) -> Range:
    def drawn(seed: int, speeds: Speeds) -> float:
        return float(getattr(_figures(experiment, seed, scaling, profile, speeds), what))

    return _over_speeds(experiment, drawn)


PAPER = {
    ("makespan", DEFAULT): (-45.0, -34.0, -42.0, -36.0),
    ("makespan", TERMINATION): (-17.0, -20.0, -17.0, -18.0),
    ("jct", DEFAULT): (-63.0, -58.0, -61.0, -55.0),
    ("jct", TERMINATION): (-27.0, -37.0, -35.0, -36.0),
}
ORDER = "the order of the two, in every draw"
SHORT = {
    ("makespan", TERMINATION, "introduction"): f"{ORDER}: in the mean of workload 4 they are level",
    ("makespan", TERMINATION, "table-iv"): f"{ORDER}: in the mean only, not in all draws of 2, 3 and 4",
    ("makespan", DEFAULT, "table-iv"): f"{ORDER}: in the mean only, not in all draws of workload 2",
}
"""Orders that do not hold, or not in every draw, and what is known of them. All are claimed alike."""
OVERHEADS = {TERMINATION: (29.3, 21.9, 27.1, 28.6), OURS: (8.9, 6.7, 7.6, 8.3)}


def _workloads() -> list[Entry]:
    found: list[Entry] = []
    for scaling, label in SCALINGS.items():
        for (what, against), targets in PAPER.items():
            name = f"{what} against {against.removeprefix('sidecar-')}, scaling {label}"
            for number, target in zip(NUMBERS, targets, strict=True):
                why = "one draw there: met where it lies in the range of ours"
                if against == DEFAULT and number in "34":
                    why += SLOW
                measure = partial(_gain, number, scaling, against, what)
                found.append(
                    _inside(f"workload {number}, {name}", target, "%", why, scaling, number, measure)
                )
            worst = partial(_worst, scaling, against, what)
            short = SHORT.get((what, against, scaling), "")
            found.append(
                Entry(
                    f"worst workload, {name}", max(targets), "%", 0.0, short or ORDER, False, worst, "sign",
                    source=_source(scaling, "4"), short=bool(short), basis="direction",
                )
            )  # fmt: skip
        for profile, shares in OVERHEADS.items():
            for number, target in zip(NUMBERS, shares, strict=True):
                measure = partial(_drawn, number, scaling, profile, "overhead")
                name = f"workload {number}, overhead, {profile}, scaling {label}"
                found.append(_inside(name, target, "%", LONGER, scaling, number, measure))
        for what, words, unit, targets_of in (
            (
                "pending",
                "waiting when the last arrives",
                "jobs",
                {DEFAULT: 12.0, TERMINATION: 3.0, OURS: 0.0},
            ),
            ("adds", "additions", "", {TERMINATION: 46.0, OURS: 16.0}),
        ):
            for profile, target in targets_of.items():
                measure = partial(_drawn, "1", scaling, profile, what)
                name = f"workload 1, {words}, {profile}, scaling {label}"
                found.append(_inside(name, target, unit, "one draw there", scaling, "1", measure))
    return found


def _worst(scaling: str, against: str, what: str) -> Range:
    """The least gain of the four workloads, in percent, in the mean, at the best and at the worst."""
    found = [_gain(number, scaling, against, what) for number in NUMBERS]
    return Range(*(max(getattr(gain, end) for gain in found) for end in ("value", "low", "high")))


def _source(scaling: str, number: str) -> str:
    words = {"introduction": "the paper's introduction", "table-iv": "the paper's Table IV"}[scaling]
    return SPEEDS.format("" if number in "12" else K80, words, DRAWS[number])


def _inside(
    name: str, target: float, unit: str, why: str, scaling: str, number: str, measure: Callable[[], Range]
) -> Entry:
    source = _source(scaling, number)
    return Entry(name, target, unit, 0.0, why, False, measure, "inside", claimed=False, source=source,
                 basis="paper")  # fmt: skip
