# Over 300 lines: each rule of what a gang needs has its histories.
"""What a gang was once whole with is what it needs; its clock runs for what Muster owes it, not for its owner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.workload.whole import STILL, Clock, awaited, minimum, to_come, turned, whole_with
from muster.points import Profile
from muster.types import EndReason, Evict, Job, Owner, Phase
from muster_plugins.max_min import MaxMin
from tests.cluster_fake import FakeCluster, Muster
from tests.scenario import NOW, job, plan, role, said, snapshot

FIFO = Profile()
MAX_MIN = Profile(name="max-min", shares=(MaxMin(),), conserving=True)  # as on every cluster
PROFILES = pytest.mark.parametrize("profile", [FIFO, MAX_MIN], ids=["fifo", "max-min"])


def running(cluster: FakeCluster, owner: Owner) -> set[str]:
    """Uids of its bound pods."""
    return {p.uid for p in cluster.pods.values() if p.phase is Phase.BOUND and p.controller == owner}


def ended(cluster: FakeCluster) -> list[EndReason]:
    return [action.reason for action in cluster.sent if isinstance(action, Evict)]


def minutes(cluster: FakeCluster, muster: Muster, count: int) -> None:
    for _ in range(2 * count):
        muster.turn(seconds=30.0)
        cluster.bind()
        cluster.check()


def whole(cluster: FakeCluster, replicas: int, profile: Profile = FIFO) -> tuple[Owner, Muster]:
    """A gang that runs whole."""
    owner = cluster.stateful_set("serve", replicas)
    muster = Muster(cluster, profile)
    muster.settle(20)
    assert len(running(cluster, owner)) == replicas
    return owner, muster


# ---- once whole ----


@PROFILES
@pytest.mark.parametrize("restarted", [False, True])
def test_what_runs_goes_on_when_its_owner_asks_for_more_than_there_is(
    profile: Profile, restarted: bool
) -> None:
    cluster = FakeCluster(nodes=2)
    owner, muster = whole(cluster, 4, profile)
    before = running(cluster, owner)
    cluster.scale(owner, 200)
    if restarted:
        muster.turn(die_after=0)
        muster = Muster(cluster, profile)
    minutes(cluster, muster, 5)
    assert before <= running(cluster, owner)
    assert len(running(cluster, owner)) == 16, "it grows to what there is"
    assert ended(cluster) == []
    (gang,) = cluster.gangs.values()
    assert (gang.sizes, gang.whole) == ((("worker", 4, 200),), {"worker": 4})


@PROFILES
def test_a_gang_that_lost_replicas_it_was_whole_with_goes_back_after_the_timeout(profile: Profile) -> None:
    cluster = FakeCluster(nodes=2, gpus=4)
    _, muster = whole(cluster, 8, profile)
    del cluster.nodes["n1"]
    for pod in [p for p in cluster.pods.values() if p.node == "n1"]:
        cluster.delete(pod.uid)
    minutes(cluster, muster, 1)
    assert ended(cluster) == []
    minutes(cluster, muster, 3)
    assert ended(cluster) == [EndReason.LOST_MEMBERS] * 4
    assert not cluster.bound("serve")


def test_a_gang_that_lost_only_what_it_had_grown_by_goes_on() -> None:
    cluster = FakeCluster(nodes=2, gpus=4)
    owner, muster = whole(cluster, 4)
    cluster.scale(owner, 200)
    muster.settle(20)
    assert len(running(cluster, owner)) == 8
    del cluster.nodes["n1"]
    for pod in [p for p in cluster.pods.values() if p.node == "n1"]:
        cluster.delete(pod.uid)
    minutes(cluster, muster, 5)
    assert (len(running(cluster, owner)), ended(cluster)) == (4, [])


def test_a_growth_that_is_bound_is_part_of_the_gang() -> None:
    """A Deployment of six without min-replicas is a gang of six, however it became one."""
    cluster = FakeCluster(nodes=3, gpus=2)
    owner, muster = whole(cluster, 4)
    cluster.scale(owner, 6)
    muster.settle(20)
    muster.settle(20)
    assert muster.ledger.jobs[muster.key("statefulset-serve")].roles[0].min == 6
    (lost,) = {p.node for p in cluster.pods.values() if p.name.startswith("serve-5")}
    del cluster.nodes[lost]
    for pod in [p for p in cluster.pods.values() if p.node == lost]:
        cluster.delete(pod.uid)
    minutes(cluster, muster, 4)
    assert ended(cluster) == [EndReason.LOST_MEMBERS] * 4


def test_a_gang_that_was_scaled_down_is_whole_with_fewer() -> None:
    cluster = FakeCluster(nodes=1)
    owner, muster = whole(cluster, 6)
    cluster.scale(owner, 2)
    muster.settle()
    cluster.scale(owner, 200)
    muster.settle()
    (gang,) = cluster.gangs.values()
    assert (gang.whole, len(running(cluster, owner))) == ({"worker": 2}, 8)


def test_a_gang_that_ran_starts_again_with_what_it_was_whole_with() -> None:
    """Its owner asks for more than there is: a start of all of it would never come."""
    cluster = FakeCluster(nodes=1)
    owner, muster = whole(cluster, 4, Profile(preemption=True))
    cluster.scale(owner, 200)
    muster.settle()
    cluster.now += 10
    (high,) = cluster.job("high", 1, gpus=8, priority=1000)
    muster.settle(30)
    assert (running(cluster, owner), set(ended(cluster))) == (set(), {EndReason.PREEMPTION})
    cluster.end(high.uid)
    muster.settle(30)
    assert len(running(cluster, owner)) == 8


def test_a_job_whose_owner_stopped_it_starts_whole_again() -> None:
    cluster = FakeCluster(nodes=1)
    owner, muster = whole(cluster, 2)
    cluster.scale(owner, 0)
    muster.settle()
    assert muster.state("statefulset-serve") == "Finished"
    cluster.scale(owner, 9)
    muster.settle()
    assert (running(cluster, owner), muster.state("statefulset-serve")) == (set(), "Waiting")


def test_a_gang_that_an_older_version_wrote_was_whole_with_the_minimum_that_it_says() -> None:
    cluster = FakeCluster(nodes=1)
    owner, _ = whole(cluster, 4)
    (name,) = cluster.gangs
    cluster.gangs[name] = replace(cluster.gangs[name], whole=None, started=cluster.now)
    cluster.scale(owner, 200)
    muster = Muster(cluster)
    minutes(cluster, muster, 5)
    assert (len(running(cluster, owner)), ended(cluster)) == (8, [])


def test_a_rollout_that_declares_other_sizes_counts_from_its_first_pod() -> None:
    """Pods of both templates are there for a while: that is no contradiction."""
    cluster = FakeCluster(nodes=1)
    owner = cluster.stateful_set("serve", 4, min_replicas="4")
    for pod in cluster.pods.values():
        cluster.update(pod, labels={**pod.labels, "controller-revision-hash": "serve-1"})
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 10
    new = {"controller-revision-hash": "serve-2", "batch.kubernetes.io/job-completion-index": "3"}
    (last,) = [p for p in cluster.pods.values() if p.name.startswith("serve-3")]
    del cluster.pods[last.uid]
    pod = cluster.pod(owner, 3, annotations={"min_replicas": "2"})
    cluster.update(pod, labels=new)
    muster.settle()
    (role_now,) = muster.ledger.jobs[muster.key("statefulset-serve")].roles
    assert (role_now.min, role_now.bound, muster.state("statefulset-serve")) == (2, 4, "Running")


def test_a_job_that_cannot_be_read_for_now_needs_afterwards_what_it_was_whole_with() -> None:
    cluster = FakeCluster(nodes=1)
    owner, muster = whole(cluster, 4)
    first, *_ = cluster.pods.values()
    cluster.update(cluster.pods[first.uid], annotations={"muster.dev/min-replicas": "none"})
    muster.settle()
    assert muster.state("statefulset-serve") == "Invalid"
    cluster.scale(owner, 200)
    muster.settle()
    cluster.update(cluster.pods[first.uid], annotations={})
    minutes(cluster, muster, 4)
    (gang,) = cluster.gangs.values()
    assert (gang.whole, len(running(cluster, owner)), ended(cluster)) == ({"worker": 4}, 8, [])


def test_an_owner_that_is_not_known_at_this_moment_has_not_scaled_its_gang_down() -> None:
    cluster = FakeCluster(nodes=1)
    owner, muster = whole(cluster, 4)
    record = cluster.owners.pop(owner.uid)
    lost, *_ = cluster.pods.values()
    del cluster.pods[lost.uid]
    muster = Muster(cluster)
    muster.settle()
    cluster.owners[owner.uid] = record
    cluster.recreate(lost)
    muster.turn()
    assert muster.ledger.jobs[muster.key("statefulset-serve")].roles[0].min == 4


@pytest.mark.parametrize("restarted", [False, True])
def test_a_gang_whose_owner_is_not_known_at_this_moment_is_not_made_smaller(restarted: bool) -> None:
    """Nobody says how many it needs (a custom owner that can't be read): it is not elastic by that."""
    cluster = FakeCluster(nodes=1)
    owner, muster = whole(cluster, 6, MAX_MIN)
    record = cluster.owners.pop(owner.uid)
    cluster.job("other", 4)
    muster = Muster(cluster, MAX_MIN) if restarted else muster
    minutes(cluster, muster, 5)
    assert (len(running(cluster, owner)), ended(cluster)) == (6, [])
    cluster.owners[owner.uid] = record
    minutes(cluster, muster, 5)
    assert (len(running(cluster, owner)), ended(cluster)) == (6, [])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_start_needs_what_was_declared_when_it_began(restarted: bool) -> None:
    """Its owner asks for more while it is on its way: what is bound is the gang that began."""
    cluster = FakeCluster(nodes=4)
    owner = cluster.stateful_set("serve", 20)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    assert muster.state("statefulset-serve") == "Starting"
    cluster.scale(owner, 200)
    muster = Muster(cluster) if restarted else muster
    minutes(cluster, muster, 5)
    assert (len(running(cluster, owner)), ended(cluster)) == (32, [])


def test_a_start_that_failed_needs_what_is_declared_when_the_next_one_begins() -> None:
    cluster = FakeCluster(nodes=2)
    owner = cluster.stateful_set("serve", 2, gpus=4)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    first, *_ = [p for p in cluster.pods.values() if p.pin]
    cluster.update(first, phase=Phase.BOUND, node=first.pin)
    while not ended(cluster):
        muster.turn(seconds=30.0)
    assert ended(cluster) == [EndReason.START_FAILED] * 2
    cluster.scale(owner, 5, gpus=4)
    muster.settle(30, seconds=5.0)
    assert (running(cluster, owner), muster.state("statefulset-serve")) == (set(), "Waiting"), (
        "four would fit"
    )


def test_a_suspended_job_starts_whole_again() -> None:
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("train", 2)
    muster = Muster(cluster)
    muster.settle()
    owner = pods[0].controller
    assert owner is not None
    record = cluster.owners[owner.uid]
    cluster.owners[owner.uid] = replace(record, size=0, suspended=True)
    cluster.pods.clear()
    muster.settle()
    assert muster.state("job-train") == "Suspended"
    cluster.owners[owner.uid] = replace(record, size=9, completions=9)
    for index in range(9):
        cluster.pod(owner, index)
    muster.settle()
    assert (running(cluster, owner), muster.state("job-train")) == (set(), "Waiting")


def _of(**roles: tuple[int, int, int]) -> Job:
    """A job of roles given as (minimum, room to grow, bound)."""
    return job(
        "a",
        roles=[
            replace(role(name, least + grows, least=least, on=["n0"] * bound), grows=grows)
            for name, (least, grows, bound) in roles.items()
        ],
        expects=True,
    )


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        (None, _of(worker=(4, 0, 3)), None),
        (None, _of(worker=(4, 0, 4)), {"worker": 4}),
        ({"worker": 4}, _of(worker=(4, 2, 5)), {"worker": 4}),
        ({"worker": 4}, _of(worker=(4, 2, 6)), {"worker": 6}),
        ({"worker": 4}, _of(worker=(3, 0, 2)), {"worker": 3}),
        ({"worker": 4}, _of(worker=(4, 0, 4), driver=(0, 1, 0)), {"worker": 4}),
        ({"worker": 4}, _of(worker=(4, 0, 4), driver=(0, 1, 1)), {"worker": 4, "driver": 1}),
        ({"worker": 4, "driver": 1}, _of(worker=(4, 0, 3)), {"worker": 4}),
        ({"worker": 4}, _of(worker=(0, 0, 1)), {"worker": 4}),
    ],
    ids=[
        "not yet",
        "whole",
        "growing",
        "grown",
        "scaled down",
        "a role more",
        "and bound",
        "a role less",
        "stopped",
    ],
)
def test_what_a_job_was_whole_with(
    before: dict[str, int] | None, now: Job, after: dict[str, int] | None
) -> None:
    assert whole_with(before, now) == after


