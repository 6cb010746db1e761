"""An index 0 that waits while higher ones run has the place of the highest: when, and when nobody leaves for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from muster.types import EndReason, Grant, Job, Member, Phase, Snapshot
from tests.core.sharing.test_apply import later, leaves, shared
from tests.scenario import job, key, node, role, snapshot, starts


def headless(*at: str, most: int = 6, **words: Any) -> Job:
    """A job whose index 0 waits, and whose next ones run on these nodes; the others wait, too."""
    least = words.pop("least", 1)
    members = role("worker", most, on=at, job="a").members
    ran = len(at)
    turned = (members[ran], *members[:ran], *members[ran + 1 :])
    renumbered = tuple(
        replace(m, index=i, uid=f"a-worker-{i}", pod=f"a-worker-{i}") for i, m in enumerate(turned)
    )
    return job("a", roles=[replace(role("worker", most, least=least), members=renumbered)], **words)


def changed(before: Job, number: int, **changes: Any) -> Job:
    """With another member of this number."""
    (one,) = before.roles
    members: Sequence[Member] = [replace(m, **changes) if m.index == number else m for m in one.members]
    return replace(before, roles=(replace(one, members=tuple(members)),))


def on_two(a: Job) -> Snapshot:
    return snapshot(nodes=2, gpus=4, jobs=[a])


@pytest.mark.parametrize("at", [("n1",), ("n0", "n1"), ("n1", "n0", "n1")])
def test_the_highest_index_leaves_and_its_place_is_kept(at: tuple[str, ...]) -> None:
    after = shared(on_two(headless(*at)), {"a": len(at)})
    assert leaves(after) == {"a": [f"a-worker-{len(at)}"]}
    assert (starts(after), later(after)) == ({}, {"a": {at[-1]: 1}})
    assert [(shrink.cause, shrink.reason) for shrink in after.shrinks] == [
        ("index 0 runs in its place", EndReason.MOVE)
    ]
    assert after.shares == {key("a"): len(at)}


def test_nobody_leaves_where_the_share_has_a_place_for_it() -> None:
    after = shared(on_two(headless("n0", "n1")), {"a": 3})
    assert leaves(after) == {}
    assert [h.pod for h in after.reservations[key("a")]] == ["a-worker-0"]


def test_a_share_that_finds_no_more_room_has_the_highest_leave_for_it() -> None:
    full = snapshot([node("n0", 2)], jobs=[headless("n0", "n0")])
    after = shared(full, {"a": 3})
    assert (leaves(after), later(after)) == ({"a": ["a-worker-2"]}, {"a": {"n0": 1}})


def test_a_share_that_falls_takes_the_highest_index_and_not_the_place_of_index_0() -> None:
    waits = headless("n1", held=[("worker", "n0", 0)])
    after = shared(on_two(replace(waits, reservations=waits.reservations[:1])), {"a": 1})
    assert leaves(after) == {"a": ["a-worker-1"]}
    assert [(h.pod, h.node) for h in after.reservations[key("a")]] == [("a-worker-0", "n0")]


def test_a_share_that_falls_takes_a_place_that_nobody_has_yet_first() -> None:
    """Who is to have it may never come."""
    without = headless("n1", "n1", held=[("worker", "n0")])
    (one,) = without.roles
    gone = replace(without, roles=(replace(one, members=one.members[1:]),), returning=True, expects=True)
    after = shared(on_two(gone), {"a": 2})
    assert (leaves(after), starts(after)) == ({}, {})


NOT_THERE = {
    "it has another gate": lambda a: changed(a, 0, phase=Phase.HELD),
    "it has succeeded, or is not made again": lambda a: replace(
        a, roles=(replace(a.roles[0], members=a.roles[0].members[1:], ended=1),)
    ),
    "it is on its way to its node": lambda a: changed(a, 0, phase=Phase.UNGATED, pinned=True, node="n0"),
    "its last pod is ending and the next is not there": lambda a: changed(
        a, 0, phase=Phase.ENDING, node="n0"
    ),
}
NOT_NOW = {
    "a higher one is on its way out": lambda a: changed(a, 2, phase=Phase.ENDING),
    "a budget refuses": lambda a: replace(a, shrink_blocked_by="a PodDisruptionBudget"),
    "nobody would make the higher one again": lambda a: changed(a, 1, evictable=False),
}


@pytest.mark.parametrize("what", [*NOT_THERE, *NOT_NOW])
def test_nobody_leaves_for_an_index_0_while(what: str) -> None:
    number = 2 if what == "a higher one is on its way out" else 1
    waits = (NOT_THERE | NOT_NOW)[what](headless(*["n1"] * number))
    after = shared(snapshot([node("n0", 1), node("n1", number)], jobs=[waits]), {"a": waits.bound})
    assert leaves(after) == {}


def test_a_replica_on_a_node_that_takes_nobody_stays_and_the_next_lower_leaves() -> None:
    nodes = [node("n0", 2), node("n1", 2, cordoned=True)]
    after = shared(snapshot(nodes, jobs=[headless("n0", "n0", "n1")]), {"a": 3})
    assert (leaves(after), later(after)) == ({"a": ["a-worker-2"]}, {"a": {"n0": 1}})
    alone = shared(snapshot(nodes, jobs=[headless("n1")]), {"a": 1}, wants={"a": Grant()})
    assert leaves(alone) == {}


def test_of_several_jobs_in_one_role_one_of_its_own_leaves() -> None:
    both = headless("n0", "n0", "n1", most=4)
    for number, (index, owner) in enumerate([(0, "A"), (1, "A"), (0, "B"), (1, "B")]):
        members = list(both.roles[0].members)
        members[number] = replace(members[number], index=index, revision=(owner, ""), pod=f"{owner}{index}")
        both = replace(both, roles=(replace(both.roles[0], members=tuple(members)),))
    ordered = tuple(sorted(both.roles[0].members, key=lambda m: m.index))
    both = replace(both, roles=(replace(both.roles[0], members=ordered),))
    assert leaves(shared(on_two(both), {"a": 3})) == {"a": ["A1"]}


def test_a_job_whose_replicas_have_no_index_is_left_alone() -> None:
    none = headless("n0", "n1")
    (one,) = none.roles
    plain = replace(none, roles=(replace(one, members=tuple(replace(m, index=-1) for m in one.members)),))
    assert leaves(shared(on_two(plain), {"a": 2})) == {}
