"""What the Ledger does without a new plan: gates of recorded places, and no diff where nothing changed."""

from __future__ import annotations

from muster.core.cycle import cycle
from muster.core.ledger import Ledger
from muster.points import Profile
from muster.types import Outcome, PodSeen, Ungate, WriteGang
from tests.cluster_fake import FakeCluster

PROFILE = Profile(name="fifo")


def planned(cluster: FakeCluster) -> tuple[Ledger, list[WriteGang]]:
    """A ledger that has planned the cluster once, and the Gangs that it wants written."""
    ledger = Ledger(PROFILE)
    for event in cluster.events():
        ledger.apply(event, cluster.now)
    snapshot = ledger.snapshot(cluster.now)
    actions = ledger.adopt(snapshot, cycle(snapshot, PROFILE))
    return ledger, [action for action in actions if isinstance(action, WriteGang)]


def test_gates_come_off_as_soon_as_the_placement_is_written_without_another_cycle():
    cluster = FakeCluster()
    pods = cluster.job("train", 2)
    ledger, writes = planned(cluster)
    assert ledger.proceed(cluster.now) == ()  # nothing is recorded yet
    for write in writes:
        ledger.apply(Outcome(write, 200), cluster.now)
    actions = ledger.proceed(cluster.now)
    assert [type(action) for action in actions] == [Ungate, Ungate]
    assert {action.uid for action in actions if isinstance(action, Ungate)} == {pod.uid for pod in pods}
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