@pytest.mark.parametrize(
    ("declared", "whole", "least"),
    [(4, None, 4), (200, {"worker": 4}, 4), (2, {"worker": 4}, 2), (3, {"driver": 1}, 0)],
    ids=["never whole", "asks for more", "asks for less", "a role that came later"],
)
def test_the_minimum_of_a_role(declared: int, whole: dict[str, int] | None, least: int) -> None:
    assert minimum(declared, "worker", whole) == least


# ---- the clock ----


@PROFILES
def test_a_start_waits_for_as_long_as_its_owner_takes_to_create_its_pods(profile: Profile) -> None:
    """One pod after another, each 150 s after the one before is bound: a leader that takes its time to be ready."""
    cluster = FakeCluster(nodes=1)
    owner = cluster.stateful_set("serve", 4, exist=1)
    cluster.owners[owner.uid] = replace(cluster.owners[owner.uid], ordered=True)
    muster = Muster(cluster, profile)
    for index in range(1, 5):
        for _ in range(5):
            muster.turn(seconds=30.0)
            cluster.bind()
        assert len(running(cluster, owner)) == index
        if index < 4:
            status = muster.plan.statuses[muster.key("statefulset-serve")]
            more = f"{4 - index} more pod{'s' if index < 3 else ''}"
            assert status.message == f"waits for its owner to create {more}"
            cluster.pod(owner, index)
    assert (muster.state("statefulset-serve"), ended(cluster)) == ("Running", [])


