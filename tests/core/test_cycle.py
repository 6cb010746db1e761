# Over 300 lines: it tries the cycle's steps in their order, on the same made-up clusters.
"""One cycle: order, all or nothing, growing, what plugins get wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from muster.core.progress.estimate import observed
from muster.points import Candidates, Profile
from muster.types import (
    BoolArray,
    FloatArray,
    Grant,
    Job,
    JobKey,
    Phase,
    Reason,
    Requirement,
    Reservation,
    Role,
    Snapshot,
    State,
    Status,
    Taint,
    Term,
    Toleration,
    elastic_role,
)
from muster_plugins.max_min import MaxMin
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


def test_a_gang_starts_whole() -> None:
    after = plan(snapshot(nodes=2, jobs=[job("train", worker=4, gpus=2)]))
    assert after.reservations == {
        key("train"): tuple(
            Reservation("worker", "n0", f"train-worker-{i}", f"train-worker-{i}") for i in range(4)
        )
    }
    assert after.statuses == {
        key("train"): Status(
            State.STARTING, Reason.BINDING, "all replicas have a place; they are being started"
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


def test_priority_then_submission_then_name_decide_the_order() -> None:
    full = job("full", worker=1, gpus=8, on=["n0"])
    waiting = [
        job("b", worker=1, submitted=5.0),
        job("a", worker=1, submitted=5.0),
        job("late", worker=1, submitted=9.0),
        job("urgent", worker=1, submitted=9.0, priority=10),
    ]
    assert queue(plan(snapshot(nodes=1, jobs=[full, *waiting]))) == ["urgent", "a", "b", "late"]


@pytest.mark.parametrize("profile", [FIFO, replace(FIFO, shares=(MaxMin(),))], ids=["gangs", "shares"])
def test_of_jobs_of_the_same_second_the_one_that_ran_and_is_made_again_is_before_all_names(
    profile: Profile,
) -> None:
    again = job("z", worker=1, gpus=8, submitted=5.0, restarting=True, expects=True)
    jobs = [job("a", worker=1, gpus=8, submitted=5.0), again, job("earlier", worker=1, gpus=8, submitted=4.0)]
    after = plan(snapshot(nodes=2, jobs=jobs), profile)
    assert (starts(after).keys(), queue(after)) == ({"earlier", "z"}, ["a"])


def test_the_order_of_arrival_of_equal_jobs_changes_nothing() -> None:
    jobs = [job(n, worker=3, gpus=2, submitted=5.0) for n in ("a", "b", "c")]
    plans = [plan(snapshot(nodes=2, jobs=order)) for order in (jobs, jobs[::-1])]
    assert plans[0].reservations == plans[1].reservations
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


def test_a_job_in_its_pause_after_a_failed_start_waits_and_blocks_nobody() -> None:
    jobs = [job("again", worker=1, gpus=8, not_before=NOW + 20), job("next", worker=1, gpus=8)]
    after = plan(snapshot(nodes=1, jobs=jobs), order="strict")
    assert starts(after) == {"next": {"n0": 1}}
    assert said(after)["again"] == (
        "Waiting BackingOff: its last start did not complete; it tries again after a pause; in 20s"
    )
    assert after.requeue_at == NOW + 20


def test_a_gate_taken_off_by_hand_gets_no_place_before_its_turn() -> None:
    jobs = [
        job("old", worker=1, gpus=8, on=["n0"]),
        job("first", worker=1, gpus=8),
        job("cheat", worker=1, gpus=8, stray=1),
    ]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert (starts(after), queue(after)) == ({}, ["first", "cheat"])


def test_an_ordered_owner_starts_on_a_reservation_for_all_its_pods() -> None:
    jobs = [job("set", worker=3, gpus=4, present=1, expects=True, ordered=True)]
    after = plan(snapshot(nodes=2, jobs=jobs))
    assert after.reservations == {
        key("set"): (
            Reservation("worker", "n0", "set-worker-0", "set-worker-0"),
            Reservation("worker", "n0"),
            Reservation("worker", "n1"),
        )
    }
    assert said(after) == {"set": "Starting Binding: all replicas have a place; 2 pods not created yet"}


def test_an_owner_without_a_new_pod_for_a_while_counts_as_waiting_for_its_first() -> None:
    def at(age: float) -> Snapshot:
        return snapshot(jobs=[job("late", worker=2, present=1, expects=True, newest_pod=NOW - age)])

    assert (starts(plan(at(9.0))), plan(at(9.0)).requeue_at) == ({}, NOW + 1.0)
    assert starts(plan(at(10.0))) == {"late": {"n0": 2}}


def test_pods_without_an_owner_that_makes_more_wait_for_each_other() -> None:
    jobs = [job("bare", worker=2, present=1, newest_pod=NOW - 1000)]
    assert starts(plan(snapshot(jobs=jobs))) == {}


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
    assert [after.statuses[key(name)].reason for name in ("head", "huge", "next")] == [
        Reason.RESOURCES,
        Reason.NEVER_FITS,
        Reason.BEHIND_HEAD,
    ]


def test_growth_keeps_to_the_sizes_that_are_allowed() -> None:
    jobs = [job("elastic", worker=8, gpus=1, least=1, most=8, sizes=(1, 2, 4, 8), on=["n0"])]
    before = snapshot(nodes=1, gpus=7, jobs=jobs)
    assert starts(plan(before)) == {"elastic": {"n0": 3}}
    assert said(plan(before)) == {"elastic": "Resizing Binding: grows from 1 to 4 replicas"}


def test_a_job_at_its_maximum_just_runs() -> None:
    jobs = [job("train", worker=2, on=["n0", "n0"])]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert after.statuses == {key("train"): Status(State.RUNNING, Reason.OK, "2 replicas running")}
    assert starts(after) == {}


def test_a_job_whose_replicas_have_all_ended_is_finished() -> None:
    jobs = [job("done", worker=0, present=0, ended=4)]
    assert said(plan(snapshot(jobs=jobs))) == {"done": "Finished Ok: all replicas have ended"}


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
        assert after.statuses[key("train")].reason is Reason.NEVER_FITS


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


def test_growth_in_one_rack_stops_where_the_rack_is_full() -> None:
    jobs = [
        job("a", worker=1, gpus=5, on=["n1"]),
        job("elastic", worker=20, gpus=1, least=1, most=20, on=["n0"], topology_required=RACK),
    ]
    assert starts(plan(snapshot(nodes=4, racks=2, jobs=jobs))) == {"elastic": {"n0": 7, "n1": 3}}


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

        def share(self, *_: Any) -> Sequence[Grant]:
            raise RuntimeError("share")

    broken = Broken()
    before = snapshot(nodes=1, jobs=[job("train", worker=2)])
    after = plan(before, sort=broken, filters=(broken,), scores=((broken, 1.0),), shares=(broken,))
    assert starts(after) == {"train": {"n0": 2}}
    assert after.plugin_errors == (
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
    assert after.plugin_errors == (
        "TooShort.filter: ValueError('expected 2 booleans, found (1,) bool'), left out",
        "TooShort.score: ValueError('expected scores of shape (2,), found (1,)'), left out",
    )


def test_a_job_that_every_fitting_node_refused_says_so() -> None:
    node_backoffs = {("train", "worker"): {"n0": NOW + 30}}
    after = plan(snapshot(nodes=1, jobs=[job("train", worker=1)], node_backoffs=node_backoffs))
    assert said(after) == {
        "train": "Waiting Resources: needs 1 GPU; "
        "left out for a while: 1 node that kube-scheduler refused for it"
    }


class Folds:
    """A plugin that folds what the job's role says."""

    def observe(self, job: Job, snapshot: Snapshot) -> object:
        return {"replicas": elastic_role(job).max, "at": snapshot.now}


