"""One cycle: order, all or nothing, backfilling, keeping, growing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from muster.core.cycle import duration, expected_end
from muster.points import Candidates
from muster.types import (
    BoolArray,
    Code,
    FloatArray,
    Hold,
    Job,
    Phase,
    Requirement,
    Role,
    Snapshot,
    State,
    Status,
    Taint,
    Term,
    Toleration,
    Undo,
    Want,
)
from tests.scenario import (
    FIFO,
    NOW,
    RACK,
    asks,
    cluster,
    job,
    key,
    node,
    plan,
    queue,
    role,
    said,
    snapshot,
    starts,
    starts_by_role,
)

# ---- all or nothing ----


def test_a_gang_starts_whole() -> None:
    after = plan(snapshot(nodes=2, jobs=[job("train", worker=4, gpus=2)]))
    assert after.holds == {
        key("train"): tuple(Hold("worker", "n0", f"train-worker-{i}", f"train-worker-{i}") for i in range(4))
    }
    assert after.statuses == {
        key("train"): Status(
            State.STARTING, Code.BINDING, "all replicas have a place; they are being started"
        )
    }
    assert after.order == ()


def test_a_gang_with_one_replica_too_many_takes_nothing() -> None:
    after = plan(snapshot(nodes=2, jobs=[job("train", worker=9, gpus=2), job("next", worker=8, gpus=2)]))
    assert starts(after) == {"next": {"n0": 4, "n1": 4}}
    assert said(after) == {
        "train": "Waiting NeverFits: needs 18 GPUs (9 replicas of 2): "
        "all nodes together, empty, take 8 of 9 replicas",
        "next": "Starting Binding: all replicas have a place; they are being started",
    }


def test_all_or_nothing_holds_across_roles() -> None:
    roles = [role("server", 2, gpus=0, shape=asks(cpu=48_000)), role("worker", 4, gpus=4)]
    before = snapshot(nodes=2, jobs=[job("train", roles=roles)])
    assert starts_by_role(plan(before)) == {
        "train": {"worker": {"n0": 2, "n1": 2}, "server": {"n0": 2}},
    }
    busy = snapshot(
        nodes=2,
        jobs=[job("cpu", worker=1, on=["n0"], shape=asks(cpu=60_000)), job("train", roles=roles)],
        foreign={"n1": asks(cpu=60_000)},
    )
    after = plan(busy)
    assert starts(after) == {}
    assert said(after)["train"] == (
        "Waiting Resources: needs 16 GPUs (2 server, 4 worker); 0 of 2 server replicas fit now"
    )


def test_competing_gangs_never_sit_half_placed() -> None:
    gangs = [job(f"g{i}", worker=5, gpus=4) for i in range(5)]
    after = plan(snapshot(nodes=8, jobs=gangs))
    placed = {name: sum(nodes.values()) for name, nodes in starts(after).items()}
    assert placed == {"g0": 5, "g1": 5, "g2": 5}
    assert queue(after) == ["g3", "g4"]


# ---- order ----


def test_priority_then_submission_then_name_decide_the_order() -> None:
    full = job("full", worker=1, gpus=8, on=["n0"])
    waiting = [
        job("b", worker=1, submitted=5.0),
        job("a", worker=1, submitted=5.0),
        job("late", worker=1, submitted=9.0),
        job("urgent", worker=1, submitted=9.0, priority=10),
    ]
    assert queue(plan(snapshot(nodes=1, jobs=[full, *waiting]))) == ["urgent", "a", "b", "late"]


def test_the_order_of_arrival_of_equal_jobs_changes_nothing() -> None:
    jobs = [job(n, worker=3, gpus=2, submitted=5.0) for n in ("a", "b", "c")]
    plans = [plan(snapshot(nodes=2, jobs=order)) for order in (jobs, jobs[::-1])]
    assert plans[0].holds == plans[1].holds
    assert plans[0].order == plans[1].order


def test_strict_order_lets_nobody_pass_the_head() -> None:
    jobs = [
        job("old", worker=1, gpus=6, on=["n0"]),
        job("head", worker=1, gpus=4),
        job("small", worker=1, gpus=1),
    ]
    after = plan(snapshot(nodes=1, jobs=jobs), order="strict")
    assert starts(after) == {}
    assert queue(after) == ["head", "small"]
    assert said(after)["small"] == (
        "Waiting BehindHead: waits for the job at the head of the queue (order: strict)"
    )


@pytest.mark.parametrize("order", ["strict", "backfill"])
def test_an_incomplete_job_never_blocks(order: str) -> None:
    jobs = [job("half", worker=4, present=3), job("next", worker=2)]
    after = plan(snapshot(nodes=1, jobs=jobs), order=order)
    assert starts(after) == {"next": {"n0": 2}}
    assert queue(after) == []
    assert said(after)["half"] == "Incomplete PodsMissing: 3 of 4 pods exist; missing: 1 worker"


@pytest.mark.parametrize("order", ["strict", "backfill"])
def test_a_job_that_can_never_fit_says_so_and_blocks_nobody(order: str) -> None:
    jobs = [job("huge", worker=1, gpus=16), job("next", worker=1, gpus=8)]
    after = plan(snapshot(nodes=1, jobs=jobs), order=order)
    assert starts(after) == {"next": {"n0": 1}}
    assert said(after)["huge"] == (
        "Waiting NeverFits: needs 16 GPUs: no node is large enough for 16 GPUs: the largest has 8 GPUs"
    )


@pytest.mark.parametrize("order", ["strict", "backfill"])
def test_an_invalid_job_says_why_and_blocks_nobody(order: str) -> None:
    jobs = [job("wrong", worker=1, invalid="pods a and b differ"), job("next", worker=1, gpus=8)]
    after = plan(snapshot(nodes=1, jobs=jobs), order=order)
    assert starts(after) == {"next": {"n0": 1}}
    assert said(after)["wrong"] == "Invalid Invalid: pods a and b differ"


def test_a_job_behind_another_projects_gate_is_not_in_our_queue() -> None:
    after = plan(snapshot(jobs=[job("kueue", worker=3, held_back=2)]), order="strict")
    assert (starts(after), queue(after)) == ({}, [])
    assert said(after) == {"kueue": "Incomplete ForeignGate: 2 pods of 3 still carry another scheduling gate"}


# ---- backfilling ----


def test_a_small_job_passes_a_head_that_does_not_fit() -> None:
    jobs = [
        job("old", worker=1, gpus=6, on=["n0"]),
        job("head", worker=1, gpus=8),
        job("small", worker=1, gpus=2),
    ]
    assert starts(plan(snapshot(nodes=1, jobs=jobs))) == {"small": {"n0": 1}}


def known(name: str, seconds: float, **words: Any) -> Job:
    """A job whose owner says how long it runs."""
    made = job(name, **words)
    return replace(made, remaining_work=seconds * sum(r.min for r in made.roles))


def test_with_known_run_times_only_those_pass_who_do_not_delay_the_head() -> None:
    jobs = [
        known("old", 1600, worker=1, gpus=6, on=["n0"]),  # started 1000 s ago: ends in 600 s
        known("head", 100, worker=1, gpus=8),
        known("long", 601, worker=1, gpus=1),
        known("short", 600, worker=1, gpus=1),
        job("unknown", worker=1, gpus=1),
    ]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert starts(after) == {"short": {"n0": 1}}
    assert (
        said(after)["long"]
        == said(after)["unknown"]
        == ("Waiting Reserved: would fit, but the free capacity is kept for the job at the head of the queue")
    )
    assert queue(after) == ["head", "long", "unknown"]


def test_a_long_job_passes_where_the_reservation_leaves_room() -> None:
    jobs = [
        known("old", 1600, worker=1, gpus=6, on=["n0"]),
        known("head", 100, worker=1, gpus=7),
        known("long", 10_000, worker=1, gpus=1),
        known("too-long", 10_000, worker=1, gpus=1),
    ]
    assert starts(plan(snapshot(nodes=1, jobs=jobs))) == {"long": {"n0": 1}}


def test_the_reservation_is_at_the_first_end_that_is_enough() -> None:
    jobs = [
        known("first", 1100, worker=1, gpus=8, on=["n0"]),
        known("second", 1500, worker=1, gpus=8, on=["n1"]),
        known("third", 1900, worker=1, gpus=8, on=["n2"]),
        known("head", 100, worker=3, gpus=8),
        known("fits-before", 500, worker=1, gpus=8),
        known("does-not", 501, worker=1, gpus=8),
    ]
    before = snapshot(nodes=4, jobs=jobs)
    # the head needs three nodes: n3 is free, n0 and n1 are free after 500 s
    assert starts(plan(before)) == {"fits-before": {"n3": 1}}
    without = replace(before, jobs={k: j for k, j in before.jobs.items() if k.name != "fits-before"})
    assert starts(plan(without)) == {}


def test_a_big_gang_of_unknown_length_does_not_starve() -> None:
    """Small jobs pass until the head has waited longer than the profile's patience; then what comes free is its."""

    def at(now: float, busy: Sequence[str]) -> Snapshot:
        jobs = [job(f"s{i}", worker=1, gpus=4, on=[n]) for i, n in enumerate(busy)]
        jobs += [
            job("head", worker=2, gpus=8, submitted=NOW),
            *(job(f"new{i}", worker=1, gpus=4, submitted=NOW + 1 + i) for i in range(4)),
        ]
        return snapshot(nodes=2, jobs=jobs, now=now)

    impatient = plan(at(NOW + 299, ["n0", "n0", "n1"]))
    assert starts(impatient) == {"new0": {"n1": 1}}
    assert impatient.wake == NOW + 300
    for busy in (["n0", "n0", "n1"], ["n0", "n1"], ["n0"]):
        assert starts(plan(at(NOW + 300, busy))) == {}
    assert starts(plan(at(NOW + 300, []))) == {"head": {"n0": 1, "n1": 1}}


