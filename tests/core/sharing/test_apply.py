# Over 300 lines: shares on nodes, growing, shrinking and rounds are tried on the same made-up clusters.
# ruff: noqa: ARG002 - plugins take what their point gives them
"""Shares on nodes: shrink, start, grow, place again, share a GPU, move; and what is given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.points import Estimation
from muster.types import (
    GPU_MEMORY,
    PRODUCT,
    EndReason,
    Grant,
    Grants,
    Job,
    JobKey,
    Move,
    Plan,
    Reason,
    Report,
    Reservation,
    SharingSnapshot,
    Snapshot,
    State,
    Table,
)
from tests.scenario import FIFO, NOW, cluster, job, key, node, plan, role, said, snapshot, starts


@dataclass(frozen=True)
class Granting:
    """A Share plugin that grants what the scenario says."""

    replicas: Mapping[str, int]
    wants: Mapping[str, Grant] = field(default_factory=dict)
    whole: bool = False

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        rows = {k.name: row for k, row in snapshot.table.row.items()}
        numbers = shares.replicas.copy()
        for name, count in self.replicas.items():
            numbers[rows[name]] = count
        return Grants(numbers, {rows[n]: w for n, w in self.wants.items()}, whole=self.whole)


@dataclass(frozen=True)
class Kept:
    """A Share plugin that changes nothing, and remembers the table."""

    seen: list[Table] = field(default_factory=list)

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        self.seen.append(snapshot.table)
        return shares


def shared(before: Snapshot, replicas: Mapping[str, int], **changes: Any) -> Plan:
    wants, whole = changes.pop("wants", {}), changes.pop("whole", False)
    return plan(before, FIFO, shares=(Granting(replicas, wants, whole),), **changes)


def leaves(after: Plan) -> dict[str, list[str]]:
    """Names of the replicas that leave while their job goes on."""
    result: dict[str, list[str]] = {}
    for shrink in after.shrinks:
        result.setdefault(shrink.job.name, []).append(shrink.pod)
    return result


def later(after: Plan) -> dict[str, dict[str, int]]:
    return {k.name: dict(Counter(h.node for h in reservations)) for k, reservations in after.later.items()}


def elastic(
    name: str, *, most: int = 8, on: Sequence[str] = (), index: int | None = None, **words: Any
) -> Job:
    """A job of 1 to `most` single-GPU workers, all of which exist; its replicas have no index."""
    made = job(name, worker=most, gpus=1, least=1, most=most, on=on, **words)
    if index is not None:
        return made
    roles = tuple(replace(r, members=tuple(replace(m, index=-1) for m in r.members)) for r in made.roles)
    return replace(made, roles=roles)


# ---- what is granted ----


def test_a_job_starts_with_its_share() -> None:
    after = shared(snapshot(nodes=1, gpus=8, jobs=[elastic("a"), elastic("b")]), {"a": 5, "b": 3})
    assert starts(after) == {"a": {"n0": 5}, "b": {"n0": 3}}
    assert after.shares == {key("a"): 5, key("b"): 3}


def test_a_job_without_a_share_waits_and_says_so() -> None:
    after = shared(snapshot(nodes=1, jobs=[elastic("a"), elastic("b")]), {"a": 8, "b": 0})
    assert said(after)["b"] == "Waiting Share: its share is 0: GPUs that would take it go to others first"
    assert [k.name for k in after.order] == ["b"]


def test_a_running_job_grows_to_its_share_and_not_beyond() -> None:
    after = shared(snapshot(nodes=1, jobs=[elastic("a", on=["n0"])]), {"a": 2})
    assert starts(after) == {"a": {"n0": 1}}


def test_shares_beyond_capacity_are_cut_in_order_of_submission() -> None:
    after = shared(snapshot(nodes=1, gpus=8, jobs=[elastic("a"), elastic("b")]), {"a": 6, "b": 6})
    assert starts(after) == {"a": {"n0": 6}}
    assert "shares of 12 GPUs for 8: the last in the queue wait" in after.plugin_errors


def test_a_share_outside_the_jobs_bounds_is_clipped() -> None:
    jobs = [elastic("a", most=2), job("b", worker=4, gpus=1, least=4)]
    after = shared(snapshot(nodes=1, gpus=8, jobs=jobs), {"a": 6, "b": 2})
    assert starts(after) == {"a": {"n0": 2}}
    assert "shares of 2 jobs were outside min..max, clipped" in after.plugin_errors


def test_a_job_that_lost_a_replica_and_finds_no_place_for_it_may_go_on_as_it_is() -> None:
    jobs = [elastic("a", most=7, on=["n0"] * 7), job("b", worker=2, gpus=1, least=2, most=2, on=["n0"])]
    after = shared(snapshot(nodes=1, gpus=8, jobs=jobs), {"a": 7, "b": 1})
    assert (after.plugin_errors, after.shrinks, after.preempted) == ((), (), {})
    assert after.statuses[key("b")].state is State.STARTING


def test_a_job_that_was_scaled_down_counts_as_at_its_most_and_is_cut_to_it() -> None:
    jobs = [job("a", roles=[role("worker", 4, job="a", gpus=1, least=1, most=2, on=["n0"] * 4)])]
    after = plan(snapshot(nodes=1, gpus=8, jobs=jobs), FIFO, shares=(Kept(),))
    assert after.plugin_errors == ()
    assert len(leaves(after)["a"]) == 2


def test_plugins_see_no_size_that_does_not_fit() -> None:
    jobs = [job("a", worker=8, gpus=1, least=1, most=8, sizes=(1, 2, 4, 8))]
    seen: list[Table] = []
    plan(snapshot(nodes=1, gpus=4, jobs=jobs), FIFO, shares=(Kept(seen),))
    assert [(table.sizes, table.max.tolist()) for table in seen] == [({0: (1, 2, 4)}, [4])]


def test_allowed_sizes_hold_whatever_a_plugin_says() -> None:
    jobs = [job("a", worker=8, gpus=1, least=1, most=8, sizes=(1, 2, 4, 8))]
    assert starts(shared(snapshot(nodes=1, gpus=8, jobs=jobs), {"a": 7})) == {"a": {"n0": 4}}


# ---- the very nodes ----


def test_a_job_starts_on_the_nodes_that_its_grant_names_and_on_others_where_one_is_not_free() -> None:
    named = {"a": Grant(nodes=("n2", "n1", "n2"))}
    after = shared(snapshot(nodes=3, gpus=4, jobs=[elastic("a")]), {"a": 3}, wants=named)
    assert starts(after) == {"a": {"n2": 2, "n1": 1}}
    assert after.grants[key("a")].nodes == ("n2", "n1", "n2")
    full = snapshot(nodes=3, gpus=4, jobs=[elastic("b", on=["n2"] * 3), elastic("a")])
    after = shared(full, {"a": 3, "b": 3}, wants=named)
    assert starts(after) == {"a": {"n0": 3}}
    assert after.grants[key("a")].nodes == (), "it is not to move once one of them is free"


def test_a_running_job_leaves_only_the_nodes_that_its_grant_does_not_name() -> None:
    before = snapshot(nodes=3, gpus=4, jobs=[elastic("a", on=["n0", "n0", "n1"])])
    grown = shared(before, {"a": 4}, wants={"a": Grant(nodes=("n0", "n0", "n1", "n2"))})
    assert (starts(grown), leaves(grown)) == ({"a": {"n2": 1}}, {})
    moved = shared(before, {"a": 3}, wants={"a": Grant(nodes=("n0", "n0", "n2"))})
    assert (starts(moved), leaves(moved)) == ({"a": {"n2": 1}}, {"a": ["a-worker-2"]})
    same = shared(before, {"a": 3}, wants={"a": Grant(nodes=("n1", "n0", "n0"))})
    assert (starts(same), leaves(same)) == ({}, {})
    less = shared(before, {"a": 1}, wants={"a": Grant(nodes=("n1",))})
    assert (starts(less), leaves(less)) == ({}, {"a": ["a-worker-0", "a-worker-1"]})


def test_two_jobs_change_places_where_each_is_granted_the_others() -> None:
    jobs = [elastic("a", most=4, on=["n0"] * 4), elastic("b", most=4, on=["n1"] * 4)]
    wants = {"a": Grant(nodes=("n1",) * 4), "b": Grant(nodes=("n0",) * 4)}
    after = shared(snapshot(nodes=2, gpus=4, jobs=jobs), {"a": 4, "b": 4}, wants=wants)
    assert later(after) == {"a": {"n1": 4}, "b": {"n0": 4}}
    assert sorted(map(len, leaves(after).values())) == [4, 4]


# ---- shrink ----


def test_an_indexed_role_shrinks_from_its_highest_index() -> None:
    before = snapshot(nodes=2, gpus=4, jobs=[elastic("a", on=["n0", "n1", "n1", "n1"], index=0)])
    assert leaves(shared(before, {"a": 2})) == {"a": ["a-worker-3", "a-worker-2"]}


def test_without_indexes_the_replicas_farthest_from_the_rest_leave() -> None:
    before = snapshot(nodes=2, gpus=4, jobs=[elastic("a", on=["n0", "n1", "n1", "n1"])])
    assert leaves(shared(before, {"a": 2})) == {"a": ["a-worker-0", "a-worker-3"]}


def test_what_a_shrink_frees_is_planned_for_the_next_job_but_taken_only_later() -> None:
    before = snapshot(nodes=1, gpus=8, jobs=[elastic("a", on=["n0"] * 8), elastic("b")])
    after = shared(before, {"a": 5, "b": 3})
    assert len(leaves(after)["a"]) == 3
    assert starts(after) == {}
    assert later(after) == {"b": {"n0": 3}}


def test_a_job_whose_share_is_zero_goes_back_whole() -> None:
    before = snapshot(nodes=1, gpus=8, jobs=[elastic("a", on=["n0"] * 8), elastic("b")])
    after = shared(before, {"a": 0, "b": 8})
    assert after.preempted == {key("a"): "its share is 0"}
    assert leaves(after) == {}
    assert later(after) == {"b": {"n0": 8}}


def test_what_a_job_on_its_way_back_still_uses_counts_as_coming_so_nobody_else_gives_for_it() -> None:
    back = replace(
        elastic("b", on=["n0"] * 4), preempted="its share is 0"
    )  # not one eviction is answered yet
    jobs = [elastic("a", on=["n0"] * 4), back, elastic("c")]
    after = shared(snapshot(nodes=1, gpus=8, jobs=jobs), {"a": 4, "c": 4})
    assert (leaves(after), after.plugin_errors) == ({}, ())
    assert after.shares[key("c")] == 4
    assert later(after) == {"c": {"n0": 4}}


def test_a_job_of_higher_priority_is_planned_in_the_place_of_one_of_lower() -> None:
    jobs = [
        elastic("a", on=["n0"] * 4),
        elastic("b", on=["n0"] * 4),
        job("urgent", worker=4, gpus=1, priority=9),
    ]
    before = snapshot(nodes=1, gpus=8, jobs=jobs)
    shrunk = shared(before, {"a": 4, "b": 4, "urgent": 0})
    assert leaves(shrunk) == {"a": ["a-worker-3"], "b": ["b-worker-3", "b-worker-2", "b-worker-1"]}
    assert later(shrunk) == {"urgent": {"n0": 4}}
    whole = [replace(each, roles=tuple(replace(r, min=4) for r in each.roles)) for each in jobs]
    before = snapshot(nodes=1, gpus=8, jobs=whole)
    assert shared(before, {"a": 4, "b": 4, "urgent": 0}).shrinks == ()
    stopped = shared(before, {"a": 4, "b": 4, "urgent": 0}, preemption=True)
    assert stopped.preempted == {key("b"): "GPUs go to a job of higher priority first"}


def test_what_was_shrunk_for_a_job_that_finds_no_place_is_given_back() -> None:
    # b needs both of its GPUs on one node
    two = job("b", worker=1, gpus=2)
    jobs = [elastic("a", most=4, on=["n0", "n1"]), elastic("c", most=4, on=["n0", "n1"]), two]
    after = shared(snapshot(nodes=2, gpus=2, jobs=jobs), {"a": 1, "c": 1, "b": 1})
    assert leaves(after) == {"a": ["a-worker-0"], "c": ["c-worker-0"]}  # both on n0: b fits there
    assert later(after) == {"b": {"n0": 1}}
    # the highest indexes would free one GPU on each node, which helps nobody
    jobs = [
        elastic("a", most=4, on=["n0", "n1"], index=0),
        elastic("c", most=4, on=["n1", "n0"], index=0),
        two,
    ]
    after = shared(snapshot(nodes=2, gpus=2, jobs=jobs), {"a": 1, "c": 1, "b": 1})
    assert (leaves(after), later(after)) == ({}, {})
    assert after.statuses[key("b")].reason is Reason.RESOURCES


def test_a_job_that_nothing_re_creates_keeps_what_it_has() -> None:
    bare = job("bare", worker=4, gpus=1, least=1, most=4, on=["n0"] * 4, evictable=False)
    after = shared(snapshot(nodes=1, gpus=8, jobs=[bare, elastic("b")]), {"b": 8})
    assert after.preempted == {}
    assert starts(after) == {"b": {"n0": 4}}
    assert after.shares == {key("b"): 4}


# ---- wants beside a number ----


def products() -> list[Any]:
    return [
        node("a0", 4, labels={PRODUCT: "V100", GPU_MEMORY: "16000"}),
        node("k0", 4, labels={PRODUCT: "K80", GPU_MEMORY: "12000"}),
    ]


def test_a_product_is_honoured_at_a_start_and_changing_it_places_the_job_again() -> None:
    after = shared(snapshot(products(), jobs=[elastic("a")]), {"a": 2}, wants={"a": Grant(product="K80")})
    assert starts(after) == {"a": {"k0": 2}}
    before = snapshot(products(), jobs=[elastic("a", on=["k0", "k0"])])
    after = shared(before, {"a": 2}, wants={"a": Grant(product="V100")})
    assert leaves(after) == {"a": ["a-worker-0", "a-worker-1"]}
    assert starts(after) == {"a": {"a0": 2}}
    assert after.grants == {key("a"): Grant(product="V100")}


def test_a_product_that_does_not_exist_leaves_a_running_job_where_it_is() -> None:
    before = snapshot(products(), jobs=[elastic("a", on=["k0", "k0"])])
    after = shared(before, {"a": 2}, wants={"a": Grant(product="H200")})
    assert (leaves(after), later(after), after.preempted) == ({}, {}, {})


def test_at_most_one_node_means_the_tightest_that_takes_it_whole() -> None:
    nodes = [node("n0", 8), node("n1", 4), node("n2", 2)]
    after = shared(snapshot(nodes, jobs=[elastic("a")]), {"a": 3}, wants={"a": Grant(max_nodes=1)})
    assert starts(after) == {"a": {"n1": 3}}


def test_a_job_kept_to_one_node_moves_when_it_outgrows_it() -> None:
    nodes = [node("n0", 2), node("n1", 4)]
    before = snapshot(nodes, jobs=[elastic("a", on=["n0", "n0"])])
    after = shared(before, {"a": 4}, wants={"a": Grant(max_nodes=1)})
    assert leaves(after) == {"a": ["a-worker-0", "a-worker-1"]}
    assert starts(after) == {"a": {"n1": 4}}


def test_a_job_placed_again_keeps_the_replicas_that_are_where_they_are_wanted() -> None:
    before = snapshot(nodes=2, gpus=4, jobs=[elastic("a", on=["n0", "n1"])])
    after = shared(before, {"a": 4}, wants={"a": Grant(restart=True)})
    assert leaves(after) == {"a": ["a-worker-1"]}
    assert starts(after) == {"a": {"n0": 3}}


@pytest.mark.parametrize("first", ["n0", "n1"])
def test_a_job_kept_to_one_node_shrinks_to_it_from_the_highest_index(first: str) -> None:
    other = {"n0": "n1", "n1": "n0"}[first]
    spread = elastic("a", on=[first] * 4 + [other] * 4, index=0)
    after = shared(snapshot(nodes=2, gpus=4, jobs=[spread]), {"a": 4}, wants={"a": Grant(max_nodes=1)})
    assert sorted(leaves(after)["a"]) == [f"a-worker-{index}" for index in range(4, 8)]
    assert {shrink.reason for shrink in after.shrinks} == {EndReason.SHARE}
    assert (starts(after), later(after)) == ({}, {})


@pytest.mark.parametrize(("waits", "gone"), [(0, [2]), (1, [2]), (2, [])])
def test_a_share_that_falls_takes_the_highest_index_and_not_the_place_of_a_lower_one(
    waits: int, gone: list[int]
) -> None:
    """Its pod is there, behind the gate; a place that nobody has yet comes before both."""
    ran = [index for index in range(3) if index != waits]
    members = elastic("a", most=3, on=["n0", "n0"], index=0).roles[0].members
    turned = [replace(m, index=index) for m, index in zip(members, [*ran, waits], strict=True)]
    turned = [replace(m, uid=f"a-worker-{m.index}", pod=f"a-worker-{m.index}") for m in turned]
    ordered = role("worker", 3, least=1)
    a = job("a", roles=[replace(ordered, members=tuple(sorted(turned, key=lambda m: m.index)))])
    held = (Reservation("worker", "n1", f"a-worker-{waits}", f"a-worker-{waits}"),)
    for places in (held, (*held, Reservation("worker", "n1"))):
        after = shared(snapshot(nodes=2, gpus=4, jobs=[replace(a, reservations=places)]), {"a": 2})
        assert leaves(after) == ({"a": [f"a-worker-{index}" for index in gone]} if gone else {})
        assert starts(after) == ({"a": {"n1": 1}} if gone else {})


@pytest.mark.parametrize("grant", [Grant(max_nodes=1), Grant(nodes=("n1",) * 4), Grant(product="V100")])
def test_replicas_that_leave_already_are_no_reason_to_place_the_others_again(grant: Grant) -> None:
    nodes = [node("n0", 8, labels={PRODUCT: "K80"}), node("n1", 8, labels={PRODUCT: "V100"})]
    shrunk = job("a", worker=8, gpus=1, least=1, most=8, on=["n1"] * 4, ending=["n0"] * 4)
    after = shared(snapshot(nodes, jobs=[shrunk]), {"a": 4}, wants={"a": grant})
    assert (leaves(after), starts(after), later(after)) == ({}, {}, {})


def test_of_several_jobs_in_one_role_each_keeps_its_lowest_indexes() -> None:
    names = [
        ("A", "n0"),
        ("A", "n0"),
        ("A", "n1"),
        ("A", "n1"),
        ("B", "n1"),
        ("B", "n1"),
        ("B", "n0"),
        ("B", "n0"),
    ]
    members = [
        replace(
            member,
            pod=f"{name}{number % 4}",
            uid=f"{name}{number % 4}",
            index=number % 4,
            revision=(name, ""),
        )
        for number, (member, (name, _)) in enumerate(
            zip(role("worker", 8, on=[at for _, at in names]).members, names, strict=True)
        )
    ]
    both = job("a", roles=[replace(role("worker", 8, least=1), members=tuple(members))])
    after = shared(snapshot(nodes=2, gpus=8, jobs=[both]), {"a": 4}, wants={"a": Grant(nodes=("n1",) * 4)})
    assert sorted(leaves(after)["a"]) == ["A0", "A1", "A2", "A3", "B2", "B3"]


def test_who_has_another_gate_is_not_among_those_that_run_afterwards() -> None:
    first, second, held = role("worker", 3, on=["n0", "n1"], held_back=1, job="a").members
    members = (replace(held, index=0), replace(first, index=1), replace(second, index=2))
    moved = job("a", roles=[replace(role("worker", 3, least=1), members=members)])
    after = shared(snapshot(nodes=2, gpus=8, jobs=[moved]), {"a": 2}, wants={"a": Grant(nodes=("n1",) * 2)})
    assert leaves(after) == {"a": [first.pod]}


def test_of_an_indexed_job_that_is_placed_again_those_stay_that_run_afterwards() -> None:
    """Its successPolicy and its rendezvous wait for index 0."""
    spread = elastic("a", on=["n0"] * 4 + ["n1"] * 4, index=0)
    after = shared(snapshot(nodes=2, gpus=4, jobs=[spread]), {"a": 4}, wants={"a": Grant(nodes=("n1",) * 4)})
    assert sorted(leaves(after)["a"]) == [f"a-worker-{index}" for index in range(8)]
    assert (starts(after), later(after)) == ({}, {"a": {"n1": 4}})


@given(
    on=st.lists(st.sampled_from(["n0", "n1", "n2"]), min_size=1, max_size=8),
    to=st.integers(1, 8),
    want=st.sampled_from(
        [Grant(), Grant(max_nodes=1), Grant(max_nodes=2), Grant(restart=True), Grant(nodes=("n2",) * 8)]
    ),
)
def test_whoever_stays_of_an_indexed_job_is_among_its_lowest_indexes(
    on: list[str], to: int, want: Grant
) -> None:
    named = replace(want, nodes=want.nodes[:to])
    before = snapshot(nodes=3, gpus=8, jobs=[elastic("a", on=on, index=0)])
    after = shared(before, {"a": to}, wants={"a": named})
    gone = set(leaves(after).get("a", []))
    stay = [index for index in range(len(on)) if f"a-worker-{index}" not in gone]
    places = len(stay) + sum(starts(after).get("a", {}).values()) + sum(later(after).get("a", {}).values())
    assert not after.preempted
    assert stay == [] or max(stay) < places


@pytest.mark.parametrize(
    ("resize", "want", "at_once"),
    [("restart", Grant(), 0), ("", Grant(restart=True), 0), ("", Grant(max_nodes=1), 2)],
)
def test_a_job_that_is_started_again_for_another_number_starts_on_all_its_places_or_none(
    resize: str, want: Grant, at_once: int
) -> None:
    """Two of six GPUs are free, the others are still used by it and by one that leaves."""
    a = elastic("a", on=["n0", "n0"], resize=resize)
    before = snapshot([node("n0", 6)], jobs=[a, elastic("b", on=["n0", "n0"])])
    after = shared(before, {"a": 6, "b": 0}, wants={"a": want})
    assert sum(starts(after).get("a", {}).values()) == at_once
    assert later(after)["a"]["n0"] + at_once + (2 - len(leaves(after).get("a", []))) == 6


def test_two_jobs_share_a_gpu_when_both_fit_its_memory() -> None:
    jobs = [job("a", worker=1, gpus=1, gpu_memory=9000), job("b", worker=1, gpus=1, gpu_memory=6000)]
    one = [node("n0", 1, labels={GPU_MEMORY: "16000"})]
    beside = {"b": Grant(beside=key("a"))}
    after = shared(snapshot(one, jobs=jobs), {"a": 1, "b": 1}, wants=beside)
    assert starts(after) == {"a": {"n0": 1}, "b": {"n0": 1}}
    small = [node("n0", 1, labels={GPU_MEMORY: "12000"})]
    after = shared(snapshot(small, jobs=jobs), {"a": 1, "b": 1}, wants=beside)
    assert starts(after) == {"a": {"n0": 1}}


def test_a_third_job_is_not_let_onto_a_shared_gpu() -> None:
    jobs = [job(name, worker=1, gpus=1) for name in "abc"]
    wants = {"b": Grant(beside=key("a")), "c": Grant(beside=key("a"))}
    after = shared(snapshot(1, 1, jobs=jobs), {"a": 1, "b": 1, "c": 1}, wants=wants)
    assert starts(after) == {"a": {"n0": 1}, "b": {"n0": 1}}


def test_a_rigid_grant_that_finds_no_place_whole_waits() -> None:
    nodes = [node("n0", 2), node("n1", 2)]
    jobs = [elastic("a", most=4)]
    grant = {"a": Grant(max_nodes=1)}
    assert starts(shared(snapshot(nodes, jobs=jobs), {"a": 3}, wants=grant)) == {"a": {"n0": 2}}
    assert starts(shared(snapshot(nodes, jobs=jobs), {"a": 3}, wants=grant, whole=True)) == {}


# ---- moves, rounds, wakes, memory ----


@dataclass(frozen=True)
class MoveTo:
    node: str

    def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]:
        return [Move(k, to=(self.node,), why="it is moved") for k in snapshot.jobs]


def test_a_move_takes_its_job_to_the_node_that_is_named() -> None:
    before = snapshot(nodes=2, gpus=4, jobs=[elastic("a", on=["n0"])])
    after = plan(before, rebalance=(MoveTo("n1"),))
    assert (leaves(after), after.reservations[key("a")][0].node) == ({"a": ["a-worker-0"]}, "n1")


def test_a_move_of_a_rigid_job_is_dropped_unless_its_owner_says_that_it_can_be_restarted() -> None:
    def moved(**words: str) -> dict[str, list[str]]:
        rigid = job("a", worker=1, gpus=1, on=["n0"], **words)
        return leaves(plan(snapshot(nodes=2, gpus=4, jobs=[rigid]), rebalance=(MoveTo("n1"),)))

    assert moved() == {}
    assert moved(resize="restart") == {"a": ["a-worker-0"]}


def test_a_move_without_room_is_dropped() -> None:
    jobs = [elastic("a", on=["n0"]), job("full", worker=4, gpus=1, on=["n1"] * 4, evictable=False)]
    after = plan(snapshot(nodes=2, gpus=4, jobs=jobs), rebalance=(MoveTo("n1"),))
    assert (leaves(after), later(after)) == ({}, {})


def test_between_rounds_nobody_changes_and_the_next_round_wakes_the_planner() -> None:
    before = snapshot(nodes=1, jobs=[elastic("a", on=["n0"]), elastic("b")], now=NOW + 1.0)
    after = shared(before, {"a": 4, "b": 4}, round=60.0)
    assert (starts(after), leaves(after), after.requeue_at) == ({}, {}, 10_020.0)
    at = snapshot(nodes=1, jobs=[elastic("a", on=["n0"]), elastic("b")], now=10_020.0)
    assert starts(shared(at, {"a": 4, "b": 4}, round=60.0)) == {"a": {"n0": 3}, "b": {"n0": 4}}


def test_a_job_that_changes_only_at_a_boundary_keeps_what_it_has_until_it_reports_one() -> None:
    busy = elastic("a", on=["n0"] * 4, resize_at="boundary")
    before = snapshot(nodes=1, gpus=8, jobs=[busy, elastic("b")])
    after = shared(before, {"a": 1, "b": 7})
    assert leaves(after) == {}
    assert after.shares == {key("a"): 4, key("b"): 0}  # 7 more than what is left: it waits for the boundary
    there = replace(busy, report=Report(boundary=True))
    after = shared(snapshot(nodes=1, gpus=8, jobs=[there, elastic("b")]), {"a": 1, "b": 7})
    assert len(leaves(after)["a"]) == 3
    assert after.shares == {key("a"): 1, key("b"): 7}


@dataclass(frozen=True)
class Counts:
    """An Observe and Wake plugin."""

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        seen = job.memory.get("counts", {"cycles": 0})
        assert isinstance(seen, Mapping)
        return {"cycles": seen["cycles"] + 1}

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        return snapshot.now + 30.0

    def share(self, snapshot: SharingSnapshot) -> Grants:
        cycles = [snapshot.jobs[k].memory["counts"]["cycles"] for k in snapshot.table.keys]  # type: ignore[index]
        return Grants(np.array(cycles, dtype=np.int64))


def test_what_a_plugin_observes_is_there_for_it_in_the_same_cycle_and_kept() -> None:
    counts = Counts()
    before = snapshot(nodes=1, jobs=[replace(elastic("a"), memory={"counts": {"cycles": 2}})])
    after = plan(before, shares=(counts,), named=(("counts", counts),))
    assert starts(after) == {"a": {"n0": 3}}
    assert after.memory == {key("a"): {"counts": {"cycles": 3}}}
    assert after.requeue_at == NOW + 30.0


@dataclass(frozen=True)
class Twice:
    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:
        return Estimation(remaining=120.0, speeds=(0.0, 1.0, 1.5))


@dataclass
class Looks:
    seen: list[Any]

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        table = snapshot.table
        self.seen.append((table.remaining.tolist(), table.curves[table.curve[0], :4].tolist(), table.gpus))
        return shares


def test_share_plugins_see_the_profiles_estimate_and_the_capacity() -> None:
    looks = Looks([])
    jobs = [elastic("a", on=["n0"]), job("bare", worker=2, gpus=1, on=["n0"] * 2, evictable=False)]
    plan(snapshot(nodes=1, gpus=8, jobs=jobs), shares=(looks,), estimate=Twice())
    assert looks.seen == [([120.0], [0.0, 1.0, 1.5, 1.5], 6)]


# ---- whatever a plugin says ----


@given(data=st.data())
def test_no_share_over_commits_a_node_or_leaves_a_gang_below_its_minimum(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 4))
    free = {f"n{i}": 4 for i in range(nodes)}
    jobs = []
    for i in range(data.draw(st.integers(1, 5))):
        least = data.draw(st.integers(1, 3))
        most = data.draw(st.integers(least, 8))
        capacity = sum(free.values())
        have = (
            data.draw(st.sampled_from([0, *range(least, min(most, capacity) + 1)]))
            if capacity >= least
            else 0
        )
        on = []
        for _ in range(have):
            where = data.draw(st.sampled_from(sorted(n for n in free if free[n])))
            free[where] -= 1
            on.append(where)
        jobs.append(job(f"j{i}", roles=[role("worker", most, job=f"j{i}", least=least, most=most, on=on)]))
    before = snapshot(cluster(nodes, 4), jobs=jobs)
    grants = {j.key.name: data.draw(st.integers(0, 9)) for j in jobs}
    again = {j.key.name: Grant(restart=True) for j in jobs if data.draw(st.booleans())}
    after = shared(before, grants, wants=again, whole=data.draw(st.booleans()))
    used: Counter[str] = Counter()
    now: Counter[str] = Counter(m.node for j in jobs for r in j.roles for m in r.members if m.node)
    for j in jobs:
        gone = {s.uid for s in after.shrinks if s.job == j.key}
        stay = [
            m.node
            for m in j.roles[0].members
            if m.node and m.uid not in gone and j.key not in after.preempted
        ]
        taken = [h.node for h in after.reservations.get(j.key, ())]
        now.update(taken)
        total = stay + taken + [h.node for h in after.later.get(j.key, ())]
        used.update(total)
        assert len(total) == 0 or j.roles[0].min <= len(total) <= j.roles[0].max
        assert len(total) <= max(grants[j.key.name], len(stay)) or grants[j.key.name] < j.roles[0].min
    assert all(count <= 4 for count in used.values()), "over-committed once all have left"
    assert all(count <= 4 for count in now.values()), "over-committed at once"


@pytest.mark.parametrize("answer", ["floats", "short", "raises"])
def test_where_the_chain_answers_nonsense_jobs_start_and_grow_as_without_shares(answer: str) -> None:
    class Wrong:
        def share(self, snapshot: SharingSnapshot) -> Grants:
            if answer == "floats":
                return Grants(np.array([1.5]))  # type: ignore[arg-type]
            if answer == "short":
                return Grants(np.array([], dtype=np.int64))
            raise RuntimeError("share")

    after = plan(snapshot(nodes=1, jobs=[elastic("a", on=["n0"])]), shares=(Wrong(),))
    assert (starts(after), leaves(after)) == ({"a": {"n0": 7}}, {})
    assert len(after.plugin_errors) == 1
    assert after.plugin_errors[0].startswith("Wrong.share: ")


def test_a_job_without_gpus_is_planned_as_without_shares() -> None:
    before = snapshot(nodes=1, jobs=[job("cpu", worker=2, gpus=0), elastic("a")])
    after = shared(before, {"a": 3})
    assert starts(after) == {"cpu": {"n0": 2}, "a": {"n0": 3}}
    assert JobKey("team", "cpu") not in after.shares


def test_what_is_free_of_a_place_that_another_leaves_is_nobody_elses() -> None:
    """Found in the simulator: `moved` needs two GPUs of n0, one of which `a` leaves; `b` may not grow there."""

    class Swap:
        def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]:
            return [Move(key("a"), to=("n2",)), Move(key("moved"), to=("n0",))]

    jobs = [
        job("a", worker=1, gpus=1, on=["n0"], resize="restart"),
        job("rest", worker=2, gpus=1, on=["n0"] * 2, evictable=False),
        job("moved", worker=1, gpus=2, on=["n1"], resize="restart"),
        job("wide", worker=1, gpus=2, on=["n1"], evictable=False),
        job("b", worker=3, gpus=1, least=1, most=2, on=["n2"]),
        job("others", worker=2, gpus=1, on=["n2"] * 2, evictable=False),
    ]
    after = plan(snapshot(nodes=3, gpus=4, jobs=jobs), rebalance=(Swap(),))
    assert later(after) == {"moved": {"n0": 2}} or later(after) == {"moved": {"n0": 1}}
    assert starts(after) == {"a": {"n2": 1}}


def test_a_job_that_grows_in_two_steps_of_a_cycle_gets_no_more_than_its_share_and_its_nodes() -> None:
    """b is placed again on n1, so that a finds two nodes only for a part at first, and is asked again: n2, where the
    sixth would stand, is its third node."""
    before = snapshot(nodes=3, gpus=4, jobs=[elastic("a", on=["n1"]), elastic("b", on=["n0", "n2"])])
    wants = {"a": Grant(max_nodes=2), "b": Grant(max_nodes=1)}
    after = shared(before, {"a": 6, "b": 3}, wants=wants)
    held = Counter(m.node for m in before.jobs[key("a")].roles[0].on)
    leaving = sum(shrink.job == key("a") for shrink in after.shrinks)
    found = [*after.reservations.get(key("a"), ()), *after.later.get(key("a"), ())]
    assert held.total() - leaving + len(found) == 5 < after.shares[key("a")] == 6
    assert {*held, *(place.node for place in found)} == {"n0", "n1"}


def test_what_finds_no_place_whole_gets_one_of_the_parts_that_its_policy_names() -> None:
    """Seven find a place; network packing would make four of them again in the next cycle."""

    class Packed:
        def share(self, snapshot: SharingSnapshot) -> Grants:
            row = snapshot.table.row[key("a")]
            return Grants(np.array([8]), {row: Grant(max_nodes=2)}, parts={row: (1, 2, 4, 8)})

    rest = job("rest", worker=2, gpus=1, on=["n1", "n2"], evictable=False)
    grows = plan(snapshot(nodes=3, gpus=4, jobs=[elastic("a", on=["n0"]), rest]), shares=(Packed(),))
    assert starts(grows) == {"a": {"n0": 3}}
    begins = plan(snapshot(nodes=3, gpus=4, jobs=[elastic("a"), rest]), shares=(Packed(),))
    assert starts(begins) == {"a": {"n0": 4}}
