"""What the plan allows kube-scheduler to do with a pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.reasons.waiting import NO_PLAN
from muster.core.views.extender_rules import NO_ROOM, OTHER_NODE, ExtenderRules
from muster.core.views.view import View
from muster.points import Profile
from muster_plugins.gang import Gang
from muster_plugins.gang_pack import GangPack
from tests.scenario import FIFO, NOW, RACK, asks, job, node, snapshot
from tests.server.reading import viewed

SCORED = ("asked for",)
ALL = ["n0", "n1", "n2", "n3"]


def test_a_pinned_pod_passes_on_its_planned_node_only() -> None:
    guard = ExtenderRules(viewed(snapshot(jobs=[job("train", worker=2, gpus=8)])))
    assert guard.passes("train-worker-0", ALL) == (["n0"], OTHER_NODE)
    assert guard.passes("train-worker-1", ALL) == (["n1"], OTHER_NODE)
    assert guard.passes("train-worker-1", ["n0", "n3"]) == ([], OTHER_NODE)


def test_a_pod_without_a_plan_passes_nowhere() -> None:
    guard = ExtenderRules(viewed(snapshot(nodes=1, jobs=[job("train", worker=2, gpus=8)])))
    assert guard.passes("train-worker-0", ["n0"]) == ([], NO_PLAN)
    assert guard.passes("of-nobody", ["n0"]) == ([], NO_PLAN)
    assert guard.scores("of-nobody", ["n0"]) == [0]


def test_a_pod_released_by_hand_needs_no_plan() -> None:
    guard = ExtenderRules(replace(viewed(snapshot(jobs=[])), released=frozenset({"let-go"})))
    assert guard.passes("let-go", ALL) == (ALL, NO_PLAN)


def test_a_scored_pod_passes_where_it_fits_beside_all_holds() -> None:
    jobs = [
        job("pinned", worker=1, gpus=8),  # n0
        job("spread", worker=2, gpus=8, scored=SCORED),  # n1 and n2, n3 is free
    ]
    guard = ExtenderRules(viewed(snapshot(jobs=jobs)))
    assert guard.passes("spread-worker-0", ALL) == (["n1", "n2", "n3"], NO_ROOM)
    assert guard.passes("spread-worker-1", ALL) == (["n1", "n2", "n3"], NO_ROOM)
    assert guard.passes("pinned-worker-0", ALL) == (["n0"], OTHER_NODE)


def contested() -> View:
    """n0 has 16 GPUs, 8 of them held for a pinned job; `spread` has its own places on n1 and n2."""
    nodes = [node("n0", 16), node("n1", 8), node("n2", 8)]
    jobs = [
        job("pinned", worker=1, gpus=8, held=[("worker", "n0", 0)]),
        job("spread", worker=2, gpus=8, scored=SCORED, held=[("worker", "n1", 0), ("worker", "n2", 1)]),
    ]
    return viewed(snapshot(nodes, jobs=jobs))


def test_two_scored_pods_between_two_views_do_not_take_the_place_that_is_held_for_a_pinned_one() -> None:
    guard = ExtenderRules(contested())
    names = ["n0", "n1", "n2"]
    assert guard.passes("spread-worker-0", names) == (names, NO_ROOM)
    # Only n0 is contested: on n1 and n2 nobody else has a place, and kube-scheduler counts there.
    assert guard.passes("spread-worker-1", names) == (["n1", "n2"], NO_ROOM)
    assert guard.passes("pinned-worker-0", names) == (["n0"], OTHER_NODE)


def test_the_answer_for_a_pod_stays_the_same_however_often_it_is_asked() -> None:
    guard = ExtenderRules(contested())
    names = ["n0", "n1", "n2"]
    for _ in range(3):
        assert guard.passes("spread-worker-0", names)[0] == names
        assert guard.passes("spread-worker-1", names)[0] == ["n1", "n2"]
    assert guard.passes("spread-worker-1", ["n0"])[0] == []


def test_a_pod_that_was_let_onto_its_own_place_only_is_in_nobodys_way() -> None:
    guard = ExtenderRules(contested())
    assert guard.passes("spread-worker-0", ["n1"])[0] == ["n1"], (
        "kube-scheduler tries the nominated node first"
    )
    assert guard.passes("spread-worker-1", ["n0", "n1", "n2"])[0] == ["n0", "n1", "n2"]


def test_a_promise_counts_in_the_next_views_until_the_pod_is_bound_or_two_seconds_have_passed() -> None:
    names = ["n0", "n1", "n2"]
    view = contested()
    guard = ExtenderRules(view)
    guard.passes("spread-worker-0", names)
    later = replace(view, snapshot=replace(view.snapshot, now=NOW + 1.0))
    assert ExtenderRules(later, guard).passes("spread-worker-1", names)[0] == ["n1", "n2"]
    bound = replace(
        later, reservations={u: h for u, h in view.reservations.items() if u != "spread-worker-0"}
    )
    assert ExtenderRules(bound, guard).passes("spread-worker-1", names)[0] == ["n0", "n2"], "n1 is in use now"
    much_later = replace(view, snapshot=replace(view.snapshot, now=NOW + 3.0))
    assert ExtenderRules(much_later, guard).passes("spread-worker-1", names)[0] == names


def test_a_scored_pod_stays_off_nodes_that_its_selector_or_a_refusal_rules_out() -> None:
    nodes = [node(f"n{i}", labels={"gpu": "h100" if i else "a100"}) for i in range(4)]
    grants = asks(8, selector=(("gpu", "h100"),))
    before = snapshot(
        nodes,
        jobs=[job("train", worker=1, shape=grants, scored=SCORED)],
        node_backoffs={("train", "worker"): {"n2": 99_999.0}},
    )
    assert ExtenderRules(viewed(before)).passes("train-worker-0", ALL) == (["n1", "n3"], NO_ROOM)


def test_a_scored_gang_in_one_rack_stays_in_the_rack_of_its_holds() -> None:
    before = snapshot(racks=2, jobs=[job("train", worker=2, gpus=4, scored=SCORED, topology_required=RACK)])
    passed, _ = ExtenderRules(viewed(before)).passes("train-worker-0", ALL)
    assert passed in (["n0", "n1"], ["n2", "n3"])


def test_two_score_plugins_rank_the_same_nodes_differently() -> None:
    jobs = [job("other", worker=1, gpus=2, on=["n2"]), job("train", worker=1, gpus=1, scored=SCORED)]
    before = snapshot(jobs=jobs)
    apart = ExtenderRules(viewed(before, Profile(scores=((Gang(), 1.0),))))
    together = ExtenderRules(viewed(before, Profile(scores=((GangPack(), 1.0),))))
    assert apart.scores("train-worker-0", ALL) == [10, 10, 0, 10]
    packed = together.scores("train-worker-0", ["n2", "n3", "nowhere"])
    assert packed[0] > packed[1] >= packed[2] == 0


def test_a_pods_own_place_is_given_back_before_its_nodes_are_scored() -> None:
    before = snapshot(nodes=2, jobs=[job("train", worker=1, gpus=4, scored=SCORED)])
    first, second = ExtenderRules(viewed(before)).scores("train-worker-0", ["n0", "n1"])
    assert first == second


def test_the_pinned_node_scores_ten() -> None:
    guard = ExtenderRules(viewed(snapshot(jobs=[job("train", worker=1)])))
    assert guard.scores("train-worker-0", ["n1", "n0"]) == [0, 10]


@pytest.mark.parametrize(
    ("victims", "spared"),
    [
        ({"n0": ["train-worker-0"]}, []),
        ({"n0": ["elastic-worker-2"]}, ["n0"]),
        ({"n0": ["elastic-worker-1", "elastic-worker-2"]}, []),
        ({"n0": ["of-others", "and-more"], "n1": ["train-worker-1", "of-others"]}, ["n0"]),
        ({"n0": []}, ["n0"]),
        ({"n0": ["bare-worker-1"]}, []),
    ],
)
def test_preemption_is_vetoed_where_a_gang_would_fall_below_its_minimum(
    victims: dict[str, list[str]], spared: list[str]
) -> None:
    jobs = [
        job("train", worker=2, on=["n0", "n1"]),
        job("elastic", worker=3, least=2, on=["n0", "n0", "n0"]),
        job("bare", worker=2, least=1, on=["n0", "n0"], evictable=False),
    ]
    assert ExtenderRules(viewed(snapshot(jobs=jobs), FIFO)).spared(victims) == spared


def test_unknown_nodes_are_named() -> None:
    assert ExtenderRules(viewed(snapshot())).unknown(["n1", "x"]) == ["x"]
