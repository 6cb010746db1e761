"""Policies while kube-scheduler is slow, and replicas take their time to end: what is granted is not running yet, and
not waiting any more either. They decide as in a simulation, where a start is at once."""

from __future__ import annotations

from collections import Counter

import pytest

from muster import profiles
from muster.types import Phase
from muster_plugins.specon import CC, Seen
from tests.cluster_fake import FakeCluster, Muster, SlowEnds, node
from tests.core.test_elastic_live import evicted, goes, shares, train


def binds(cluster: FakeCluster, job: str, count: int = 1) -> None:
    """kube-scheduler gets as far as so many of a job's pods."""
    waiting = [p for p in cluster.pods.values() if p.phase is Phase.UNGATED and p.name.startswith(f"{job}-")]
    for pod in waiting[:count]:
        cluster.update(pod, phase=Phase.BOUND, node=pod.pin)


def on_its_way(cluster: FakeCluster) -> dict[str, int]:
    """Pods by job that are released, or on a node."""
    out = (Phase.UNGATED, Phase.BOUND)
    return dict(Counter(p.name.split("-")[0] for p in cluster.pods.values() if p.phase in out))


def test_a_quantum_begins_when_all_that_the_job_needs_is_on_its_nodes() -> None:
    """Of a job that ran before: with its first replica its last run's quantum was over, and its turn with it."""
    cluster = FakeCluster(nodes=1, gpus=2)
    for name in "ab":
        train(cluster, name, least=2, most=2)
    muster = Muster(cluster, profiles.build("afs-p", {"afs-p": {"quantum": 100.0}}))
    muster.settle()
    assert shares(cluster) == {"a": 2}
    for _ in range(30):
        muster.settle(4, seconds=5.0)
        if shares(cluster) == {"b": 2}:
            break
    cluster.now += 100.0
    for _ in range(4):
        muster.turn(seconds=0.1)
    assert on_its_way(cluster) == {"a": 2}
    binds(cluster, "a")
    before = len(evicted(cluster))
    for _ in range(9):
        muster.turn(seconds=10.0)
    assert on_its_way(cluster) == {"a": 2}, "kube-scheduler was slow, and its turn is not over"
    binds(cluster, "a")
    for _ in range(9):
        muster.turn(seconds=10.0)
    assert on_its_way(cluster) == {"a": 2}
    assert len(evicted(cluster)) == before
    muster.turn(seconds=20.0)
    assert len(evicted(cluster)) == before + 2, "its turn is over"


def test_a_job_whose_replicas_are_released_has_started_before_one_that_waits() -> None:
    """Tiresias-L goes by the first start: a job that came before took the places of one on its way to them."""
    cluster = FakeCluster(nodes=1, gpus=4)
    train(cluster, "x", least=2, most=2)
    muster = Muster(cluster, profiles.build("tiresias-l"))
    muster.settle()
    train(cluster, "c", least=4, most=4)
    muster.settle()
    train(cluster, "a", least=2, most=2)
    for _ in range(3):
        muster.turn()
    assert on_its_way(cluster) == {"a": 2, "x": 2}
    goes(cluster, muster, "x")
    for _ in range(4):
        muster.turn()
    assert on_its_way(cluster) == {"a": 2}
    assert evicted(cluster) == []


@pytest.mark.parametrize("policy", ["afs-p", "afs-s", "themis"])
def test_a_gang_starts_although_its_replicas_are_bound_one_by_one(policy: str) -> None:
    """With more jobs than GPUs it was taken for one whose quantum was over since 1970, and sent back at once: no gang
    ever started."""
    cluster = FakeCluster(nodes=1, gpus=2)
    for name in "ab":
        train(cluster, name, least=2, most=2)
    muster = Muster(cluster, profiles.build(policy))
    for _ in range(6):
        muster.turn(seconds=5.0)
        binds(cluster, "a")
    assert shares(cluster) == {"a": 2}
    assert evicted(cluster) == []


