"""What runs keeps its places; what has started is completed, or goes back whole."""

from dataclasses import replace
from typing import Any

import pytest

from muster.points import Profile
from muster.types import EndReason, Phase, Reservation, Snapshot, Taint, Toleration, Unpin
from muster_plugins.max_min import MaxMin
from tests.scenario import NOW, asks, job, key, node, plan, queue, role, said, snapshot, starts


def test_missing_members_of_started_jobs_come_before_every_start() -> None:
    jobs = [
        job("urgent", worker=1, gpus=8, priority=100),
        job("train", worker=2, gpus=4, on=["n0"]),
    ]
    before = snapshot(nodes=1, jobs=jobs)
    after = plan(before)
    assert after.reservations == {
        key("train"): (Reservation("worker", "n0", "train-worker-1", "train-worker-1"),)
    }
    assert queue(after) == ["urgent"]


def test_of_the_missing_members_as_many_as_fit_have_their_places_before_every_start() -> None:
    """Two of three: the third's node is not free yet, and nobody else is to have theirs until it is."""
    jobs = [
        job("urgent", worker=1, gpus=8, priority=100),
        job("train", worker=4, gpus=8, on=["n0"]),
        job("other", worker=1, gpus=8, on=["n3"]),
    ]
    after = plan(snapshot(nodes=4, jobs=jobs))
    assert after.reservations[key("train")] == (
        Reservation("worker", "n1", "train-worker-1", "train-worker-1"),
        Reservation("worker", "n2", "train-worker-2", "train-worker-2"),
    )
    assert said(after)["train"].startswith("Starting Resources: needs 8 GPUs")
    assert queue(after) == ["urgent"]


def test_a_started_job_that_can_be_whole_is_although_an_earlier_one_misses_more_than_is_free() -> None:
    """Both would hold GPUs and wait, and go back to the gate in the same moment."""
    jobs = [job("first", worker=4, gpus=8, on=["n0"]), job("second", worker=3, gpus=8, on=["n1"])]
    after = plan(snapshot(nodes=4, jobs=jobs))
    assert starts(after) == {"second": {"n2": 1, "n3": 1}}
    jobs[0] = job("first", worker=5, gpus=8, on=["n0"])
    after = plan(snapshot(nodes=5, jobs=jobs))
    assert starts(after) == {"second": {"n2": 1, "n3": 1}, "first": {"n4": 1}}


def test_a_gang_whose_own_replicas_are_still_ending_gets_what_is_free_in_its_turn() -> None:
    """Its owner takes it back, pod after pod: a later job that lost one has nothing of what is to be its again."""
    made = job("first", worker=3, gpus=8, on=["n0"])
    (workers,) = made.roles
    goes = replace(workers.members[1], uid="old", pod="old", phase=Phase.ENDING, node="n1")
    first = replace(made, roles=(replace(workers, members=(*workers.members, goes)),))
    jobs = [first, job("second", worker=2, gpus=8, on=["n3"])]
    assert starts(plan(snapshot(nodes=4, jobs=jobs))) == {"first": {"n2": 1}}


def test_a_role_that_asks_for_less_takes_nothing_while_one_that_asks_for_more_lacks_places() -> None:
    """The launcher's cpu were those of the node that the next worker needs."""
    launcher = role("launcher", 1, shape=asks(cpu=60_000), job="train")
    workers = role("worker", 3, shape=asks(8, cpu=60_000), on=["n0"], job="train")
    after = plan(snapshot(nodes=2, jobs=[job("train", roles=[launcher, workers])]))
    assert [(held.role, held.node) for held in after.reservations[key("train")]] == [("worker", "n1")]


def test_a_successor_takes_the_place_of_the_replica_that_is_gone() -> None:
    jobs = [job("train", worker=2, gpus=4, on=["n0"], held=[("worker", "n1")])]
    assert plan(snapshot(nodes=2, jobs=jobs)).reservations == {
        key("train"): (Reservation("worker", "n1", "train-worker-1", "train-worker-1"),)
    }


