"""Coach (papers/gang-scheduler-coach): the gang scheduler against the default one, and Coach's own choices.

Inputs that the paper leaves open are stated in `muster.sim.presets.coach`; seconds of an epoch are those of the
authors' public outputs, in which a second worker makes an epoch longer. Twenty seeds each; a seed draws the losses
(and so the lengths) of the jobs, and the order in which the default scheduler meets pods of the same second. What is
free besides (places on a node, seconds between jobs, noise of losses) is a range around what the preset assumes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from scipy import stats

from e2e.reproduce.entry import ONE, Entry, Expect, Range
from muster.core.progress.fits import fit_surface
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.presets import coach
from muster.sim.result import Segment

SEEDS, DRAWS = 20, 5
DEFAULT, GANG = "kube-default", "gang"


class Case(NamedTuple):
    """What is free of three LeNets on three nodes: pods that fit on a node, s between jobs, noise of losses."""

    places: int = 4
    apart: float = 0.0
    noise: float = coach.NOISE


CASES = (Case(), Case(places=3), Case(places=5), Case(apart=30.0), Case(noise=0.05))
"""What the preset assumes, and one thing after the other around it."""
EXAMPLE = f"pods, room, at once: the paper; order of pods: drawn, {ONE}it counts 20 of its draws"
OPEN = (
    "seconds of an epoch: the authors' data; places (3 to 5 a node), s between jobs (0 to 30), noise of losses "
    "(0.02, 0.05): free"
)
ALONE = f"seconds of an epoch: the authors' data; losses: free, {DRAWS} draws"
LOCKS = "two jobs of three pods, room for four: three orders of five lock"
SHORT = "three nodes with room for 12 (9 to 15) of the 15 pods: the paper does not say how short it was"


class Runs(NamedTuple):
    """Over all seeds: runs that ended in a deadlock, epochs with too few replicas, times of jobs (s)."""

    deadlocks: int
    stragglers: float
    times: tuple[float, ...]


def entries(data: Path) -> list[Entry]:
    """Sections 6 to 8, and the decisions of the authors' runs."""
    return [*_deadlocks(), *_times(), *_choices(data)]


def _deadlocks() -> list[Entry]:
    """The section's example has its own room and jobs; of three LeNets it isn't said how short of room they were."""
    sides: tuple[tuple[str, float, Expect], ...] = ((DEFAULT, 1.0, "at least"), (GANG, 0.0, "at most"))
    found = []
    for profile, target, expect in sides:
        name = f"deadlocks, {profile.removeprefix('kube-')}"
        found += [
            Entry(f"§8 example, {name}", target, f"runs of {SEEDS}", 0.0, LOCKS, True, partial(_example, profile),
                  expect, source=EXAMPLE),
            _entry(f"three LeNets, {name}", target, f"runs of {SEEDS}", expect, partial(_stuck, profile), SHORT,
                   claimed=profile == GANG),
        ]  # fmt: skip
    return found


def _times() -> list[Entry]:
    test = (
        "the paper's p is 0.4, not rejected at 0.05; samples of 15 job times each, one set there, the least of four "
        "here; not claimed, since that the least must pass was set when the result was known"
    )
    return [
        _entry(
            "three LeNets, stragglers, gang less default", -1.0, "epochs", "sign", _fewer_stragglers, SHORT
        ),
        _entry("three LeNets, JCT, p of the difference", 0.05, "", "at least", _p, test, claimed=False),
    ]


def _choices(data: Path) -> list[Entry]:
    single = "the authors' runs of single jobs; here without the noise of theirs"
    near = single + ": one server and two are 2 % apart (32.1 and 31.4 s)"
    given = (
        "given the epochs before without the first, short one; with it, tried when this was known: the most"
    )
    source = "the authors' data; whether the first epoch counts: free"
    found = [
        Entry(f"authors' runs, {model}, epochs with the same {what}", 100.0, "% of the decisions", 0.01, given,
              True, partial(_alike, data, model, which), "at least", claimed=False, source=source)
        for model in ("LeNet", "Cifar10")
        for which, what in ((0, "workers"), (1, "workers and servers"))
    ]  # fmt: skip
    rows: tuple[tuple[str, float, str, Expect, Callable[[], Range], str, bool], ...] = (
        ("LeNet, workers in the end", 1.0, "", "within", partial(_choice, 0), single, True),
        ("LeNet, servers in the end", 1.0, "", "within", partial(_choice, 1), near, False),
        ("longest mini-epoch", 40.0, "s", "at most", partial(_mini, max), "20 to 40 s in the paper", True),
        ("shortest mini-epoch", 20.0, "s", "at least", partial(_mini, min), "the same", True),
    )
    found += [
        Entry(f"Coach, {name}", target, unit, 0.0, why, True, measure, expect, claimed, ALONE)
        for name, target, unit, expect, measure, why, claimed in rows
    ]
    return found


