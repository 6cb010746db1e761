"""SideCar (papers/adaptive-gpu-scheduler-sidecar): the case study, and workloads 1 to 4 against its two baselines.

The workloads' inputs that the paper leaves open are stated in `muster.sim.presets.sidecar`; none was chosen by what
came out. They are drawn, so figures here are means over five seeds; the paper has one drawn workload each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from e2e.reproduce.entry import Entry
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.presets import sidecar
from muster.sim.result import Result
from muster.sim.workload import Workload

SEEDS = 5
OURS, DEFAULT, TERMINATION = "reshape", "sidecar-default", "termination"
SETS = {"{1,2,4}": (1, 2, 4), "{1,2,4,8}": (1, 2, 4, 8)}
ONE_RATIO = (
    "one speed ratio for all three runs; (b) implies 0.85 and (c) 0.63, no single one is nearer than 4.2 %"
)
OPEN = "speeds, lengths and allowed counts are not in the paper; one drawn workload there, five here"
EIGHT = "; its text has jobs of eight GPUs (VI-A; VI-C: two jobs hold all 16), so {1,2,4,8} is shown too"


def entries(data: Path) -> list[Entry]:  # noqa: ARG001 - nothing of this paper is in the data
    """Figs. 3, 6 and 11, Table VIII."""
    return [*_case_study(), *_workloads()]


# ---- the case study ----


def _case_study() -> list[Entry]:
    found = [
        Entry(
            f"case study, makespan, {name}", target, "s", 0.05, ONE_RATIO, True, partial(_makespan, profile)
        )
        for name, target, profile in (
            ("default", 1249.0, DEFAULT),
            ("termination-based", 1143.0, "reshape-restart"),
            ("SideCar", 845.0, OURS),
        )
    ]
    why = "the order of the three is what is claimed"
    found.append(
        Entry(
            "case study, JCT, SideCar less default",
            678.5 - 851.0,
            "s",
            0.0,
            why,
            True,
            lambda: _jct(OURS) - _jct(DEFAULT),
            expect="sign",
        )
    )
    found.append(
        Entry(
            "case study, JCT, default less termination-based",
            851.0 - 889.0,
            "s",
            0.0,
            why,
            True,
            lambda: _jct(DEFAULT) - _jct("reshape-restart"),
            expect="sign",
        )
    )
    return found


@lru_cache(maxsize=8)
def _case(profile: str) -> Result:
    requests: dict[str, dict[str, object]] = {DEFAULT: {"draw": False}}  # Table I says what each asks for
    return _simulated(sidecar.case_study(), profile, {k: v for k, v in requests.items() if k == profile})


def _makespan(profile: str) -> float:
    result = _case(profile)
    return float(result.ended.max() - result.submitted.min())


def _jct(profile: str) -> float:
    result = _case(profile)
    return float((result.ended - result.submitted).mean())


# ---- the workloads ----


class Figures(NamedTuple):
    """Of one profile on one drawn workload: s, s, a share of all run time, additions, jobs that wait when the last
    one arrives (itself included)."""

    makespan: float
    jct: float
    overhead: float
    adds: float
    pending: float


@lru_cache(maxsize=512)
def _figures(experiment: str, seed: int, sizes: tuple[int, ...], profile: str) -> Figures:
    workload = sidecar.workload(seed, experiment, sizes)
    arguments: dict[str, dict[str, object]] = {DEFAULT: {"seed": seed}}
    if experiment == "4":  # the offline profile of accuracies
        arguments = {**arguments, **{p: {"accuracy": sidecar.accuracies("4")} for p in (OURS, TERMINATION)}}
    result = _simulated(workload, profile, {k: v for k, v in arguments.items() if k == profile})
    changing = sum(s.end - s.start for s in result.segments if s.note in ("grow", "shrink", "move", "change"))
    running = sum(s.end - s.start for s in result.segments if s.gpus)
    return Figures(
        float(result.ended.max() - result.submitted.min()),
        float((result.ended - result.submitted).mean()),
        changing / running,
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


def _gain(experiment: str, sizes: tuple[int, ...], against: str, what: str) -> float:
    """Percent less than the other profile's, mean over seeds (negative = better)."""
    return float(
        np.mean(
            [
                100.0
                * (
                    getattr(_figures(experiment, seed, sizes, OURS), what)
                    / getattr(_figures(experiment, seed, sizes, against), what)
                    - 1.0
                )
                for seed in range(SEEDS)
            ]
        )
    )