def test_holes_are_refilled_lowest_index_first() -> None:
    made = job("train", worker=4, gpus=1, least=2, most=4, on=["n0"])
    (workers,) = made.roles
    hole = (replace(workers.members[1]), workers.members[0], *workers.members[2:])  # index 1 gated again
    jobs = [replace(made, roles=(replace(workers, members=tuple(sorted(hole, key=lambda m: m.index))),))]
    after = plan(snapshot(nodes=1, gpus=2, jobs=jobs))
    assert after.reservations == {
        key("train"): (Reservation("worker", "n0", "train-worker-1", "train-worker-1"),)
    }


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([node("n1")], id="the node is gone"),
        pytest.param([node("n0", cordoned=True), node("n1")], id="the node is cordoned"),
        pytest.param([node("n0", gpus=1), node("n1")], id="the node is over-committed"),
    ],
)
def test_a_hold_that_can_not_work_is_replaced(nodes: list[Any]) -> None:
    jobs = [job("train", worker=2, held=[("worker", "n0", 0), ("worker", "n0", 1)])]
    after = plan(snapshot(nodes=nodes, jobs=jobs))
    assert starts(after)["train"]["n1"] >= 1
    assert sum(starts(after)["train"].values()) == 2


def test_a_job_of_which_all_has_ended_before_its_places_were_taken_up_gives_them_to_others() -> None:
    """It has no share either: a GPU would idle for it."""
    done = job("done", worker=0, present=0, ended=2, held=[("worker", "n0", 0), ("worker", "n0", 1)])
    before = snapshot(nodes=1, gpus=4, jobs=[done, job("next", worker=4, gpus=1, least=1, most=4)])
    after = plan(before, Profile("on a cluster", shares=(MaxMin(),), conserving=True))
    assert (after.shares, starts(after)) == ({key("next"): 4}, {"next": {"n0": 4}})
    assert said(after)["done"] == "Finished Ok: all replicas have ended"


def test_a_job_that_lost_a_hold_and_finds_no_other_place_waits_whole() -> None:
    jobs = [
        job("train", worker=2, gpus=8, held=[("worker", "n0", 0), ("worker", "n1", 1)]),
        job("small", worker=1, gpus=1),
    ]
    nodes = [node("n0"), node("n1", cordoned=True)]
    after = plan(snapshot(nodes=nodes, jobs=jobs))
    assert starts(after) == {"small": {"n0": 1}}
    assert queue(after) == ["train"]


def test_a_refused_pin_is_undone_only_on_evidence_of_some_age() -> None:
    def at(age: float) -> Snapshot:
        refused = {1: (NOW - age, "0/2 nodes are available")}
        jobs = [job("train", worker=2, gpus=4, on=["n0"], pinned=["n1"], refused=refused)]
        return snapshot(nodes=2, jobs=jobs)

    young, old = plan(at(4.0)), plan(at(5.0))
    assert (young.unpins, young.requeue_at) == ((), NOW + 1.0)
    assert old.unpins == (
        Unpin(
            key("train"),
            "worker",
            "train-worker-1",
            "train-worker-1",
            "n1",
            "kube-scheduler found node n1 unfit: 0/2 nodes are available",
        ),
    )
    # its place is used until the pod is gone
    assert old.reservations == {
        key("train"): (Reservation("worker", "n1", "train-worker-1", "train-worker-1"),)
    }
    assert said(old) == {
        "train": "Starting Stuck: replica train-worker-1 is placed again: "
        "kube-scheduler found node n1 unfit: 0/2 nodes are available"
    }


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("n0")], "node n1 is gone"),
        ([node("n0"), node("n1", cordoned=True)], "node n1 is unschedulable"),
    ],
)
def test_a_pin_on_a_node_that_is_gone_or_cordoned_is_undone_at_once(nodes: list[Any], why: str) -> None:
    jobs = [job("train", worker=2, gpus=4, on=["n0"], pinned=["n1"])]
    assert [u.why for u in plan(snapshot(nodes=nodes, jobs=jobs)).unpins] == [why]


def test_a_bare_pod_whose_pin_can_not_work_gives_its_place_back_and_is_not_ended() -> None:
    jobs = [job("bare", worker=1, pinned=["n1"], evictable=False)]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert [(u.pod, u.why, u.ends) for u in after.unpins] == [("bare-worker-0", "node n1 is gone", False)]
    assert after.reservations == {key("bare"): ()}


def test_time_alone_undoes_no_pin() -> None:
    jobs = [job("train", worker=2, gpus=4, on=["n0"], pinned=["n1"], below_since=NOW - 60)]
    after = plan(snapshot(nodes=2, jobs=jobs))
    assert (after.unpins, after.back) == ((), {})