def test_capacity_that_the_head_can_not_use_is_not_kept_for_it() -> None:
    jobs = [
        job("a", worker=1, gpus=4, on=["n0"]),
        job("b", worker=1, gpus=7, on=["n1"]),
        job("head", worker=1, gpus=8, submitted=NOW - 400),
        job("small", worker=1, gpus=1),
    ]
    # n0 has more free, so it is kept; n1 is not
    assert starts(plan(snapshot(nodes=2, jobs=jobs))) == {"small": {"n1": 1}}


def test_a_job_that_does_not_grow_into_the_reservation() -> None:
    jobs = [
        job("elastic", worker=4, gpus=1, least=2, most=4, on=["n0", "n0"]),
        job("head", worker=1, gpus=8, submitted=NOW - 400),
    ]
    assert starts(plan(snapshot(nodes=1, jobs=jobs))) == {}
    jobs[1] = replace(jobs[1], submitted=NOW - 100)
    assert starts(plan(snapshot(nodes=1, jobs=jobs))) == {"elastic": {"n0": 2}}


def test_length_and_end_come_from_what_the_owner_declares() -> None:
    unknown = job("a", worker=4)
    assert (duration(unknown), expected_end(unknown)) == (None, None)
    assert duration(replace(unknown, remaining_work=400.0)) == 100.0
    assert duration(replace(unknown, remaining_work=400.0, speed=((4, 2.0),))) == 200.0
    running = job("b", worker=1, on=["n0"], remaining_work=1500.0)
    assert expected_end(running) == NOW + 500


