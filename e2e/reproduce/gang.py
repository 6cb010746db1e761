"""Coach (papers/gang-scheduler-coach): the gang scheduler against the default one, and Coach's own choices.

Inputs that the paper leaves open are stated in `muster.sim.presets.coach`. Twenty seeds each; a seed draws the losses
(and so the lengths) of the jobs, and the order in which the default scheduler meets pods of the same second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from scipy import stats

from e2e.reproduce.entry import Entry, Expect
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.presets import coach
from muster.sim.result import Segment

SEEDS = 20
DEFAULT, GANG = "kube-default", "gang"
ALPHA = 0.05


class Runs(NamedTuple):
    """Over all seeds: runs that ended in a deadlock, epochs with too few replicas, times of jobs (s)."""

    deadlocks: int
    stragglers: float
    times: tuple[float, ...]


def entries(data: Path) -> list[Entry]:  # noqa: ARG001 - nothing of this paper is in the data
    """Sections 6 to 8."""
    return [*_deadlocks(), *_times(), *_choices()]


def _deadlocks() -> list[Entry]:
    runs = f"runs of {SEEDS}"
    sides: tuple[tuple[str, float, Expect], ...] = ((DEFAULT, 1.0, "at least"), (GANG, 0.0, "at most"))
    return [
        _entry(
            f"{what}, deadlocks, {profile.removeprefix('kube-')}",
            target,
            runs,
            expect,
            partial(_stuck, experiment, places, profile),
            why,
        )
        for what, experiment, places, why in (
            ("§8 example", "deadlock", 4, "two jobs of three pods, room for four: three orders of five lock"),
            ("three LeNets, 9 places", "static", 3, "all pods of a role may be left out where room is short"),
        )
        for profile, target, expect in sides
    ]


def _times() -> list[Entry]:
    capacity = "three nodes with room for 12 of the 15 pods: the paper does not say how short it was"
    test = "independent samples of job times, as the paper tests (p = 0.4, 15 jobs each); "
    return [
        _entry(
            "three LeNets, stragglers, gang less default", -1.0, "epochs", "sign", _fewer_stragglers, capacity
        ),
        _entry(
            "three LeNets, JCT, p of the difference",
            ALPHA,
            "",
            "at least",
            partial(_p, "lenet"),
            test + capacity,
        ),
        _entry(
            "three ResNet18, JCT, p of the difference",
            ALPHA,
            "",
            "at least",
            partial(_p, "resnet18"),
            test + capacity,
        ),
    ]


def _choices() -> list[Entry]:
    top = "the top of the surface that the job's epochs follow"
    soon = "four mini-epochs, the far corner of the plane through them, two refits"
    return [
        _entry("Coach, workers in the end", 3.0, "", "within", partial(_choice, 0), top),
        _entry("Coach, servers in the end", 2.0, "", "within", partial(_choice, 1), top),
        _entry("Coach, counts tried before", 7.0, "", "at most", lambda: float(len(_dynamic()) - 1), soon),
        _entry(
            "Coach, longest mini-epoch", 40.0, "s", "at most", partial(_mini, max), "20 to 40 s in the paper"
        ),
        _entry(
            "Coach, shortest mini-epoch",
            20.0,
            "s",
            "at least",
            partial(_mini, min),
            "the same",
        ),
    ]


def _entry(
    name: str, target: float, unit: str, expect: Expect, measure: Callable[[], float], why: str
) -> Entry:
    return Entry(name, target, unit, 0.0, why, True, measure, expect=expect)


@lru_cache(maxsize=32)
def _runs(experiment: str, model: str, places: int, profile: str) -> Runs:
    deadlocks, stragglers, times = 0, 0.0, []
    for seed in range(SEEDS):
        workload = coach.workload(seed, experiment, model, places=places)
        assert workload.cluster is not None
        result = simulate(workload, workload.cluster, build(profile), Options(seed=seed))
        stuck = result.gauges["deadlocks"] > 0
        deadlocks += stuck
        stragglers += result.gauges.get("stragglers", 0.0)
        if not stuck:
            times += list(result.ended - result.submitted)
    return Runs(deadlocks, stragglers, tuple(times))


def _stuck(experiment: str, places: int, profile: str) -> float:
    return float(_runs(experiment, "lenet", places, profile).deadlocks)


def _fewer_stragglers() -> float:
    return _runs("static", "lenet", 4, GANG).stragglers - _runs("static", "lenet", 4, DEFAULT).stragglers


def _p(model: str) -> float:
    """The paper's test: independent samples of job times, H1: the means differ."""
    default, gang = (_runs("static", model, 4, profile).times for profile in (DEFAULT, GANG))
    return float(stats.ttest_ind(default, gang).pvalue)


@lru_cache(maxsize=1)
def _dynamic() -> list[Segment]:
    """One LeNet on an empty cluster: its configurations one after another."""
    workload = coach.workload(0, "dynamic", jobs=1)
    assert workload.cluster is not None
    result = simulate(workload, workload.cluster, build("coach"), Options(record=True))
    return [s for s in result.segments if s.gpus]


def _choice(role: int) -> float:
    """Workers (each has a GPU) or servers (the rest but the scheduler) of the last configuration."""
    last = _dynamic()[-1]
    return float((last.gpus, len(last.nodes) - last.gpus - 1)[role])


def _mini(pick: Callable[[list[float]], float]) -> float:
    return pick([s.end - s.start for s in _dynamic()[: coach.MINI_EPOCHS]])
