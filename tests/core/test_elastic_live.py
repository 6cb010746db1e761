# Over 300 lines: decisions, evictions and crashes are tried in one circle with the Ledger.
"""Shares with the Ledger in the circle: evictions, successors, starts; a crash anywhere, and decisions overtaken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import profiles
from muster.points import Profile, Share
from muster.types import (
    Action,
    Event,
    Evict,
    Move,
    Outcome,
    OwnerGone,
    Phase,
    PodRecord,
    PodSeen,
    Report,
    Snapshot,
    Ungate,
    WriteGang,
    WriteLearned,
)
from muster.types import Reported as Reported_
from muster_plugins.max_min import MaxMin
from muster_plugins.pack import Pack
from muster_plugins.reported import Reported
from muster_plugins.resize_cost import ResizeCost
from tests.cluster_fake import FakeCluster, Muster

MAX_MIN = Profile(name="max-min", scores=((Pack(), 1.0),), shares=(MaxMin(),))
RESTS = replace(MAX_MIN, shares=(MaxMin(), ResizeCost(cost=0.1, overhead=0.01)))
"""A job rests for 10 s after a change where none was measured, for a hundred times what was measured else."""


def train(cluster: FakeCluster, name: str, least: int = 1, most: int = 8, **notes: Any) -> list[PodRecord]:
    """An elastic Indexed Job of single-GPU workers."""
    cluster.now += 1.0
    return cluster.job(
        name, most, min_replicas=str(least), max_replicas=str(most), **{k: str(v) for k, v in notes.items()}
    )


def shares(cluster: FakeCluster) -> dict[str, int]:
    """Bound pods by job."""
    return dict(Counter(p.name.split("-")[0] for p in cluster.pods.values() if p.phase is Phase.BOUND))


def indexes(cluster: FakeCluster, name: str) -> list[int]:
    return sorted(
        int(p.labels["batch.kubernetes.io/job-completion-index"])
        for p in cluster.pods.values()
        if p.phase is Phase.BOUND and p.name.startswith(f"{name}-")
    )


def uids(cluster: FakeCluster, name: str) -> set[str]:
    return {p.uid for p in cluster.pods.values() if p.phase is Phase.BOUND and p.name.startswith(f"{name}-")}


def evicted(cluster: FakeCluster) -> list[str]:
    """Pods that were evicted, in order."""
    return [action.pod for action in cluster.sent if isinstance(action, Evict)]


def evicted_uids(cluster: FakeCluster) -> list[str]:
    return [action.uid for action in cluster.sent if isinstance(action, Evict)]


def goes(cluster: FakeCluster, muster: Muster, name: str) -> None:
    """The job is deleted with its pods."""
    for pod in [p for p in cluster.pods.values() if p.name.startswith(f"{name}-")]:
        del cluster.pods[pod.uid]
    for uid, record in list(cluster.owners.items()):
        if record.owner.name == name:
            del cluster.owners[uid]
            muster.ledger.apply(OwnerGone(uid), cluster.now)


@dataclass(frozen=True)
class MoveOnce:
    """Takes a job that was never moved to this node."""

    node: str

    def moves(self, snapshot: Snapshot) -> list[Move]:
        return [Move(k, to=(self.node,)) for k, j in snapshot.jobs.items() if j.bound and not j.facts.moves]


@pytest.mark.parametrize("policy", [(), (MaxMin(),)], ids=["no shares", "max-min"])
def test_a_move_is_counted_once_and_is_no_resize(policy: tuple[Share, ...]) -> None:
    cluster = FakeCluster(nodes=2, gpus=4)
    train(cluster, "a", least=2, most=2, resize="restart")
    muster = Muster(cluster, replace(MAX_MIN, shares=policy))
    muster.settle()
    first = {p.node for p in cluster.pods.values() if p.phase is Phase.BOUND}
    (other,) = set(cluster.nodes) - first
    muster.ledger.profile = replace(muster.ledger.profile, rebalance=(MoveOnce(other),))
    muster.settle(30)
    assert {p.node for p in cluster.pods.values() if p.phase is Phase.BOUND} == {other}
    (job,) = muster.ledger.snapshot(cluster.now).jobs.values()
    assert (job.facts.moves, job.facts.resizes) == (1, 0)
    again = Muster(cluster, muster.ledger.profile)
    again.settle()
    (job,) = again.ledger.snapshot(cluster.now).jobs.values()
    assert job.facts.moves == 1, "a restart does not forget it"


@pytest.mark.parametrize("policy", [(), (MaxMin(),)], ids=["no shares", "max-min"])
@pytest.mark.parametrize("size", [1, 2])
def test_the_place_of_a_moved_job_waits_for_the_pods_that_its_owner_is_slow_to_make(
    policy: tuple[Share, ...], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(nodes=2, gpus=size)
    train(cluster, "a", least=size, most=size, resize="restart")
    muster = Muster(cluster, replace(MAX_MIN, shares=policy))
    muster.settle()
    (first,) = {p.node for p in cluster.pods.values() if p.phase is Phase.BOUND}
    (other,) = set(cluster.nodes) - {first}
    muster.ledger.profile = replace(muster.ledger.profile, rebalance=(MoveOnce(other),))
    gone: list[PodRecord] = []
    monkeypatch.setattr(cluster, "recreate", gone.append)
    muster.settle(10)
    assert len(gone) == size
    assert cluster.pods == {}
    for name in ("b", "c"):
        train(cluster, name, least=size, most=size)
    muster.settle(10)
    assert shares(cluster) == {"b": size}
    assert {p.node for p in cluster.pods.values() if p.phase is Phase.BOUND} == {first}, "the other is kept"
    monkeypatch.undo()
    for pod in gone:
        cluster.recreate(pod)
    muster.settle(10)
    assert shares(cluster) == {"a": size, "b": size}


class FailsFirst(FakeCluster):
    """An evicted pod ends as failed, and is gone later, as a kubelet has it; its owner makes the next one then."""

    def carry_out(self, action: Action) -> list[Event]:
        if not isinstance(action, Evict):
            return super().carry_out(action)
        self.sent.append(action)
        ending = self.update(self.pods[action.uid], deleting=True, phase=Phase.ENDING)
        self.update(ending, phase=Phase.FAILED)
        return [PodSeen(ending), Outcome(action, 201)]


@pytest.mark.parametrize("policy", [(), (MaxMin(),)], ids=["no shares", "max-min"])
def test_the_place_of_a_moved_job_waits_while_its_failed_pod_is_not_yet_gone(
    policy: tuple[Share, ...],
) -> None:
    cluster = FailsFirst(nodes=2, gpus=1)
    train(cluster, "a", least=1, most=1, resize="restart")
    muster = Muster(cluster, replace(MAX_MIN, shares=policy))
    muster.settle()
    (first,) = cluster.bound("a")
    (other,) = set(cluster.nodes) - {first}
    muster.ledger.profile = replace(muster.ledger.profile, rebalance=(MoveOnce(other),))
    muster.settle(10)
    (ended,) = evicted_uids(cluster)
    muster.ledger.profile = replace(muster.ledger.profile, rebalance=())
    for name in ("b", "c"):
        train(cluster, name, least=1, most=1)
    muster.settle(5)
    assert shares(cluster) == {"b": 1}, "the other node is kept"
    cluster.recreate(cluster.pods.pop(ended))
    muster.settle(10)
    assert cluster.bound("a") == [other]
    assert shares(cluster) == {"a": 1, "b": 1}


@pytest.mark.parametrize("name", ["termination", "reshape-restart"])
def test_a_job_restarts_with_all_that_it_was_granted_also_where_its_own_replicas_still_are(name: str) -> None:
    """Its policy counts what a job has: a restart with the few places that were free at once was followed by the next
    one, for the rest, for ever."""
    cluster = FailsFirst(nodes=1, gpus=8)
    plugin = {"termination": "termination", "reshape-restart": "reshape"}[name]
    terms = {"settling": 1.0} if name == "termination" else {"settling": 1.0, "restart": True}
    train(cluster, "a", least=1, most=8, sizes="1,2,4,8", resize="restart", remaining_work="1000000")
    train(cluster, "b", least=1, most=4, sizes="1,2,4", resize="restart", remaining_work="1000000")
    muster = Muster(cluster, profiles.build(name, {plugin: terms}))

    def goes_on() -> None:
        for _ in range(60):
            muster.turn(seconds=0.5)
            cluster.bind()
            for pod in [p for p in cluster.pods.values() if p.phase is Phase.FAILED]:
                cluster.recreate(cluster.pods.pop(pod.uid))

    goes_on()
    assert shares(cluster) == {"a": 4, "b": 4}
    restarts = len(evicted(cluster))
    goes(cluster, muster, "b")
    goes_on()
    assert shares(cluster) == {"a": 8}
    assert len(evicted(cluster)) == restarts + 4, "one restart"


@pytest.mark.parametrize("plugin", ["termination", "reshape"])
def test_a_job_whose_first_replica_is_not_on_its_node_yet_has_just_been_started_and_gets_no_more(
    plugin: str,
) -> None:
    """kube-scheduler is slow, and the job did not run before: it went from one GPU to eight without a step."""
    cluster = FakeCluster(nodes=1, gpus=8)
    train(cluster, "a", least=1, most=8, sizes="1,2,4,8", resize="restart", remaining_work="1000000")
    terms = {"settling": 1.0} if plugin == "termination" else {"settling": 1.0, "down": True}
    muster = Muster(cluster, profiles.build(plugin, {plugin: terms}))
    for _ in range(6):
        muster.turn(seconds=0.5)
    (before,) = muster.ledger.snapshot(cluster.now).jobs.values()
    assert len(before.reservations) == (1 if plugin == "termination" else 8)
    cluster.bind()
    muster.turn(seconds=0.5)
    assert shares(cluster) == {"a": len(before.reservations)}


def test_the_place_of_a_moved_job_whose_owner_makes_no_pod_again_goes_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster(nodes=2, gpus=1)
    train(cluster, "a", least=1, most=1, resize="restart")
    muster = Muster(cluster, replace(MAX_MIN, shares=()))
    muster.settle()
    (first,) = {p.node for p in cluster.pods.values() if p.phase is Phase.BOUND}
    (other,) = set(cluster.nodes) - {first}
    muster.ledger.profile = replace(muster.ledger.profile, rebalance=(MoveOnce(other),))
    monkeypatch.setattr(cluster, "recreate", lambda _: None)
    muster.settle(10)
    for name in ("b", "c"):
        train(cluster, name, least=1, most=1)
    muster.settle(10)
    assert shares(cluster) == {"b": 1}
    cluster.now += 60.0
    muster.settle(10)
    assert shares(cluster) == {"b": 1, "c": 1}


def test_a_job_gives_half_to_the_next_from_its_highest_index_and_takes_it_back() -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster, "a")
    muster = Muster(cluster, MAX_MIN)
    muster.settle()
    assert shares(cluster) == {"a": 8}
    before = uids(cluster, "a")
    train(cluster, "b")
    muster.settle(20)
    assert shares(cluster) == {"a": 4, "b": 4}
    assert indexes(cluster, "a") == indexes(cluster, "b") == [0, 1, 2, 3]
    assert uids(cluster, "a") < before
    assert len(evicted(cluster)) == 4
    goes(cluster, muster, "b")
    muster.settle(20)
    assert shares(cluster) == {"a": 8}
    assert len(evicted(cluster)) == 4


def test_nobody_starts_on_a_gpu_before_it_is_free() -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster, "a")
    muster = Muster(cluster, MAX_MIN)
    muster.settle()
    train(cluster, "b")
    muster.turn()
    assert len(evicted(cluster)) == 4
    assert [a for a in cluster.sent if isinstance(a, Ungate) and a.pod.startswith("b-")] == []
    cluster.check()


@pytest.mark.parametrize("step", range(0, 26, 2))
def test_a_crash_between_shrink_and_growth_loses_nothing_and_ends_no_more_than_planned(step: int) -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster, "a", least=2)
    muster = Muster(cluster, MAX_MIN)
    muster.settle()
    train(cluster, "b", least=2)
    left = step
    for _ in range(5):
        left -= muster.turn(die_after=left)
        cluster.check()
        if left <= 0:
            break
        cluster.bind()
    successor = Muster(cluster, MAX_MIN)
    successor.settle(30)
    assert shares(cluster) == {"a": 4, "b": 4}
    assert indexes(cluster, "a") == [0, 1, 2, 3]
    assert len(evicted(cluster)) == 4


def test_a_growth_that_is_overtaken_before_it_is_bound_is_undone() -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster, "a")
    cluster.now += 1
    fixed = cluster.job("fixed", 4)
    muster = Muster(cluster, MAX_MIN)
    muster.settle(20)
    assert shares(cluster) == {"a": 4, "fixed": 4}
    for pod in fixed:
        cluster.end(pod.uid)
    for _ in range(3):
        muster.turn()  # nothing binds meanwhile
    assert sum(p.phase is Phase.UNGATED for p in cluster.pods.values()) == 4
    cluster.now += 1
    cluster.job("other", 4)
    muster.settle(30)
    assert shares(cluster) == {"a": 4, "other": 4}


def test_a_pinned_pod_whose_eviction_was_called_back_keeps_its_place_and_is_bound() -> None:
    """Seen on the lab: without its place nobody lets it in, and its GPU is lost for good."""
    cluster = FakeCluster(nodes=1)
    train(cluster, "a")
    muster = Muster(cluster, MAX_MIN)
    for _ in range(3):
        muster.turn()
    waiting = [p for p in cluster.pods.values() if p.phase is Phase.UNGATED]
    assert len(waiting) == 8
    calls_back(cluster)
    train(cluster, "b")
    muster.turn()
    cluster.carry_out = FakeCluster.carry_out.__get__(cluster)  # type: ignore[method-assign]
    goes(cluster, muster, "b")
    muster.settle(30)
    assert shares(cluster) == {"a": 8}


def calls_back(cluster: FakeCluster) -> None:
    """Evictions are not sent any more: a newer plan has overtaken them."""
    real = cluster.carry_out

    def carry_out(action: Any) -> Any:
        return [Outcome(action, -1, "not wanted any more")] if isinstance(action, Evict) else real(action)

    cluster.carry_out = carry_out  # type: ignore[method-assign]


def test_pods_that_come_in_any_order_start_as_a_prefix() -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    made = train(cluster, "a")
    late = [made[1], made[3]]
    for pod in late:
        del cluster.pods[pod.uid]
    muster = Muster(cluster, MAX_MIN)
    muster.turn()
    muster.turn()
    for pod in late:
        cluster.pods[pod.uid] = pod
    muster.settle(30)
    assert indexes(cluster, "a") == [0, 1, 2, 3]


def test_a_job_that_restarts_ends_all_of_its_replicas_and_starts_with_its_new_share() -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster, "a", resize="restart")
    muster = Muster(cluster, MAX_MIN)
    muster.settle()
    before = uids(cluster, "a")
    train(cluster, "b")
    muster.settle(30)
    assert shares(cluster) == {"a": 4, "b": 4}
    assert not uids(cluster, "a") & before
    assert len(evicted(cluster)) == 8


def test_a_job_rests_after_a_change_also_after_a_restart_of_muster() -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster, "a")
    muster = Muster(cluster, RESTS)
    muster.settle(20)
    train(cluster, "b")
    muster.settle(20)
    assert shares(cluster) == {"a": 4, "b": 4}, "nobody rests after his first start"
    goes(cluster, muster, "b")
    muster.settle(20)
    assert shares(cluster) == {"a": 4}, "it changed a short while ago"
    successor = Muster(cluster, RESTS)
    successor.settle(20)
    assert shares(cluster) == {"a": 4}
    for _ in range(40):
        successor.settle(3, seconds=1.0)
    assert shares(cluster) == {"a": 8}


def test_a_refused_eviction_leaves_the_job_as_large_as_it_is_and_the_next_job_waits() -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster, "a")
    muster = Muster(cluster, MAX_MIN)
    muster.settle()
    real = cluster.carry_out

    def refuses(action: Any) -> Any:
        if isinstance(action, Evict):
            cluster.sent.append(action)
            words = "Cannot evict pod as it would violate the pod's disruption budget."
            return [Outcome(action, 429, words)]
        return real(action)

    cluster.carry_out = refuses  # type: ignore[method-assign]
    train(cluster, "b")
    muster.settle(30)
    assert shares(cluster) == {"a": 8}
    assert muster.state("job-b") == "Waiting"
    asked = len(evicted(cluster))
    muster.settle(10, seconds=0.1)
    assert len(evicted(cluster)) == asked, "it is not asked for again at once"
    cluster.carry_out = real  # type: ignore[method-assign]
    for _ in range(40):
        muster.settle(3, seconds=1.0)
    assert shares(cluster) == {"a": 4, "b": 4}


def test_a_node_that_dies_in_the_middle_of_growing_loses_nothing_else() -> None:
    cluster = FakeCluster(nodes=2, gpus=4)
    train(cluster, "a", least=2)
    cluster.now += 1
    fixed = cluster.job("fixed", 4)
    muster = Muster(cluster, MAX_MIN)
    muster.settle(20)
    for pod in fixed:
        cluster.end(pod.uid)
    for _ in range(3):
        muster.turn()
    growing = {p.pin for p in cluster.pods.values() if p.phase is Phase.UNGATED}
    assert growing
    for name in growing:
        del cluster.nodes[name]
    muster.settle(20)
    cluster.check()
    least = 2
    assert shares(cluster)["a"] >= least
    assert indexes(cluster, "a") == list(range(shares(cluster)["a"]))


def test_a_thousand_jobs_that_report_every_second_cost_few_cycles_and_few_writes() -> None:
    """One write a job and minute at most, and a cycle every few seconds, however much is told."""
    cluster = FakeCluster(nodes=125)
    jobs = [cluster.job(f"j{number:04d}", 1, min_replicas="1", max_replicas="1") for number in range(1000)]
    muster = Muster(cluster, replace(MAX_MIN, shares=(MaxMin(), ResizeCost()), estimate=Reported()))
    muster.settle(20)
    assert sum(shares(cluster).values()) == 1000
    first = {pods[0].uid for pods in jobs}
    for _ in range(3):
        muster.settle(5, seconds=2.0)  # the first words on each are written
    cluster.sent.clear()
    cycles = 0
    for second in range(60):
        cluster.now += 1.0
        for uid in first:
            report = Report(at=cluster.now, step=float(second * 10), total=1e6)
            muster.ledger.apply(Reported_(uid, report), cluster.now)
        if muster.ledger.due(cluster.now):
            cycles += 1
            muster.turn(seconds=0.0)
    writes = Counter(action.job for action in cluster.sent if isinstance(action, WriteGang))
    others = [action for action in cluster.sent if not isinstance(action, WriteGang)]
    assert max(writes.values(), default=0) <= 2, "speeds are new once, then once a minute"
    assert [type(action).__name__ for action in others if not isinstance(action, WriteLearned)] == []
    assert cycles <= 30


@given(data=st.data())
@settings(max_examples=30)
def test_whatever_comes_and_goes_nobody_is_below_its_least_or_double_booked(data: st.DataObject) -> None:
    cluster = FakeCluster(nodes=2, gpus=4)
    profile = data.draw(st.sampled_from([MAX_MIN, RESTS, profiles.build("afs-l")]))
    muster = Muster(cluster, profile)
    least: dict[str, int] = {}
    ran: set[str] = set()
    for number in range(data.draw(st.integers(3, 8))):
        if least and data.draw(st.booleans()):
            name = data.draw(st.sampled_from(sorted(least)))
            del least[name]
            ran.discard(name)
            goes(cluster, muster, name)
        else:
            name = f"j{number}"
            least[name] = data.draw(st.integers(1, 3))
            resize = data.draw(st.sampled_from(["", "restart"]))
            train(cluster, name, least[name], data.draw(st.integers(3, 8)), resize=resize)
        if data.draw(st.integers(0, 4)) == 0:
            muster = Muster(cluster, profile)
        for _ in range(data.draw(st.integers(1, 6))):
            muster.turn(seconds=data.draw(st.sampled_from([0.1, 1.0, 20.0])))
            cluster.check()
            if data.draw(st.booleans()):
                cluster.bind()
                cluster.check()
    for _ in range(6):
        muster.settle(20, seconds=5.0)
    found = shares(cluster)
    for name, count in least.items():
        assert found.get(name, 0) == 0 or found[name] >= count, f"{name} has {found.get(name)} of {count}"
        assert indexes(cluster, name) == list(range(found.get(name, 0)))
    waiting = [name for name in least if not found.get(name)]
    free = 8 - sum(found.values())
    assert not any(least[name] <= free for name in waiting), f"{found}, {free} free, {waiting} wait"
