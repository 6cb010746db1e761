"""Requests that the API server refuses: each object waits longer each time, and nobody else waits for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from muster.core.cycle import cycle
from muster.types import Action, DeleteGang, Event, Outcome, PodRecord, Ungate, WriteGang
from tests.cluster_fake import FakeCluster, Muster

REFUSALS = [409, 422, 403, 429]


def sent_at(
    status: int, seconds: float, of: Callable[[Action], bool], after: float = 0.0, *, gangs: int = 1
) -> list[float]:
    """When (s after the start) a kind of action was sent that is always answered so; a turn each 0.25 s."""
    cluster = FakeCluster(nodes=4)
    cluster.job("train", 17 if gangs else 2)  # more than a pod carries: its Gang is written first
    muster = Muster(cluster)
    began, times = cluster.now, list[float]()
    while cluster.now < began + seconds:
        cluster.now += 0.25
        muster.sync()
        snapshot = muster.ledger.snapshot(cluster.now)
        for action in muster.ledger.adopt(snapshot, cycle(snapshot, muster.ledger.profile)):
            answers: list[Event]
            if of(action):
                times.append(cluster.now - began)
                answers = [Outcome(action, status, "no", after)]
            else:
                answers = cluster.carry_out(action)
            for event in answers:
                muster.ledger.apply(event, cluster.now)
    return times


def gaps(times: list[float]) -> list[float]:
    return [later - sooner for sooner, later in itertools.pairwise(times)]


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("gangs", [0, 1], ids=["gate", "gang"])
def test_an_object_that_is_refused_again_and_again_is_tried_less_and_less_often(
    status: int, gangs: int
) -> None:
    one = None

    def first(action: Action) -> bool:
        nonlocal one
        if isinstance(action, WriteGang if gangs else Ungate):
            one = one or getattr(action, "uid", "gang")
            return getattr(action, "uid", "gang") == one
        return False

    assert gaps(sent_at(status, 200, first, gangs=gangs)) == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("status", [0, 500, 503])
def test_a_server_that_is_away_is_no_fault_of_the_object(status: int) -> None:
    times = sent_at(status, 10, lambda action: isinstance(action, WriteGang))
    assert set(gaps(times)) == {0.5}


def test_a_server_that_asks_for_a_pause_gets_it_up_to_a_minute() -> None:
    def written(action: Action) -> bool:
        return isinstance(action, WriteGang)

    assert gaps(sent_at(429, 20, written, after=5.0)) == [5.0, 5.0, 5.0]
    assert gaps(sent_at(429, 130, written, after=3600.0)) == [60.0, 60.0]


def ended_long_ago(cluster: FakeCluster) -> Muster:
    """A job whose pods are still there; its Gang has had its time."""
    pods = cluster.job("train", 2)
    muster = Muster(cluster)
    muster.settle()
    for pod in pods:
        cluster.end(pod.uid)
    muster.settle()
    cluster.now += muster.ledger.profile.ttl_after_finished
    return muster


def test_a_gang_that_may_not_be_deleted_is_tried_less_and_less_often() -> None:
    cluster = FakeCluster(nodes=4)
    muster = ended_long_ago(cluster)
    times = []
    for _ in range(400):
        cluster.now += 0.25
        muster.sync()
        snapshot = muster.ledger.snapshot(cluster.now)
        for action in muster.ledger.adopt(snapshot, cycle(snapshot, muster.ledger.profile)):
            if isinstance(action, DeleteGang):
                times.append(cluster.now)
                muster.ledger.apply(Outcome(action, 403, "no"), cluster.now)
    assert gaps(times) == [0.5, 1, 2, 4, 8, 16, 32]


def not_before(muster: Muster, pod: PodRecord) -> float:
    return muster.ledger.entries[muster.ledger.job_of[pod.uid]].in_flight.of(pod.uid).not_before


def test_one_success_and_the_next_refusal_counts_as_the_first() -> None:
    cluster = FakeCluster(nodes=4)
    (pod, *_) = cluster.job("train", 2)
    muster = Muster(cluster)
    muster.turn()
    action = next(a for a in cluster.sent if isinstance(a, Ungate) and a.uid == pod.uid)
    for _ in range(6):
        muster.ledger.apply(Outcome(action, 409), cluster.now)
    assert not_before(muster, pod) == cluster.now + 16.0
    muster.ledger.apply(Outcome(action, 200), cluster.now)
    muster.ledger.apply(Outcome(action, 409), cluster.now)
    assert not_before(muster, pod) == cluster.now + 0.5


def test_the_gang_of_a_job_that_ended_long_ago_is_removed_once_though_its_pods_are_kept() -> None:
    cluster = FakeCluster(nodes=4)
    muster = ended_long_ago(cluster)
    before = len(cluster.sent)
    for _ in range(10):
        muster.settle()
        cluster.now += 1.0
    assert [type(action).__name__ for action in cluster.sent[before:]] == ["DeleteGang"]
    assert not cluster.gangs
