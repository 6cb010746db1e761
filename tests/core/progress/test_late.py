"""Jobs that go on when what their owner declared has run out, and tell nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.progress.estimate import LATE, declared, late_by, later_at, left_of
from muster.core.progress.eta import outlook
from muster.points import Profile
from muster.types import Facts, Meter, Phase, Report
from muster_plugins.optimus import Optimus
from muster_plugins.pack import Pack
from tests.cluster_fake import FakeCluster, Muster
from tests.core.test_elastic_live import goes
from tests.scenario import NOW, job


def test_what_is_left_of_a_declared_length_and_by_how_much_it_is_exceeded() -> None:
    runs = job("a", worker=1, on=["n0"], remaining_work=1000.0)
    assert math.isnan(left_of(replace(runs, remaining_work=None), NOW))
    half = replace(runs, facts=Facts(progress=Meter(500.0, 1.0, NOW)))
    assert (left_of(half, NOW), left_of(half, NOW + 400.0)) == (500.0, 100.0)
    assert left_of(half, NOW + 500.0) == 0.0
    assert [late_by(half, NOW + s) for s in (0.0, 500.0, 700.0)] == [0.0, 0.0, 200.0]
    assert left_of(half, NOW + 700.0) == 0.0, "policies by remaining time have it first, and don't take turns"


def test_it_is_looked_at_again_each_time_that_it_is_twice_as_late() -> None:
    runs = job("a", worker=1, on=["n0"], remaining_work=1000.0, facts=Facts(progress=Meter(0.0, 2.0, NOW)))
    at, found = NOW, []
    for _ in range(4):
        at = later_at(runs, at)
        found.append(at - NOW)
    assert found == pytest.approx([(1000.0 + 1000.0 * LATE * 2.0**k) / 2.0 for k in range(4)])
    assert later_at(replace(runs, facts=Facts()), NOW) == math.inf, "it does not run"
    assert later_at(replace(runs, report=Report(at=NOW, step=1.0, total=10.0)), NOW) == math.inf, "it tells"
    assert later_at(replace(runs, report=Report(at=NOW, step=1.0)), NOW) < math.inf, (
        "of its end it tells nothing"
    )
    assert later_at(replace(runs, remaining_work=None), NOW) == math.inf


@given(work=st.floats(0.1, 1e7), rate=st.floats(0.01, 1e3), start=st.floats(0.0, 2e9))
def test_who_is_woken_then_is_woken_again_later(work: float, rate: float, start: float) -> None:
    runs = job("a", worker=1, on=["n0"], remaining_work=work, facts=Facts(progress=Meter(0.0, rate, start)))
    at = start + work / rate
    for _ in range(6):
        following = later_at(runs, at)
        assert following > at
        at = following


def test_how_far_a_late_job_is_nobody_says() -> None:
    runs = job("a", worker=1, on=["n0"], remaining_work=1000.0)

    def progress(done: float) -> float | None:
        trains = replace(runs, facts=Facts(progress=Meter(done, 1.0, NOW)))
        return outlook(trains, declared(trains, NOW), NOW).progress

    assert [progress(done) for done in (500.0, 990.0, 1000.0, 1500.0)] == [0.5, 0.99, None, None]


def bound(cluster: FakeCluster, name: str) -> int:
    return sum(p.phase is Phase.BOUND and p.name.startswith(f"{name}-") for p in cluster.pods.values())


def wait(muster: Muster, seconds: float) -> None:
    """Nothing happens but what the plan asked to be woken for."""
    cluster = muster.cluster
    end = cluster.now + seconds
    while cluster.now < end:
        cluster.now += 1.0
        if muster.ledger.due(cluster.now):
            muster.turn(seconds=0.0)
            cluster.bind()


def test_a_late_job_takes_the_gpus_that_nobody_uses() -> None:
    """Seen live: with nothing left it gained nothing by another GPU, and ran on one of 32 for half an hour."""
    cluster = FakeCluster(nodes=1, gpus=8)
    muster = Muster(cluster, Profile(scores=((Pack(), 1.0),), shares=(Optimus(),), conserving=True))
    cluster.job("a", 8, min_replicas="1", max_replicas="8", remaining_work="400")
    cluster.job("b", 8, min_replicas="1", max_replicas="8", remaining_work="40000")
    muster.settle(20)
    wait(muster, 600.0)
    assert (bound(cluster, "a"), bound(cluster, "b")) == (1, 7), "it is late, and few would be gained by more"
    goes(cluster, muster, "b")
    muster.settle(20)
    assert bound(cluster, "a") == 8
