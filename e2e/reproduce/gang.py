"""Coach (papers/gang-scheduler-coach): the gang scheduler against the default one, and Coach's own choices.

Inputs that the paper leaves open are stated in `muster.sim.presets.coach`; seconds of an epoch are those of the
authors' public outputs, in which a second worker makes an epoch longer. Twenty seeds each; a seed draws the losses
(and so the lengths) of the jobs, and the order in which the default scheduler meets pods of the same second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from scipy import stats

from e2e.reproduce.entry import Entry, Expect, Range
from muster.core.progress.fits import fit_surface
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.presets import coach
from muster.sim.result import Segment

SEEDS = 20
DEFAULT, GANG = "kube-default", "gang"


class Runs(NamedTuple):
    """Over all seeds: runs that ended in a deadlock, epochs with too few replicas, times of jobs (s)."""

    deadlocks: int
    stragglers: float
    times: tuple[float, ...]


def entries(data: Path) -> list[Entry]:
    """Sections 6 to 8, and the decisions of the authors' runs."""
    return [*_deadlocks(), *_times(), *_choices(data)]


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
    test = (
        "not rejected at 0.05, as in the paper (p = 0.4): samples of 15 job times each, one set there, the "
        "least of four here; in the authors' outputs one worker is faster than two, and so are stragglers"
    )
    return [
        _entry(
            "three LeNets, stragglers, gang less default", -1.0, "epochs", "sign", _fewer_stragglers, capacity
        ),
        _entry("three LeNets, JCT, p of the difference", 0.05, "", "at least", _p, test, claimed=False),
    ]


def _choices(data: Path) -> list[Entry]:
    single = "the authors' runs of single jobs; here without the noise of theirs"
    near = single + ": one server and two are 2 % apart (32.1 and 31.4 s)"
    given = (
        "given the epochs before, our fit and the authors' choose alike; none is fitted to what they chose"
    )
    found = [
        Entry(f"authors' runs, {model}, epochs with the same {what}", 100.0, "% of the decisions", 0.01, given,
              True, partial(_alike, data, model, which), "at least", not which, source="the authors' data")
        for model in ("LeNet", "Cifar10")
        for which, what in ((0, "workers"), (1, "workers and servers"))
    ]  # fmt: skip
    return [
        *found,
        _entry("Coach, LeNet, workers in the end", 1.0, "", "within", partial(_choice, 0), single),
        _entry(
            "Coach, LeNet, servers in the end", 1.0, "", "within", partial(_choice, 1), near, claimed=False
        ),
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
    name: str,
    target: float,
    unit: str,
    expect: Expect,
    measure: Callable[[], float | Range],
    why: str,
    *,
    claimed: bool = True,
) -> Entry:
    source = (
        "seconds of an epoch: the authors' data; losses, noise, places, how far jobs start apart: assumed"
    )
    return Entry(name, target, unit, 0.0, why, True, measure, expect, claimed, source)


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


def _p() -> Range:
    """The paper's test: independent samples of job times, H1: the means differ; for every five runs of three jobs."""
    default, gang = (_runs("static", "lenet", 4, profile).times for profile in (DEFAULT, GANG))
    sets = range(0, min(len(default), len(gang)) - 14, 15)
    found = [float(stats.ttest_ind(default[i : i + 15], gang[i : i + 15]).pvalue) for i in sets]
    return Range(min(found), min(found), max(found))


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


# ---- the authors' runs ----

EPOCHS = re.compile(
    r'"epochs": \[(.*?)\].*?"servers": \[(.*?)\].*?"workers": \[(.*?)\].*?"time": \[(.*?)\]', re.DOTALL
)


class Epoch(NamedTuple):
    """chosen: by Coach (the epochs before are mini-epochs)."""

    workers: int
    servers: int
    seconds: float
    chosen: bool


@lru_cache
def _runs_of_authors(data: Path, model: str) -> tuple[tuple[Epoch, ...], ...]:
    """The jobs of all runs in which Coach chose. An epoch with two workers has a line for each: the first counts."""
    found = []
    for path in sorted((data / "coach" / model).glob("*.txt")):
        if "static" in path.name:
            continue
        for block in EPOCHS.findall(path.read_text()):
            columns = [[float(x) for x in part.replace("|", ",").split(",") if x.strip()] for part in block]
            if len({len(column) for column in columns}) == 1:  # else the run was cut off while it wrote
                found.append(
                    _epochs(list(zip(*columns, strict=True)), block[0].partition("|")[0].count(",") + 1)
                )
    return tuple(found)


def _epochs(rows: list[tuple[float, ...]], minis: int) -> tuple[Epoch, ...]:
    found = []
    for i, (number, servers, workers, seconds) in enumerate(rows):
        again = i and workers > 1 and rows[i - 1][0] == number and rows[i - 1][2] == workers
        if not again:
            found.append(Epoch(int(workers), int(servers), seconds, i >= minis))
    return tuple(found)


def _alike(data: Path, model: str, which: int) -> float:
    """Percent of the authors' choices that are ours, on a surface through the same epochs."""
    alike = decided = 0
    for job in _runs_of_authors(data, model):
        for i, epoch in enumerate(job):
            if not epoch.chosen:
                continue
            before = job[:i]
            surface = fit_surface(
                [e.workers for e in before], [e.servers for e in before], [1.0 / e.seconds for e in before]
            )
            assert surface is not None
            counts = product(range(1, coach.MOST + 1), repeat=2)
            ours = max(counts, key=lambda c: (surface.speed(*c), -sum(c), -c[0]))
            decided += 1
            alike += ours[0] == epoch.workers and (not which or ours[1] == epoch.servers)
    return 100.0 * alike / decided