def _entry(
    name: str,
    target: float,
    unit: str,
    expect: Expect,
    measure: Callable[[], Range],
    why: str,
    *,
    claimed: bool = True,
) -> Entry:
    return Entry(name, target, unit, 0.0, why, True, measure, expect, claimed, OPEN)


# ---- the gang scheduler against the default one ----


@lru_cache(maxsize=32)
def _runs(experiment: str, profile: str, case: Case) -> Runs:
    deadlocks, stragglers, times = 0, 0.0, []
    for seed in range(SEEDS):
        workload = coach.workload(seed, experiment, **case._asdict())
        assert workload.cluster is not None
        result = simulate(workload, workload.cluster, build(profile), Options(seed=seed))
        stuck = result.gauges["deadlocks"] > 0
        deadlocks += stuck
        stragglers += result.gauges.get("stragglers", 0.0)
        if not stuck:
            times += list(result.ended - result.submitted)
    return Runs(deadlocks, stragglers, tuple(times))


def _example(profile: str) -> float:
    return float(_runs("deadlock", profile, Case()).deadlocks)


def _over_cases(figure: Callable[[Case], float]) -> Range:
    """The preset's own, and the least and the most of all cases."""
    found = [figure(case) for case in CASES]
    return Range.first(found)


def _stuck(profile: str) -> Range:
    return _over_cases(lambda case: float(_runs("static", profile, case).deadlocks))


def _fewer_stragglers() -> Range:
    return _over_cases(
        lambda case: _runs("static", GANG, case).stragglers - _runs("static", DEFAULT, case).stragglers
    )


def _p() -> Range:
    """The paper's test: independent samples of job times, H1: the means differ; for every five runs of three jobs."""
    found = []
    for case in CASES:
        default, gang = (_runs("static", profile, case).times for profile in (DEFAULT, GANG))
        sets = range(0, min(len(default), len(gang)) - 14, 15)
        found.append([float(stats.ttest_ind(default[i : i + 15], gang[i : i + 15]).pvalue) for i in sets])
    every = [p for sets_of_case in found for p in sets_of_case]
    return Range(min(found[0]), min(every), max(every))


# ---- Coach's own choices ----


@lru_cache(maxsize=1)
def _dynamic() -> tuple[list[Segment], ...]:
    """One LeNet on an empty cluster: its configurations one after another, for each draw of losses."""
    found = []
    for seed in range(DRAWS):
        workload = coach.workload(seed, "dynamic", jobs=1)
        assert workload.cluster is not None
        result = simulate(workload, workload.cluster, build("coach"), Options(record=True))
        found.append([s for s in result.segments if s.gpus])
    return tuple(found)


def _choice(role: int) -> Range:
    """Workers (each has a GPU) or servers (the rest but the scheduler) of the last configuration."""
    last = [segments[-1] for segments in _dynamic()]
    return Range.first([float((s.gpus, len(s.nodes) - s.gpus - 1)[role]) for s in last])


def _mini(pick: Callable[[list[float]], float]) -> Range:
    return Range.first([pick([s.end - s.start for s in run[: coach.MINI_EPOCHS]]) for run in _dynamic()])


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


def _alike(data: Path, model: str, which: int) -> Range:
    """Percent of the authors' choices that are ours, on a surface through the same epochs: without a job's first,
    short one, and with it."""
    return Range.first([_alike_from(data, model, which, first) for first in (1, 0)])


def _alike_from(data: Path, model: str, which: int, first: int) -> float:
    alike = decided = 0
    for job in _runs_of_authors(data, model):
        for i, epoch in enumerate(job):
            if not epoch.chosen:
                continue
            before = job[first:i]
            surface = fit_surface(
                [e.workers for e in before], [e.servers for e in before], [1.0 / e.seconds for e in before]
            )
            assert surface is not None
            counts = product(range(1, coach.MOST + 1), repeat=2)
            ours = max(counts, key=lambda c: (surface.speed(*c), -sum(c), -c[0]))
            decided += 1
            alike += ours[0] == epoch.workers and (not which or ours[1] == epoch.servers)
    return 100.0 * alike / decided