def test_a_start_that_is_refused_again_and_again_goes_back_although_its_pods_are_made_again() -> None:
    """The clock does not begin again with a replica that replaces another."""
    cluster = FakeCluster(nodes=4, gpus=1)
    owner = cluster.stateful_set("serve", 2)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    first, *_ = [p for p in cluster.pods.values() if p.pin]
    cluster.update(first, phase=Phase.BOUND, node=first.pin)
    for _ in range(60):
        for pod in [p for p in cluster.pods.values() if p.phase is Phase.UNGATED and p.controller == owner]:
            cluster.update(pod, refusal="no")
        muster.turn(seconds=3.0)
    reasons = ended(cluster)
    assert reasons.count(EndReason.START_FAILED) >= 1
    assert set(reasons) == {EndReason.START_FAILED, EndReason.PIN_UNDONE}


def test_a_replica_that_replaces_one_of_a_start_that_was_paid_in_full_has_all_the_time() -> None:
    """Two of three exist, and were bound 100 s late; the owner makes the third much later. One of the two crashes:
    what the first ones took is not taken from its successor."""
    cluster = FakeCluster(nodes=1)
    owner = cluster.stateful_set("serve", 3, exist=2)
    cluster.owners[owner.uid] = replace(cluster.owners[owner.uid], ordered=True)
    muster = Muster(cluster)
    for _ in range(2):
        muster.turn()
    first, second = (p for p in cluster.pods.values() if p.pin)
    cluster.update(first, phase=Phase.BOUND, node=first.pin)
    for _ in range(10):
        muster.turn(seconds=10.0)
    cluster.update(cluster.pods[second.uid], phase=Phase.BOUND, node=second.pin)
    for _ in range(2):
        muster.turn(seconds=1.0)
    cluster.delete(second.uid)
    for _ in range(10):
        muster.turn(seconds=10.0)
    assert (running(cluster, owner), ended(cluster)) == ({first.uid}, [])
    for _ in range(3):
        muster.turn(seconds=10.0)
    assert ended(cluster) == [EndReason.START_FAILED] * 2