def test_a_quantum_ends_in_time_also_while_another_job_is_not_on_its_node_yet() -> None:
    cluster = FakeCluster(nodes=1, gpus=2)
    for name in "abc":
        train(cluster, name, least=1, most=1)
    muster = Muster(cluster, profiles.build("afs-p", {"afs-p": {"quantum": 100.0}}))
    for _ in range(3):
        muster.turn()
    for _ in range(2):
        binds(cluster, "a")
        muster.turn(seconds=10.0)
    (start,) = {job.facts.run_start for job in muster.ledger.snapshot(cluster.now).jobs.values()} - {None}
    muster.turn(seconds=80.0)
    assert muster.plan.requeue_at == start + 100.0


def test_a_node_to_which_a_container_is_on_its_way_is_idle_no_more() -> None:
    """SpeCon sent it one after another, until the first was bound there."""
    cluster = SlowEnds(nodes=1)
    for name in "abcd":
        train(cluster, name, least=1, most=1, resize="restart")
    muster = Muster(cluster, profiles.build("specon"))
    muster.settle()
    converged = Seen(cluster.now, 0.5, 0.001, 1.0, CC, cluster.now, settled=True).as_mapping()
    for key, job_state in muster.ledger.entries.items():
        job_state.memory = {"specon": converged}
        muster.ledger.dirty.add(key)
    cluster.nodes["n1"] = node("n1")
    for _ in range(3):
        muster.turn()
    assert len(evicted(cluster)) == 1
    cluster.over()
    for _ in range(3):
        muster.turn()
    cluster.bind()
    muster.settle()
    assert sorted(shares(cluster).items()) == [(name, 1) for name in "abcd"]
    assert len(evicted(cluster)) == 1


@pytest.mark.parametrize("policy", ["max-min", "afs-s"])
@pytest.mark.parametrize("resize", ["", "restart"])
def test_gpus_are_not_moved_by_who_happens_to_be_bound_first(policy: str, resize: str) -> None:
    cluster = SlowEnds(nodes=1, gpus=3)
    for name in "ab":
        train(cluster, name, most=3, resize=resize)
    muster = Muster(cluster, profiles.build(policy))
    for _ in range(3):
        muster.turn()
    for job in ("b", "a", "a"):
        assert on_its_way(cluster) == {"a": 2, "b": 1}
        binds(cluster, job)
        for _ in range(3):
            muster.turn()
    assert shares(cluster) == {"a": 2, "b": 1}
    assert evicted(cluster) == []


def test_a_job_that_restarts_keeps_its_turn() -> None:
    """Max-min goes by the start of runs, and a restart is a run of its own: the next share of all was another one."""
    cluster = SlowEnds(nodes=1, gpus=3)
    train(cluster, "a", most=3, resize="restart")
    muster = Muster(cluster, profiles.build("max-min"))

    def goes_on() -> None:
        for _ in range(8):
            muster.turn(seconds=1.0)
            cluster.over()
            cluster.bind()

    goes_on()
    train(cluster, "b", most=3, resize="restart")
    goes_on()
    train(cluster, "c", most=1)
    goes_on()
    assert shares(cluster) == {"a": 1, "b": 1, "c": 1}
    before = len(evicted(cluster))
    goes(cluster, muster, "c")
    goes_on()
    assert shares(cluster) == {"a": 2, "b": 1}
    assert [pod.split("-")[0] for pod in evicted(cluster)[before:]] == ["a"]


@pytest.mark.parametrize("policy", ["reshape", "reshape-restart"])
def test_one_job_gives_gpus_to_one_that_arrives_however_long_its_replicas_take_to_end(policy: str) -> None:
    """In each plan another one gave some, and the first again once it had settled."""
    cluster = SlowEnds(nodes=2, gpus=8)
    muster = Muster(cluster, profiles.build(policy, {"reshape": {"settling": 1.0}}))
    for name in "ad":
        train(cluster, name, least=1, most=8, sizes="1,2,4,8", remaining_work="1000000")
        muster.settle(seconds=1.0)
        muster.settle(seconds=1.0)
    assert shares(cluster) == {"a": 8, "d": 8}
    train(cluster, "b", least=1, most=4, sizes="1,2,4", remaining_work="1000000")
    for _ in range(20):
        muster.turn(seconds=0.5)
    assert Counter(pod.split("-")[0] for pod in evicted(cluster)) == {"a": 4}
    cluster.over()
    muster.settle()
    assert shares(cluster) == {"a": 4, "b": 4, "d": 8}