def _mean(experiments: Sequence[str], sizes: tuple[int, ...], profile: str, what: str) -> float:
    return float(
        np.mean([getattr(_figures(e, s, sizes, profile), what) for e in experiments for s in range(SEEDS)])
    )


PAPER = {
    ("makespan", DEFAULT): (-45.0, -34.0, -42.0, -36.0),
    ("makespan", TERMINATION): (-17.0, -20.0, -17.0, -18.0),
    ("jct", DEFAULT): (-63.0, -58.0, -61.0, -55.0),
    ("jct", TERMINATION): (-27.0, -37.0, -35.0, -36.0),
}
WITHIN = 0.35
"""Relative: what draws of the same workload differ by among themselves."""
MET = {
    "{1,2,4}": {
        ("makespan", DEFAULT, 4),
        ("makespan", TERMINATION, 4),
        ("jct", DEFAULT, 2),
        ("jct", TERMINATION, 1),
        ("jct", TERMINATION, 2),
    },
    "{1,2,4,8}": {
        ("makespan", DEFAULT, 1),
        ("makespan", TERMINATION, 3),
        *(("jct", DEFAULT, number) for number in (1, 2, 3, 4)),
        *(("jct", TERMINATION, number) for number in (1, 2)),
    },
}
"""What holds with room to spare, whatever the draw."""


def _workloads() -> list[Entry]:
    found: list[Entry] = []
    for label, sizes in SETS.items():
        why = OPEN + (EIGHT if label == "{1,2,4}" else "")
        for (what, against), targets in PAPER.items():
            name = f"{what} against {against.removeprefix('sidecar-')}, counts {label}"
            for number, target in enumerate(targets, start=1):
                measure = partial(_gain, str(number), sizes, against, what)
                claimed = (what, against, number) in MET[label]
                found.append(_entry(f"workload {number}, {name}", target, "%", why, measure, claimed=claimed))
            worst = partial(_worst, sizes, against, what)
            order = "the order of the two on every workload"
            claimed = label == "{1,2,4}" or (what, against) != ("makespan", TERMINATION)
            found.append(
                Entry(f"worst workload, {name}", max(targets), "%", 0.0, order, False, worst, "sign", claimed)
            )
        for profile, target, who in ((OURS, 7.9, "SideCar"), (TERMINATION, 26.7, "termination")):
            measure = partial(_overhead, sizes, profile)
            longer = "46 additions of 242 s are 29 % of 950 s a job in the paper; ours take 2400 s; " + OPEN
            found.append(
                _entry(f"overhead, {who}, counts {label}", target, "%", longer, measure, claimed=False)
            )
        for profile, jobs, who in (
            (DEFAULT, 12.0, "default"),
            (TERMINATION, 3.0, "termination"),
            (OURS, 0.0, "SideCar"),
        ):
            measure = partial(_mean, ("1",), sizes, profile, "pending")
            name = f"workload 1, waiting when the last arrives, {who}, counts {label}"
            found.append(_entry(name, jobs, "jobs", why, measure, claimed=profile == OURS))
        for profile, adds, who in ((OURS, 16.0, "SideCar"), (TERMINATION, 46.0, "termination")):
            measure = partial(_mean, ("1",), sizes, profile, "adds")
            name = f"workload 1, additions, {who}, counts {label}"
            found.append(_entry(name, adds, "", why, measure, claimed=profile == TERMINATION))
    return found


def _worst(sizes: tuple[int, ...], against: str, what: str) -> float:
    """The least gain of the four workloads, in percent."""
    return max(_gain(number, sizes, against, what) for number in ("1", "2", "3", "4"))


def _overhead(sizes: tuple[int, ...], profile: str) -> float:
    return 100.0 * _mean(("1", "2", "3", "4"), sizes, profile, "overhead")


def _entry(
    name: str, target: float, unit: str, why: str, measure: Callable[[], float], *, claimed: bool
) -> Entry:
    return Entry(name, target, unit, WITHIN, why, False, measure, claimed=claimed)