def test_a_replica_that_takes_long_to_end_does_not_end_the_others() -> None:
    """Its owner makes the next one when it is gone."""
    cluster = FakeCluster(nodes=1)
    owner, muster = whole(cluster, 3)
    leaves, *_ = [p for p in cluster.pods.values() if p.controller == owner]
    cluster.update(leaves, phase=Phase.ENDING, deleting=True)
    minutes(cluster, muster, 5)
    assert (len(running(cluster, owner)), ended(cluster)) == (2, [])
    status = muster.plan.statuses[muster.key("statefulset-serve")]
    assert status.message == (
        "waits for its owner to create 1 more pod; 1 pod that is ending may have to be gone first"
    )


def _part(bound: int, waiting: int, **words: object) -> Job:
    """A gang of three of which so many are bound, and so many wait for their node."""
    worker = role("worker", 3, on=["n0"] * bound, pinned=["n0"] * waiting, present=bound + waiting)
    return job("a", roles=[worker], **{"expects": True, **words})  # type: ignore[arg-type]


def test_what_is_awaited_of_muster_and_what_of_the_owner() -> None:
    kinds = [_part(1, 2), _part(1, 1), _part(1, 0), _part(3, 0), _part(1, 0, expects=False)]
    assert [(awaited(each), to_come(each)) for each in kinds] == [(2, 0), (1, 1), (0, 2), (0, 0), (2, 2)]