def test_nothing_is_observed_of_a_job_that_outlives_its_pods() -> None:
    before = snapshot(nodes=1, jobs=[job("a", worker=2)])
    gone = Job(key("gone"), suspended=True, memory={"folds": {"replicas": 4}})
    before = replace(before, jobs={**before.jobs, gone.key: gone})
    memory: dict[JobKey, dict[str, object]] = {}
    errors: list[str] = []
    after = observed(before, replace(FIFO, named=(("folds", Folds()),)), memory, errors)
    assert errors == []
    assert memory == {key("a"): {"folds": {"replicas": 2, "at": NOW}}}
    assert after.jobs[gone.key] is gone


@pytest.mark.parametrize("order", ["strict", "backfill"])
def test_a_gang_for_which_no_arrangement_is_found_keeps_its_turn_and_holds_nobody_up(order: str) -> None:
    nodes = [node("n0", cpu=96), node("n1", cpu=32), node("n2", gpus=4, cpu=64)]
    roles = [
        role("a", 2, shape=asks(4, cpu=16000), job="hard"),
        role("b", 3, shape=asks(4, cpu=32000), job="hard"),
    ]
    jobs = [job("hard", roles=roles), job("small", worker=1, gpus=8), job("large", worker=2, gpus=8)]
    after = plan(snapshot(nodes=nodes, jobs=jobs), order=order)
    assert starts(after) == {"small": {"n0": 1}}
    assert {key.name: place for key, place in after.positions.items()} == {"hard": 1, "large": 2}
    assert said(after)["large"].startswith("Waiting Resources")