def test_a_gang_that_is_not_bound_in_time_goes_back_to_the_gate_whole() -> None:
    def at(below: float) -> Snapshot:
        return snapshot(jobs=[job("train", worker=2, gpus=4, on=["n0"], pinned=["n1"], below_since=below)])

    waiting, late = plan(at(NOW - 119)), plan(at(NOW - 120))
    assert (waiting.back, waiting.requeue_at) == ({}, NOW + 1)
    words = "1 of 2 replicas were bound 2m after the first; the whole job goes back to the gate"
    assert (late.back, late.ends) == ({key("train"): words}, {key("train"): EndReason.START_FAILED})
    assert said(late) == {"train": f"Waiting BackingOff: {words}"}


def test_the_clock_stands_for_replicas_that_an_owner_is_still_to_create() -> None:
    """Half of it is bound, the others do not exist: an initializer runs, or a leader is not ready yet."""
    late = job("set", worker=3, gpus=4, present=1, on=["n0"], held=[("worker", "n1")], below_since=NOW - 500)
    after = plan(snapshot(jobs=[replace(late, expects=True)]))
    assert after.back == {}
    assert said(after) == {"set": "Starting PodsMissing: waits for its owner to create 2 more pods"}
    assert plan(snapshot(jobs=[late])).back, "nobody creates the others"


def test_a_gang_that_was_whole_goes_back_for_what_it_lost() -> None:
    late = job("train", worker=2, gpus=4, on=["n0"], pinned=["n1"], below_since=NOW - 120, once_whole=True)
    after = plan(snapshot(jobs=[late]))
    words = "it lost replicas and has had 1 of 2 for 2m; the whole job goes back to the gate"
    assert (after.back, after.ends) == ({key("train"): words}, {key("train"): EndReason.LOST_MEMBERS})


def test_an_ending_pod_keeps_its_capacity_until_it_is_gone() -> None:
    jobs = [job("old", worker=1, gpus=8, ending=["n0"]), job("new", worker=1, gpus=8)]
    assert "new" not in starts(plan(snapshot(nodes=1, jobs=jobs)))


def test_a_pin_on_a_cordoned_node_stays_where_the_pod_tolerates_cordoning() -> None:
    shape = asks(4, tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    nodes = [node("n0", cordoned=True), node("n1")]
    jobs = [job("daemonic", worker=2, shape=shape, on=["n1"], pinned=["n0"])]
    after = plan(snapshot(nodes=nodes, jobs=jobs))
    assert (after.unpins, starts(after)) == ((), {"daemonic": {"n0": 1}})


def test_a_hold_on_a_node_that_got_a_taint_is_replaced() -> None:
    nodes = [node("n0", taints=[Taint("broken")]), node("n1")]
    jobs = [job("train", worker=2, held=[("worker", "n0", 0), ("worker", "n0", 1)])]
    assert starts(plan(snapshot(nodes=nodes, jobs=jobs))) == {"train": {"n1": 2}}


def test_a_scored_replica_that_lost_its_node_gets_another_in_the_same_cycle() -> None:
    """Its gate is off and it is bound to no node by a pin: the new place is its own at once."""
    made = job("train", worker=1, held=[("worker", "n0", 0)], scored=("asked for",), started=True)
    (workers,) = made.roles
    member = replace(workers.members[0], phase=Phase.UNGATED, node="n0", pinned=False)
    jobs = [replace(made, roles=(replace(workers, members=(member,)),))]
    after = plan(snapshot(nodes=[node("n0", cordoned=True), node("n1")], jobs=jobs))
    assert after.reservations == {
        key("train"): (Reservation("worker", "n1", "train-worker-0", "train-worker-0"),)
    }


def test_a_planned_job_whose_bare_pod_was_deleted_before_its_gate_came_off_waits_whole() -> None:
    jobs = [
        job("bare", worker=2, present=1, gpus=4, held=[("worker", "n0", 0), ("worker", "n0")]),
        job("next", worker=1, gpus=8),
    ]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert starts(after) == {"next": {"n0": 1}}
    assert after.reservations[key("bare")] == ()
    assert said(after)["bare"] == "Incomplete PodsMissing: 1 of 2 pods exist; missing: 1 worker"
