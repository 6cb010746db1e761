"""Gavel (Narayanan et al., OSDI'20): its policies on two of its traces; 8 V100, 16 P100, 24 K80, one GPU a node.

The targets are its own simulator's (seed 0, all jobs counted). Of a linear programme with many optima that simulator
takes the one that ECOS ends at; which one it is moves averages by some per cent, so they are compared within 5 %.
FIFO and the rounds themselves leave no such choice: they are compared within 0.5 %.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path

from e2e.reproduce.entry import Entry
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.result import Result
from muster.sim.traces import Asked, read
from muster.sim.workload import Cluster, Group

CLUSTER = Cluster((Group(8, 1, "v100"), Group(16, 1, "p100"), Group(24, 1, "k80")))
HOUR = 3600.0
OPTIMA = "optima of the linear programme are not unique: ours is the centre of them, ECOS's is near it"
SOURCE = "jobs, throughputs, GPUs, rounds: the artifact"
FIFO = (
    "as the artifact runs it (see the plugin), with its random numbers; its rounds are a little under 360 s"
)


def entries(data: Path) -> list[Entry]:
    """Average completion and makespan, in hours."""
    fair, span = "max_min_fairness", "minimize_makespan"
    rows = (
        ("fifo", fair, "average JCT", 9.97, 0.005, FIFO),
        ("max-min", fair, "average JCT", 5.55, 0.05, OPTIMA),
        ("max-min-perf", fair, "average JCT", 4.06, 0.05, OPTIMA),
        ("min-total-duration-perf", span, "makespan", 17.98, 0.05, OPTIMA),
    )
    shown = (
        ("ftf-perf", fair),
        ("isolation", fair),
        ("max-min-perf", span),
        ("ftf-perf", span),
        ("max-min-packed", fair),
    )
    measures = {"average JCT": _average, "makespan": _makespan}
    found = [
        Entry(
            f"{trace}, {policy}, {what}",
            target,
            "h",
            tolerance,
            why,
            True,
            partial(measures[what], data, policy, trace),
            source=SOURCE,
            basis="authors",
        )
        for policy, trace, what, target, tolerance, why in rows
    ]
    none = "no figure of the authors' for it"
    return found + [
        Entry(
            f"{trace}, {policy}, average JCT",
            None,
            "h",
            0.0,
            none,
            False,
            partial(_average, data, policy, trace),
            source=SOURCE,
        )
        for policy, trace in shown
    ]


@lru_cache(maxsize=8)
def result(data: Path, policy: str, trace: str) -> Result:
    """One trace under one policy."""
    folder = data / "gavel"
    asked = Asked(folder / f"traces/{trace}.trace", folder / "simulation_throughputs.json.gz")
    workload, _ = read(asked)
    return simulate(workload, CLUSTER, build(f"gavel-{policy}"), Options())


def _average(data: Path, policy: str, trace: str) -> float:
    done = result(data, policy, trace)
    return float((done.ended - done.submitted).mean()) / HOUR


def _makespan(data: Path, policy: str, trace: str) -> float:
    done = result(data, policy, trace)
    return float(done.ended.max() - done.submitted.min()) / HOUR