def test_replicas_of_another_template_are_their_owners_affair_once_the_gang_was_whole() -> None:
    """A rolling update takes away what ran; where the new template finds no room, the rest of the old one goes on."""

    def rolled(bound: int, waiting: int, *, once_whole: bool) -> Job:
        before = _part(bound, waiting)
        (worker,) = before.roles
        members = tuple(
            replace(m, revision=("serve", "old" if m.phase is Phase.BOUND else "new")) for m in worker.members
        )
        return replace(before, roles=(replace(worker, members=members),), once_whole=once_whole)

    assert [awaited(rolled(2, 1, once_whole=once)) for once in (True, False)] == [0, 1]
    assert awaited(rolled(0, 3, once_whole=True)) == 3, "all of one template"
    (worker,) = (several := rolled(2, 1, once_whole=True)).roles
    apart = tuple(replace(m, revision=(m.phase.value, m.revision[1])) for m in worker.members)
    assert awaited(replace(several, roles=(replace(worker, members=apart),))) == 1, "of two owners, one each"
    late = replace(rolled(2, 1, once_whole=True), below_since=NOW - 500)
    after = plan(snapshot(jobs=[late]))
    words = "its owner rolls out another template; 1 replica still to be bound"
    assert (after.back, said(after)) == ({}, {"a": f"Starting Binding: {words}"})


def test_a_successor_that_another_gate_holds_ends_nobody() -> None:
    worker = role("worker", 3, on=["n0"] * 2, held_back=1)
    after = plan(snapshot(jobs=[job("a", roles=[worker], expects=True, below_since=NOW - 500)]))
    words = "1 pod still to be bound carries another scheduling gate"
    assert (after.back, said(after)) == ({}, {"a": f"Starting ForeignGate: {words}"})


def test_a_job_that_goes_back_holds_no_place_from_then_on() -> None:
    cluster = FakeCluster(nodes=2)
    owner = cluster.stateful_set("serve", 2, gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    first, second = [p for p in cluster.pods.values() if p.pin]
    cluster.update(first, phase=Phase.BOUND, node=first.pin)
    for _ in range(5):
        muster.turn(seconds=30.0)
        if muster.plan.back:
            break
    (key,) = muster.plan.back
    assert muster.plan.reservations[key], "the plan that sends it back has looked at its places"
    assert muster.ledger.entries[key].planned == ()
    assert second.controller == owner


def test_the_place_of_a_replica_that_was_evicted_waits_for_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long after its owner made the last of the others: that one is about to be made is known by the eviction."""
    cluster = FakeCluster(nodes=2)
    cluster.stateful_set("serve", 2, gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    first, second = [p for p in cluster.pods.values() if p.pin]
    cluster.update(first, phase=Phase.BOUND, node=first.pin)
    muster.turn(seconds=60.0)
    cluster.update(cluster.pods[second.uid], refusal="no")
    muster.turn()
    monkeypatch.setattr(cluster, "recreate", lambda _: None)  # its owner takes its time
    muster.turn(seconds=6.0)
    assert ended(cluster) == [EndReason.PIN_UNDONE]
    key = muster.key("statefulset-serve")
    seen = []
    for _ in range(3):
        muster.turn(seconds=4.0)
        seen.append(muster.ledger.jobs[key].returning)
    assert seen == [True, True, False]


def test_the_clock_runs_for_what_exists_stands_else_and_begins_again_with_one_more() -> None:
    clock = turned(STILL, _part(1, 1), 100.0)
    assert clock == Clock(100.0, 0.0, 2)
    assert turned(clock, _part(1, 1), 150.0) is clock
    stands = turned(clock, _part(1, 0), 160.0)
    assert stands == Clock(0.0, 60.0, 2)
    assert turned(stands, _part(1, 1), 500.0) == Clock(440.0, 60.0, 2)
    assert turned(stands, _part(1, 2), 500.0) == Clock(500.0, 0.0, 3)


def test_a_quota_that_keeps_a_successor_out_is_named_and_ends_nobody() -> None:
    late = replace(_part(2, 0), quota=("quota gpus is used up", "16 of 16", False), below_since=NOW - 500)
    after = plan(snapshot(jobs=[late]))
    assert (after.back, said(after)) == (
        {},
        {"a": "Starting Quota: waits for its owner to create 1 more pod; quota gpus is used up; 16 of 16"},
    )
