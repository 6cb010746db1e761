"""What the Ledger does without a new plan: gates of recorded places, and no diff where nothing changed."""

from __future__ import annotations

from muster.core.cycle import cycle
from muster.core.ledger import Ledger
from muster.points import Profile
from muster.types import Outcome, PodSeen, Ungate, WriteGang
from tests.cluster_fake import FakeCluster

PROFILE = Profile(name="fifo")


def planned(cluster: FakeCluster) -> tuple[Ledger, list[WriteGang | Ungate]]:
    """A ledger that has planned the cluster once, and what it wants recorded."""
    ledger = Ledger(PROFILE)
    for event in cluster.events():
        ledger.apply(event, cluster.now)
    snapshot = ledger.snapshot(cluster.now)
    actions = ledger.adopt(snapshot, cycle(snapshot, PROFILE))
    return ledger, [action for action in actions if isinstance(action, WriteGang | Ungate)]


def test_gates_come_off_as_soon_as_the_placement_is_written_without_another_cycle():
    cluster = FakeCluster(nodes=3)
    pods = cluster.job("train", 17)
    ledger, (write,) = planned(cluster)
    assert isinstance(write, WriteGang)
    assert ledger.proceed(cluster.now) == ()  # nothing is recorded yet
    for event in cluster.carry_out(write):
        ledger.apply(event, cluster.now)
    actions = ledger.proceed(cluster.now)
    assert {type(action) for action in actions} == {Ungate}
    assert {action.uid for action in actions if isinstance(action, Ungate)} == {pod.uid for pod in pods}
    assert ledger.proceed(cluster.now) == ()  # each is sent once


def test_the_others_gates_come_off_as_soon_as_the_first_pod_carries_the_placement():
    cluster = FakeCluster()
    pods = cluster.job("train", 3)
    ledger, (first,) = planned(cluster)
    assert isinstance(first, Ungate)
    assert {reservation.uid for reservation in first.carries} == {pod.uid for pod in pods}
    assert ledger.proceed(cluster.now) == ()  # nothing is recorded yet
    for event in cluster.carry_out(first):
        ledger.apply(event, cluster.now)
    actions = [action for action in ledger.proceed(cluster.now) if isinstance(action, Ungate)]
    assert {action.uid for action in actions} | {first.uid} == {pod.uid for pod in pods}
    assert [action.carries for action in actions] == [(), ()]
    assert ledger.proceed(cluster.now) == ()  # each is sent once


def test_a_placement_that_was_refused_takes_no_gate_off():
    cluster = FakeCluster()
    cluster.job("train", 2)
    ledger, writes = planned(cluster)
    for write in writes:
        ledger.apply(Outcome(write, 500), cluster.now)
    assert ledger.proceed(cluster.now) == ()


def test_the_same_version_of_a_pod_twice_changes_nothing():
    cluster = FakeCluster()
    (pod,) = cluster.job("train", 1)
    ledger, _ = planned(cluster)
    ledger.snapshot(cluster.now)
    assert not ledger.due(cluster.now)
    ledger.apply(PodSeen(pod), cluster.now)
    assert not ledger.due(cluster.now)