# ---- keep: started jobs ----


def test_missing_members_of_started_jobs_come_before_every_start() -> None:
    jobs = [
        job("urgent", worker=1, gpus=8, priority=100),
        job("train", worker=2, gpus=4, on=["n0"]),
    ]
    before = snapshot(nodes=1, jobs=jobs)
    after = plan(before)
    assert after.holds == {key("train"): (Hold("worker", "n0", "train-worker-1", "train-worker-1"),)}
    assert queue(after) == ["urgent"]


def test_a_successor_takes_the_place_of_the_replica_that_is_gone() -> None:
    jobs = [job("train", worker=2, gpus=4, on=["n0"], held=[("worker", "n1")])]
    assert plan(snapshot(nodes=2, jobs=jobs)).holds == {
        key("train"): (Hold("worker", "n1", "train-worker-1", "train-worker-1"),)
    }


def test_holes_are_refilled_lowest_index_first() -> None:
    made = job("train", worker=4, gpus=1, least=2, most=4, on=["n0"])
    (workers,) = made.roles
    hole = (replace(workers.members[1]), workers.members[0], *workers.members[2:])  # index 1 gated again
    jobs = [replace(made, roles=(replace(workers, members=tuple(sorted(hole, key=lambda m: m.index))),))]
    after = plan(snapshot(nodes=1, gpus=2, jobs=jobs))
    assert after.holds == {key("train"): (Hold("worker", "n0", "train-worker-1", "train-worker-1"),)}


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
    assert (young.undo, young.wake) == ((), NOW + 1.0)
    assert old.undo == (
        Undo(
            key("train"),
            "worker",
            "train-worker-1",
            "train-worker-1",
            "n1",
            "kube-scheduler found node n1 unfit: 0/2 nodes are available",
        ),
    )
    # its place is used until the pod is gone
    assert old.holds == {key("train"): (Hold("worker", "n1", "train-worker-1", "train-worker-1"),)}
    assert said(old) == {
        "train": "Starting Stuck: replica train-worker-1 is placed anew: "
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
    assert [u.why for u in plan(snapshot(nodes=nodes, jobs=jobs)).undo] == [why]


def test_a_pin_of_a_bare_pod_is_never_undone() -> None:
    jobs = [job("bare", worker=1, pinned=["n1"], evictable=False)]
    assert plan(snapshot(nodes=1, jobs=jobs)).undo == ()


def test_time_alone_undoes_no_pin() -> None:
    jobs = [job("train", worker=2, gpus=4, on=["n0"], pinned=["n1"], below_since=NOW - 60)]
    after = plan(snapshot(nodes=2, jobs=jobs))
    assert (after.undo, after.back) == ((), {})


def test_a_gang_that_is_not_bound_in_time_goes_back_to_the_gate_whole() -> None:
    def at(below: float) -> Snapshot:
        return snapshot(jobs=[job("train", worker=2, gpus=4, on=["n0"], pinned=["n1"], below_since=below)])

    waiting, late = plan(at(NOW - 119)), plan(at(NOW - 120))
    assert (waiting.back, waiting.wake) == ({}, NOW + 1)
    words = "1 of 2 replicas were bound 2m after the first; the whole job goes back to the gate"
    assert late.back == {key("train"): words}
    assert said(late) == {"train": f"Waiting BackingOff: {words}"}


def test_an_owner_that_creates_pods_one_after_another_gets_its_time_for_each() -> None:
    jobs = [
        job(
            "set",
            worker=3,
            gpus=4,
            present=2,
            on=["n0"],
            pinned=["n0"],
            held=[("worker", "n1")],
            below_since=NOW - 500,
            newest_pod=NOW - 10,
            ordered=True,
            expects=True,
        )
    ]
    assert plan(snapshot(jobs=jobs)).back == {}


def test_a_job_in_its_pause_after_a_failed_start_waits_and_blocks_nobody() -> None:
    jobs = [job("again", worker=1, gpus=8, not_before=NOW + 20), job("next", worker=1, gpus=8)]
    after = plan(snapshot(nodes=1, jobs=jobs), order="strict")
    assert starts(after) == {"next": {"n0": 1}}
    assert said(after)["again"] == (
        "Waiting BackingOff: its last start did not complete; it tries again after a pause; in 20s"
    )
    assert after.wake == NOW + 20


def test_an_ending_pod_keeps_its_capacity_until_it_is_gone() -> None:
    jobs = [job("old", worker=1, gpus=8, ending=["n0"]), job("new", worker=1, gpus=8)]
    assert "new" not in starts(plan(snapshot(nodes=1, jobs=jobs)))


def test_a_gate_taken_off_by_hand_gets_no_place_before_its_turn() -> None:
    jobs = [
        job("old", worker=1, gpus=8, on=["n0"]),
        job("first", worker=1, gpus=8),
        job("cheat", worker=1, gpus=8, stray=1),
    ]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert (starts(after), queue(after)) == ({}, ["first", "cheat"])


# ---- members that do not exist yet ----


def test_an_ordered_owner_starts_on_a_reservation_for_all_its_pods() -> None:
    jobs = [job("set", worker=3, gpus=4, present=1, expects=True, ordered=True)]
    after = plan(snapshot(nodes=2, jobs=jobs))
    assert after.holds == {
        key("set"): (
            Hold("worker", "n0", "set-worker-0", "set-worker-0"),
            Hold("worker", "n0"),
            Hold("worker", "n1"),
        )
    }
    assert said(after) == {"set": "Starting Binding: all replicas have a place; 2 pods not created yet"}


def test_an_owner_without_a_new_pod_for_a_while_counts_as_waiting_for_its_first() -> None:
    def at(age: float) -> Snapshot:
        return snapshot(jobs=[job("late", worker=2, present=1, expects=True, newest_pod=NOW - age)])

    assert (starts(plan(at(9.0))), plan(at(9.0)).wake) == ({}, NOW + 1.0)
    assert starts(plan(at(10.0))) == {"late": {"n0": 2}}


def test_pods_without_an_owner_that_makes_more_wait_for_each_other() -> None:
    jobs = [job("bare", worker=2, present=1, newest_pod=NOW - 1000)]
    assert starts(plan(snapshot(jobs=jobs))) == {}


# ---- grow ----


def test_a_job_starts_with_its_minimum_and_takes_the_rest_as_it_fits() -> None:
    jobs = [
        job("elastic", worker=8, gpus=2, least=2, most=8),
        job("rigid", worker=1, gpus=4),
    ]
    # the minimum of both first, then growth in order
    assert starts(plan(snapshot(nodes=2, jobs=jobs))) == {
        "elastic": {"n0": 2, "n1": 4},
        "rigid": {"n0": 1},
    }


def test_in_strict_order_a_job_that_can_never_fit_is_told_so_although_the_head_waits_too() -> None:
    jobs = [
        job("busy", worker=1, gpus=4, on=["n0"]),
        job("head", worker=1, gpus=8),
        job("huge", worker=1, gpus=9),
        job("next", worker=1, gpus=1),
    ]
    after = plan(snapshot(nodes=1, jobs=jobs), order="strict")
    assert [after.statuses[key(name)].code for name in ("head", "huge", "next")] == [
        Code.RESOURCES,
        Code.NEVER_FITS,
        Code.BEHIND_HEAD,
    ]


def test_growth_keeps_to_the_sizes_that_are_allowed() -> None:
    jobs = [job("elastic", worker=8, gpus=1, least=1, most=8, sizes=(1, 2, 4, 8), on=["n0"])]
    before = snapshot(nodes=1, gpus=7, jobs=jobs)
    assert starts(plan(before)) == {"elastic": {"n0": 3}}
    assert said(plan(before)) == {"elastic": "Resizing Binding: grows from 1 to 4 replicas"}


def test_a_job_at_its_maximum_just_runs() -> None:
    jobs = [job("train", worker=2, on=["n0", "n0"])]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert after.statuses == {key("train"): Status(State.RUNNING, Code.OK, "2 replicas running")}
    assert starts(after) == {}


def test_a_job_whose_replicas_have_all_ended_is_finished() -> None:
    jobs = [job("done", worker=0, present=0, ended=4)]
    assert said(plan(snapshot(jobs=jobs))) == {"done": "Finished Ok: all replicas have ended"}


# ---- constraints of the pods ----


@pytest.mark.parametrize(
    ("words", "where"),
    [
        pytest.param({}, "n0", id="a plain pod avoids the taint"),
        pytest.param({"selector": (("zone", "b"),)}, "n1", id="selector"),
        pytest.param(
            {"affinity": (Term((Requirement("zone", "In", ("c",)),)),)}, "n3", id="affinity to a label"
        ),
        pytest.param(
            {"affinity": (Term((), (Requirement("metadata.name", "In", ("n1",)),)),)},
            "n1",
            id="affinity to a name",
        ),
        pytest.param(
            {"tolerations": (Toleration("gpu", "Exists"),), "selector": (("zone", "t"),)},
            "n2",
            id="a tolerated taint",
        ),
        pytest.param({"selector": (("zone", "t"),)}, None, id="a taint that is not tolerated"),
    ],
)
def test_selectors_affinity_and_taints_decide_where(words: Mapping[str, Any], where: str | None) -> None:
    nodes = [
        node("n0", labels={"zone": "a"}),
        node("n1", labels={"zone": "b"}),
        node("n2", labels={"zone": "t"}, taints=[Taint("gpu")]),
        node("n3", labels={"zone": "c"}),
    ]
    jobs = [job("train", worker=1, shape=asks(1, **words))]
    after = plan(snapshot(nodes=nodes, jobs=jobs))
    assert starts(after) == ({"train": {where: 1}} if where else {})
    if where is None:
        assert after.statuses[key("train")].code is Code.NEVER_FITS


def test_pods_of_other_schedulers_count() -> None:
    before = snapshot(nodes=2, jobs=[job("train", worker=1, gpus=8)], foreign={"n0": asks(1)})
    assert starts(plan(before)) == {"train": {"n1": 1}}


def test_a_resource_that_no_node_has_is_named() -> None:
    shape = replace(asks(), requests=(("amd.com/gpu", 1),))
    assert said(plan(snapshot(jobs=[job("train", worker=1, shape=shape)]))) == {
        "train": "Waiting NeverFits: needs 1 amd.com/gpu: no node offers amd.com/gpu"
    }


def test_a_required_rack_that_is_busy_says_how_much_the_best_has() -> None:
    jobs = [
        job("old", worker=2, gpus=4, on=["n0", "n2"]),
        job("train", worker=4, gpus=4, topology_required=RACK),
    ]
    assert said(plan(snapshot(nodes=4, racks=2, jobs=jobs)))["train"] == (
        "Waiting Topology: needs 16 GPUs (4 replicas of 4) in one rack; the best rack has 12 GPUs free"
    )


# ---- plugins ----


def test_a_filter_that_refuses_every_node_is_quoted_to_the_owner() -> None:
    @dataclass(frozen=True)
    class Closed:
        def filter(
            self, _job: Job, _role: Role, candidates: Candidates, *_: Any
        ) -> tuple[BoolArray | None, str]:
            return candidates.fits < 0, "the cluster is closed on Sundays"

    after = plan(snapshot(jobs=[job("train", worker=1)]), filters=(Closed(),))
    assert said(after) == {"train": "Waiting Plugin: the cluster is closed on Sundays"}


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), -1e9, 1e9])
def test_a_score_that_is_nonsense_still_gives_a_legal_plan(nonsense: float) -> None:
    @dataclass(frozen=True)
    class Nonsense:
        def score(self, _job: Job, _role: Role, candidates: Candidates, *_: Any) -> FloatArray:
            return np.full(len(candidates.nodes), nonsense)

    after = plan(snapshot(nodes=2, jobs=[job("train", worker=9)]), scores=((Nonsense(), 1.0),))
    assert {n: sum(c.values()) for n, c in starts(after).items()} == {"train": 9}


