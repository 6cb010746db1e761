"""The circle, in memory: what the Ledger does between a plan and the next, and across a crash."""

from __future__ import annotations

import pytest

from muster.points import Profile
from muster.types import Evict, Phase, Ungate, WriteGang
from tests.cluster_fake import FakeCluster, Muster


def test_a_large_gang_is_recorded_before_its_first_gate_comes_off() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 4, gpus=4)
    muster = Muster(cluster, Profile(carried=3))
    muster.turn()
    assert [type(a) for a in cluster.sent] == [WriteGang]
    muster.turn()
    assert [type(a) for a in cluster.sent[1:]] == [Ungate] * 4
    assert not any(pod.carries for pod in cluster.pods.values())
    cluster.bind()
    muster.settle()
    assert sorted(cluster.bound("train")) == ["n0", "n0", "n1", "n1"]
    assert muster.state("job-train") == "Running"
    assert cluster.counts == {"gang-writes": 2, "patches": 4}


def test_a_gang_that_does_not_fit_whole_keeps_every_gate_on() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("small", 3, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 1
    cluster.job("big", 2, gpus=4)
    muster.settle()
    assert cluster.bound("big") == []
    assert muster.state("job-big") == "Waiting"
    assert cluster.gangs[("team", "job-big")].message == "needs 8 GPUs (2 replicas of 4)"
    assert [s.message for s in cluster.said] == [
        "needs 8 GPUs (2 replicas of 4); 1 of 2 replicas fit now; position 1 in the queue"
    ] * 3  # on its pod, on its owner and on its Gang


def test_the_next_job_starts_when_capacity_is_freed() -> None:
    cluster = FakeCluster(nodes=1)
    first = cluster.job("first", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 1
    cluster.job("second", 2, gpus=4)
    muster.settle()
    for pod in first:
        cluster.end(pod.uid)
    muster.settle()
    assert cluster.bound("second") == ["n0", "n0"]
    assert muster.state("job-first") == "Finished"


@pytest.mark.parametrize("step", range(12))
def test_a_crash_between_any_two_requests_loses_nothing(step: int) -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("a", 4, gpus=3)
    cluster.job("b", 2, gpus=2)
    cluster.job("c", 2, gpus=8)
    muster = Muster(cluster)
    left = step
    for _ in range(4):
        done = muster.turn(die_after=left)
        cluster.check()
        left -= done
        if left <= 0:
            break
        cluster.bind()
    successor = Muster(cluster)
    successor.settle(20)
    assert len(cluster.bound("a")) == 4
    assert len(cluster.bound("b")) == 2
    assert cluster.bound("c") == []


def test_starting_one_of_many_waiting_jobs_writes_nothing_to_the_others() -> None:
    cluster = FakeCluster(nodes=1)
    running = cluster.job("running", 1, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    for number in range(200):
        cluster.now += 0.001
        cluster.job(f"wait{number}", 1, gpus=8)
    muster.settle()
    cluster.sent.clear()
    cluster.end(running[0].uid)
    muster.settle()
    assert cluster.bound("wait0-") == ["n0"]
    touched = {a.job.name for a in cluster.sent}
    assert touched == {"job-running", "job-wait0"}


def test_a_node_that_goes_before_the_bind_is_replaced_on_evidence() -> None:
    cluster = FakeCluster(nodes=3)
    cluster.job("train", 2, gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()  # pinned now
    lost = next(p.pin for p in cluster.pods.values() if p.pin)
    del cluster.nodes[lost]
    muster.settle(30, seconds=1.0)
    assert len(cluster.bound("train")) == 2
    assert lost not in cluster.bound("train")
    assert len([a for a in cluster.sent if isinstance(a, Evict)]) == 1


def test_a_member_deleted_while_gated_planned_or_bound_is_replaced() -> None:
    for turns in (1, 2, 3):
        cluster = FakeCluster(nodes=2)
        pods = cluster.job("train", 4, gpus=4)
        muster = Muster(cluster)
        for _ in range(turns):
            muster.turn()
            cluster.bind()
        cluster.delete(pods[1].uid)
        muster.settle(20)
        assert len(cluster.bound("train")) == 4, turns


def test_an_owner_that_waits_for_its_first_pods_starts_on_a_reservation() -> None:
    cluster = FakeCluster(nodes=2)
    pods = cluster.job("train", 4, gpus=4, exist=1)
    muster = Muster(cluster)
    muster.settle()
    assert muster.state("job-train") == "Incomplete"
    cluster.now += 12
    muster.settle()
    assert len(cluster.bound("train")) == 1
    cluster.now += 1
    cluster.job("other", 1, gpus=8)
    muster.settle()
    assert cluster.bound("other") == []  # the rest of train holds the place
    owner = pods[0].controller
    assert owner is not None
    for index in (1, 2, 3):
        cluster.pod(owner, index, gpus=4)
        muster.settle()
        assert len(cluster.bound("train")) == index + 1


def test_a_gate_taken_off_by_hand_gets_no_place_before_its_turn() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("first", 1, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 1
    cheat = cluster.job("cheat", 2, gpus=8)[0]
    cluster.update(cheat, phase=Phase.UNGATED)
    muster.settle()
    view = muster.ledger.view(muster.ledger.snapshot(cluster.now), muster.plan, leading=True, synced=True)
    assert cheat.uid not in view.reservations


def test_min_starts_and_the_rest_follows_as_it_fits() -> None:
    cluster = FakeCluster(nodes=1)
    other = cluster.job("other", 1, gpus=4)
    cluster.now += 1
    cluster.job("train", 4, gpus=2, min_replicas="1", max_replicas="4")
    muster = Muster(cluster)
    muster.settle()
    assert len(cluster.bound("train")) == 2
    cluster.end(other[0].uid)
    muster.settle()
    assert len(cluster.bound("train")) == 4


def test_a_pod_created_without_the_gate_is_counted_said_once_and_takes_its_turn() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("first", 1, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 1
    stray = cluster.job("stray", 1, gpus=8)[0]
    cluster.update(stray, phase=Phase.UNGATED)
    muster.settle()
    muster.turn()
    assert [s.reason for s in cluster.said if s.uid == stray.uid].count("CreatedUngated") == 1
    assert muster.ledger.created_ungated == {stray.uid}
    assert cluster.bound("stray") == []
    cluster.end(next(p.uid for p in cluster.pods.values() if p.name.startswith("first")))
    muster.settle()
    assert cluster.bound("stray") == ["n0"]


def test_another_profile_makes_every_job_again() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("first", 1, gpus=8)
    muster = Muster(cluster, Profile(placement="scored"))
    muster.settle()
    cluster.job("second", 1, gpus=8)
    muster.settle()
    muster.ledger.use(Profile())
    jobs = muster.ledger.snapshot(cluster.now).jobs
    assert [job.scored for job in jobs.values()] == [(), ()]


@pytest.mark.parametrize("event", ["another profile", "it has a bound replica"])
def test_where_a_job_is_to_start_again_is_forgotten_with_its_profile_and_does_not_count_while_it_runs(
    event: str,
) -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("train", 1, gpus=8)
    muster = Muster(cluster)
    if event == "it has a bound replica":
        muster.settle()
    else:
        muster.turn()
    (job_state,) = muster.ledger.entries.values()
    job_state.desired.restart_on = ("n0", "n0")
    if event == "another profile":
        muster.ledger.use(Profile())
    muster.ledger.dirty.add(job_state.key)
    (job,) = muster.ledger.snapshot(cluster.now).jobs.values()
    assert job.restart_on == ()
