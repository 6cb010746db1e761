"""Share `sweep`: which smaller sizes a job is measured at, for how long, and whose GPUs idle meanwhile (AFS 4.5).

On jobs in place, with agents: tests/core/devices/test_in_place_sweep.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import ConfigurationError
from muster.live_recipes import MEASURED, not_on_a_cluster, on_a_cluster
from muster.points import load
from muster.profiles import NAMED, Recipe, build
from muster.sim.options import Options
from muster.sim.placed import Engine
from muster.sim.submission import Curve, Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config, Facts, Grant, Grants, Job, Report
from muster_plugins.network_packing import legal
from tests.scenario import NOW, job, snapshot
from tests.tables import table

SWEEP = load("sweep", {"restart": True})


def train(share: int = 4, *known: int, grant: Grant | None = None, memory: Any = None, **words: Any) -> Job:
    """A job on so many GPUs of n0 that reports; known: sizes of which a speed is measured."""
    words.setdefault("report", Report(NOW, 1.0))
    samples = {Config((("worker", n),), (n,)): float(n) for n in known}
    words = {"samples": samples, "facts": Facts(run_start=NOW - 500.0), "grant": grant, **words}
    return job("x", worker=8, least=1, on=["n0"] * share, memory={"sweep": memory or {}}, **words)


def trial(one: Job, share: int, have: int = 0, sweep: Any = SWEEP, now: float = NOW) -> tuple[int, int]:
    """Replicas that it trains on for the moment, and that are kept for it meanwhile; (0, 0): all of its share."""
    of = table(8, most=[8], have=[have or share], per_node=8)
    of.keys, of.row = [one.key], {one.key: 0}
    seen = replace(snapshot(nodes=1, gpus=8, jobs=[one]), now=now).with_table(of)
    found = sweep.adjust(Grants(np.array([share])), seen)
    assert found.replicas.tolist() == [share]
    grant = found.details.get(0, Grant())
    assert ("is measured at" in found.why.get(0, "")) is bool(grant.measure)
    return grant.measure, grant.kept


def remembered(one: Job, now: float = NOW) -> dict[str, Any]:
    """What it knows of the job after another look."""
    found = SWEEP.observe(one, replace(snapshot(nodes=1, gpus=8, jobs=[one]), now=now))
    return dict(one.memory["sweep"] if found is None else found)  # type: ignore[call-overload]


@given(share=st.integers(2, 8), known=st.sets(st.integers(1, 8)), out=st.sets(st.integers(1, 8)))
def test_it_is_the_largest_allocatable_size_below_the_share_that_is_neither_known_nor_left_out(
    share: int, known: set[int], out: set[int]
) -> None:
    one = train(share, *known, share, memory={"leftOut": sorted(out), "run": NOW - 500.0})
    open_sizes = [n for n in range(1, share) if legal(n, 8) and n not in known | out]
    size = max(open_sizes, default=0)
    assert trial(one, share) == (size, share - size if size else 0)


@pytest.mark.parametrize(
    "words",
    [
        {"report": None},
        {"silent": NOW - 100.0},
        {"resize_at": "boundary"},
        {"shrink_blocked_by": "a budget"},
        {"samples": {}},
        {"memory": {"again": NOW + 1.0}},
    ],
    ids=str,
)
def test_not_where_nothing_could_be_measured_or_nothing_may_change(words: dict[str, Any]) -> None:
    assert trial(train(4, 4, **words), 4) == (0, 0)


def test_a_job_whose_share_is_to_grow_or_to_fall_has_it_first() -> None:
    going_on = train(4, 4, grant=Grant(measure=2, kept=2), memory={"at": 2, "since": NOW - 5.0})
    assert trial(going_on, 4) == (2, 2)
    assert trial(going_on, 8, have=4) == (0, 0)
    assert trial(going_on, 3, have=4) == (0, 0)


def test_a_size_at_which_nothing_is_measured_in_time_is_left_out_and_what_was_broken_off_is_tried_later() -> (
    None
):
    began = {"at": 2, "since": NOW - 120.0, "run": NOW - 500.0}
    going_on = train(4, 4, grant=Grant(measure=2, kept=2), memory=began)
    assert trial(going_on, 4) == (1, 3)
    after = train(4, 4, grant=Grant(measure=1, kept=3), memory=began)
    assert remembered(after) == {"at": 1, "since": NOW, "run": NOW - 500.0, "leftOut": [2]}
    early = train(4, 4, memory={**began, "since": NOW - 30.0})
    assert remembered(early) == {"again": NOW + 120.0, "run": NOW - 500.0, "leftOut": []}
    anew = train(4, 4, memory={"leftOut": [2], "run": NOW - 9000.0})
    assert remembered(anew) == {"run": NOW - 500.0, "leftOut": []}


def test_only_jobs_in_place_whose_changes_are_cheap_unless_it_is_told_otherwise() -> None:
    assert trial(train(4, 4), 4, sweep=load("sweep")) == (0, 0)
    live = on_a_cluster(NAMED["coddl"], resize_cost=True, estimate="reported")
    assert live.shares == ("afs-p", "network-packing", "resize-cost", "sweep")
    assert live.arguments["sweep"]["restart"] is False
    own = Recipe(shares=("afs-p", "sweep"))
    (fault,) = not_on_a_cluster("own", own, {"sweep": {"restart": True}}, devices=True)
    assert fault.startswith("pluginArgs.sweep.restart: is for simulations only")
    assert not not_on_a_cluster("coddl", NAMED["coddl"], {}, devices=True)


def test_where_no_devices_are_given_in_place_nothing_would_be_measured_and_it_is_refused() -> None:
    for name, known, instead in (
        ("coddl", NAMED["coddl"], "take afs-p-packed"),
        ("own", Recipe(shares=("afs-p", "sweep")), "leave sweep out"),
    ):
        (fault,) = not_on_a_cluster(name, known, {"sweep": {"limit": 30.0}})
        assert fault == f"profile: {name!r}: {MEASURED} {instead}"


def test_wrong_parameters_are_refused() -> None:
    for wrong in ({"sizes": "some"}, {"limit": 0}, {"settle": -1}):
        with pytest.raises(ConfigurationError, match=r"pluginArgs.sweep"):
            load("sweep", wrong)


def test_in_a_simulation_every_size_is_known_as_it_is_and_the_ways_cost_nothing_in_place() -> None:
    curve = Curve("m", (1.0, 1.4, 1.5, 1.6))
    jobs = [Submission("a", 0.0, "m", 1000.0, 4, min=1, max=4)]
    workload = Workload(jobs, {"m": curve})

    def run(profile: str) -> tuple[dict[int, float], float, int]:
        engine = Engine(workload, Cluster((Group(1, 4),)), build(profile), Options())
        result = engine.run()
        (training,) = engine.trainings
        found = {config.replicas: round(speed, 3) for config, speed in training.samples.items()}
        return found, float(result.ended[0]), training.resizes

    known, ended, resizes = run("coddl")
    before, earlier, _ = run("afs-p-packed")
    assert before == {4: 1.6}
    assert known == {1: 1.0, 2: 1.4, 4: 1.6}
    assert resizes == 0, "to be measured is no resize"
    lost = 10.0 * (1.6 - 1.4) + 10.0 * (1.6 - 1.0)  # iterations
    assert ended - earlier == pytest.approx(lost / 1.6)
