"""A small job's start is recorded on its first pod, by the PATCH that starts it, and not in the Gang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.actions.told_later import BRIEF
from muster.core.cycle import cycle
from muster.types import GangSeen, Phase, PodRecord, PodSeen, Reservation, Ungate, WriteGang
from tests.cluster_fake import FakeCluster, Muster


def carriers(cluster: FakeCluster) -> list[PodRecord]:
    return [pod for pod in cluster.pods.values() if pod.carries]


def pins(cluster: FakeCluster) -> dict[str, str]:
    return {pod.uid: pod.pin for pod in cluster.pods.values() if pod.pin}


def test_the_first_patch_records_all_places_and_the_others_follow() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 4, gpus=4)
    muster = Muster(cluster)
    muster.turn()
    (first,) = cluster.sent
    assert isinstance(first, Ungate)
    assert sorted(reservation.node for reservation in first.carries) == ["n0", "n0", "n1", "n1"]
    muster.turn()
    assert [type(a) for a in cluster.sent[1:]] == [Ungate] * 3
    assert pins(cluster) == {reservation.uid: reservation.node for reservation in first.carries}
    assert cluster.gangs == {}
    cluster.bind()
    muster.settle()
    assert muster.state("job-train") == "Running"
    assert cluster.counts == {"gang-writes": 1, "patches": 4}
    assert cluster.gangs[("team", "job-train")].placement == ()


@pytest.mark.parametrize("follower", [False, True], ids=["restarted", "a follower that saw it"])
def test_a_crash_after_the_first_patch_loses_no_place(follower: bool) -> None:
    cluster = FakeCluster(nodes=3)
    cluster.job("train", 3, gpus=8)
    Muster(cluster).turn()
    (carrier,) = carriers(cluster)
    places = {reservation.uid: reservation.node for reservation in carrier.carries}
    cluster.job("greedy", 3, gpus=8, priority=9)
    after = Muster(cluster)
    if follower:
        after.sync()
        snapshot = after.ledger.snapshot(cluster.now)
        view = after.ledger.view(snapshot, after.plan, leading=False, synced=True)
        held = {uid: reservation.node for uid, (_, reservation) in view.reservations.items()}
        assert held == places, "its verbs and its page know the places"
        after.ledger.take_over()
    after.settle()
    assert pins(cluster) == places
    assert len(cluster.bound("train")) == 3
    assert cluster.bound("greedy") == []


def test_a_first_patch_that_is_refused_is_made_again_and_nothing_else_starts() -> None:
    cluster = FakeCluster()
    pods = cluster.job("train", 2)
    muster = Muster(cluster)
    for pod in pods:  # changed since the plan was made: 409
        muster.ledger.apply(PodSeen(pod), cluster.now)
        cluster.pods[pod.uid] = cluster.update(pod)
    snapshot = muster.ledger.snapshot(cluster.now)
    (first,) = muster.ledger.adopt(snapshot, cycle(snapshot, muster.ledger.profile))
    for event in cluster.carry_out(first):
        muster.ledger.apply(event, cluster.now)
    assert muster.ledger.proceed(cluster.now) == ()
    assert carriers(cluster) == []
    cluster.now += 1.0
    muster.settle()
    assert len(cluster.bound("train")) == 2
    assert len(carriers(cluster)) == 1


def test_a_start_that_takes_its_time_is_told_and_said_once() -> None:
    cluster = FakeCluster()
    cluster.job("holder", 2, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.job("train", 2, gpus=8)
    cluster.now += 5
    muster.settle()
    assert cluster.gangs[("team", "job-train")].state == "Waiting"
    cluster.said.clear()
    for pod in list(cluster.pods.values()):
        if pod.name.startswith("holder"):
            cluster.end(pod.uid)
    muster.turn()
    muster.turn()
    assert cluster.gangs[("team", "job-train")].state == "Waiting"
    assert {say.reason for say in cluster.said} == {"Starting"}
    told = len(cluster.said)
    muster.turn(seconds=BRIEF)
    muster.turn()
    gang = cluster.gangs[("team", "job-train")]
    assert gang.state == "Starting"
    assert {reservation.node for reservation in gang.placement} == {"n0", "n1"}
    cluster.bind()
    muster.settle()
    assert cluster.gangs[("team", "job-train")].state == "Running"
    assert len(cluster.said) == told


def test_a_start_that_can_not_be_completed_says_why() -> None:
    cluster = FakeCluster(nodes=1)
    pod = cluster.bare("alone", "alone")
    muster = Muster(cluster)
    muster.turn()
    assert carriers(cluster)
    cluster.nodes["n0"] = replace(cluster.nodes["n0"], unschedulable=True)
    muster.turn()
    muster.turn()
    assert cluster.gangs[("team", "alone")].reason == "Stuck"
    muster.turn()
    kinds = [(say.reason, say.pod, say.owner.kind if say.owner else "") for say in cluster.said]
    assert kinds == [("Stuck", pod.name, ""), ("Stuck", "", "Gang")]


def test_what_an_old_start_carries_places_nobody() -> None:
    """The carrier lives on; a member is replaced, and a restart gives the successor its own place."""
    cluster = FakeCluster(nodes=3)
    cluster.job("train", 2, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    (carrier,) = carriers(cluster)
    other = next(pod for pod in cluster.pods.values() if pod.uid != carrier.uid)
    cluster.nodes.pop(other.node)
    cluster.delete(other.uid)
    after = Muster(cluster)
    after.settle()
    assert len(cluster.bound("train")) == 2
    assert other.node not in cluster.bound("train")


def test_of_two_starts_the_later_one_counts() -> None:
    cluster = FakeCluster(nodes=2)
    old = cluster.job("train", 2, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 10
    for pod in old:  # both are ending, and their Job has made two more
        assert pod.controller is not None
        cluster.update(cluster.pods[pod.uid], phase=Phase.ENDING)
        cluster.recreate(pod)
    muster.settle(4)
    for pod in old:
        cluster.pods.pop(pod.uid)
    muster.turn()
    first = next(pod for pod in carriers(cluster) if pod.uid not in {p.uid for p in old})
    entry = muster.ledger.entries[muster.key("job-train")]
    assert entry.carried == first.carries
    muster.settle()
    assert len(cluster.bound("train")) == 2


def test_a_job_that_is_over_before_it_was_told_has_a_gang_that_says_so() -> None:
    cluster = FakeCluster()
    cluster.job("train", 2)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    for pod in list(cluster.pods.values()):
        cluster.update(pod, phase=Phase.SUCCEEDED, node=pod.pin)
    muster.settle()
    assert cluster.gangs[("team", "job-train")].state == "Finished"


def test_what_can_not_be_carried_is_written_in_the_gang() -> None:
    """Members that do not exist yet, and a job that has a place in its Gang already."""
    cluster = FakeCluster(nodes=2)
    pods = cluster.job("late", 2, gpus=4, exist=1)
    muster = Muster(cluster)
    cluster.now += 30
    muster.turn()
    assert [type(a) for a in cluster.sent] == [WriteGang]
    (gang,) = cluster.gangs.values()
    assert Reservation("worker", "n0", "", "") in gang.placement
    muster.ledger.apply(GangSeen(gang), cluster.now)
    muster.settle()
    assert cluster.bound("late") == ["n0"]
    assert not any(pod.carries for pod in cluster.pods.values())
    assert len(pods) == 1