# ---- the plan as a whole ----


def test_a_waiting_job_of_one_class_tells_the_same_as_the_one_before_it() -> None:
    jobs = [job("old", worker=1, gpus=8, on=["n0"]), *(job(f"w{i}", worker=1, gpus=4) for i in range(3))]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert {said(after)[f"w{i}"] for i in range(3)} == {
        "Waiting Resources: needs 4 GPUs; 0 of 1 replica fits now"
    }


def test_a_cycle_changes_nothing_in_the_snapshot() -> None:
    before = snapshot(nodes=cluster(2), jobs=[job("train", worker=4), job("big", worker=99)])
    free, ours = before.free.copy(), before.ours_on.copy()
    plan(before)
    assert (before.free == free).all()
    assert (before.ours_on == ours).all()


def test_all_phases_of_pods_are_told_apart() -> None:
    assert [p.name for p in Phase if p.on_node] == ["BOUND", "ENDING"]
    assert [p.name for p in Phase if p.ended] == ["SUCCEEDED", "FAILED"]
    assert FIFO.name == "fifo"


def test_a_pin_on_a_cordoned_node_stays_where_the_pod_tolerates_cordoning() -> None:
    shape = asks(4, tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    nodes = [node("n0", cordoned=True), node("n1")]
    jobs = [job("daemonic", worker=2, shape=shape, on=["n1"], pinned=["n0"])]
    after = plan(snapshot(nodes=nodes, jobs=jobs))
    assert (after.undo, starts(after)) == ((), {"daemonic": {"n0": 1}})


def test_a_hold_on_a_node_that_got_a_taint_is_replaced() -> None:
    nodes = [node("n0", taints=[Taint("broken")]), node("n1")]
    jobs = [job("train", worker=2, held=[("worker", "n0", 0), ("worker", "n0", 1)])]
    assert starts(plan(snapshot(nodes=nodes, jobs=jobs))) == {"train": {"n1": 2}}


def test_growth_in_one_rack_stops_where_the_rack_is_full() -> None:
    jobs = [
        job("a", worker=1, gpus=5, on=["n1"]),
        job("elastic", worker=20, gpus=1, least=1, most=20, on=["n0"], topology_required=RACK),
    ]
    assert starts(plan(snapshot(nodes=4, racks=2, jobs=jobs))) == {"elastic": {"n0": 7, "n1": 3}}


def test_a_scored_replica_that_lost_its_node_gets_another_in_the_same_cycle() -> None:
    """Its gate is off and it is bound to no node by a pin: the new place is its own at once."""
    made = job("train", worker=1, held=[("worker", "n0", 0)], scored=("asked for",), started=True)
    (workers,) = made.roles
    member = replace(workers.members[0], phase=Phase.UNGATED, node="n0", pinned=False)
    jobs = [replace(made, roles=(replace(workers, members=(member,)),))]
    after = plan(snapshot(nodes=[node("n0", cordoned=True), node("n1")], jobs=jobs))
    assert after.holds == {key("train"): (Hold("worker", "n1", "train-worker-0", "train-worker-0"),)}


@pytest.mark.parametrize("order", ["strict", "backfill"])
def test_a_job_that_a_filter_holds_back_blocks_nobody(order: str) -> None:
    @dataclass(frozen=True)
    class NotThatOne:
        def filter(
            self, job: Job, _role: Role, candidates: Candidates, *_: Any
        ) -> tuple[BoolArray | None, str]:
            if job.key.name == "held":
                return np.zeros(len(candidates.nodes), dtype=np.bool_), "over its quota"
            return None, ""

    jobs = [job("held", worker=1, submitted=1.0), job("next", worker=1, gpus=8)]
    after = plan(snapshot(nodes=1, jobs=jobs), order=order, filters=(NotThatOne(),))
    assert starts(after) == {"next": {"n0": 1}}
    assert said(after)["held"] == "Waiting Plugin: over its quota"


def test_plugins_that_fail_are_left_out_and_complained_of() -> None:
    @dataclass(frozen=True)
    class Broken:
        def sort_key(self, *_: Any) -> tuple[Any, ...]:
            raise RuntimeError("sort")

        def filter(self, *_: Any) -> tuple[BoolArray | None, str]:
            raise RuntimeError("filter")

        def score(self, *_: Any) -> FloatArray:
            raise RuntimeError("score")

        def share(self, *_: Any) -> Sequence[Want]:
            raise RuntimeError("share")

    broken = Broken()
    before = snapshot(nodes=1, jobs=[job("train", worker=2)])
    after = plan(before, sort=broken, filters=(broken,), scores=((broken, 1.0),), shares=(broken,))
    assert starts(after) == {"train": {"n0": 2}}
    assert after.complaints == (
        "Broken.sort_key: RuntimeError('sort'), left out",
        "Broken.share: RuntimeError('share'), left out",
        "Broken.filter: RuntimeError('filter'), left out",
        "Broken.score: RuntimeError('score'), left out",
    )


def test_a_score_or_mask_of_the_wrong_shape_is_left_out_and_complained_of() -> None:
    @dataclass(frozen=True)
    class TooShort:
        def filter(self, *_: Any) -> tuple[BoolArray | None, str]:
            return np.zeros(1, dtype=np.bool_), "no"

        def score(self, *_: Any) -> FloatArray:
            return np.zeros(1)

    short = TooShort()
    before = snapshot(nodes=2, jobs=[job("train", worker=2)])
    after = plan(before, filters=(short,), scores=((short, 1.0),))
    assert starts(after) == {"train": {"n0": 2}}
    assert after.complaints == (
        "TooShort.filter: ValueError('expected 2 booleans, found (1,) bool'), left out",
        "TooShort.score: ValueError('expected scores of shape (2,), found (1,)'), left out",
    )


def test_a_job_that_every_fitting_node_refused_says_so() -> None:
    barred = {("train", "worker"): {"n0": NOW + 30}}
    after = plan(snapshot(nodes=1, jobs=[job("train", worker=1)], barred=barred))
    assert said(after) == {
        "train": "Waiting Resources: needs 1 GPU; "
        "left out for a while: 1 node that kube-scheduler refused for it"
    }


def test_a_planned_job_whose_bare_pod_was_deleted_before_its_gate_came_off_waits_whole() -> None:
    jobs = [
        job("bare", worker=2, present=1, gpus=4, held=[("worker", "n0", 0), ("worker", "n0")]),
        job("next", worker=1, gpus=8),
    ]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert starts(after) == {"next": {"n0": 1}}
    assert after.holds[key("bare")] == ()
    assert said(after)["bare"] == "Incomplete PodsMissing: 1 of 2 pods exist; missing: 1 worker"
