"""status.conditions: the table by state, and when the time of a transition changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.gang_object.conditions import LADDER, OF_REASON, OF_STATE, TYPES, plain, statuses, updated
from muster.types import Condition, Reason, State, Status, WriteGang
from tests.cluster_fake import FakeCluster, Muster

ROWS = {
    State.INCOMPLETE: "False False False False False False False",
    State.WAITING: "True False False False False False False",
    State.STARTING: "True False False False False False False",
    State.RUNNING: "True True True False False False False",
    State.RESIZING: "True True True True False False False",
    State.SUSPENDED: "False False False False True False False",
    State.FINISHED: "False False False False False True False",
    State.INVALID: "Unknown Unknown Unknown False False False True",
}


@pytest.mark.parametrize("state", State)
def test_each_state_has_its_conditions(state: State) -> None:
    assert TYPES == ("Whole", "Scheduled", "Running", "Resizing", "Suspended", "Finished", "Invalid")
    ordinary = [statuses(state, reason) for reason in Reason if (state, reason) not in OF_REASON]
    assert all(tuple(name for name, _ in found) == TYPES for found in ordinary)
    assert {" ".join(value for _, value in found) for found in ordinary} == {ROWS[state]}


@pytest.mark.parametrize(("state", "reason"), OF_REASON)
def test_a_reason_of_its_own_changes_rungs_only(state: State, reason: Reason) -> None:
    found = dict(statuses(state, reason))
    assert {name: found[name] for name in TYPES[3:]} == dict.fromkeys(TYPES[3:], "False")
    assert tuple(found[name] for name in LADDER) != OF_STATE[state]


@pytest.mark.parametrize("state", State)
def test_what_runs_is_scheduled_and_what_is_scheduled_is_whole(state: State) -> None:
    for reason in Reason:
        rungs = [dict(statuses(state, reason))[name] for name in LADDER]
        order = {"True": 2, "Unknown": 1, "False": 0}
        assert rungs == sorted(rungs, key=order.__getitem__, reverse=True), reason


def test_the_readme_has_the_table_as_it_is() -> None:
    lines = ["| state | " + " | ".join(LADDER) + " |", "|---" * (len(LADDER) + 1) + "|"]
    lines += [f"| {state} | {' | '.join(rungs)} |" for state, rungs in OF_STATE.items()]
    lines += [f"| {state}, {reason} | {' | '.join(rungs)} |" for (state, reason), rungs in OF_REASON.items()]
    readme = (Path(__file__).parents[3] / "extender" / "README.md").read_text()
    text = "\n".join(lines) + "\n"
    assert text in readme, f"extender/README.md is to say:\n{text}"


@given(st.lists(st.tuples(st.sampled_from(State), st.sampled_from(Reason)), min_size=1, max_size=12))
def test_a_time_changes_with_the_status_of_its_condition_and_with_nothing_else(
    course: list[tuple[State, Reason]],
) -> None:
    found: tuple[Condition, ...] = ()
    for turn, (state, reason) in enumerate(course, start=1):
        before = {one.type: one for one in found}
        found = updated(found, Status(state, reason, f"turn {turn}"), float(turn), float(turn))
        assert tuple(one[:2] for one in found) == statuses(state, reason)
        for one in found:
            same = one.type in before and before[one.type].status == one.status
            assert one.since == (before[one.type].since if same else float(turn))


def test_conditions_that_somebody_put_in_another_order_keep_their_times() -> None:
    status = Status(State.WAITING, Reason.RESOURCES, "needs 8 GPUs")
    found = tuple(one._replace(since=float(i)) for i, one in enumerate(updated((), status, 0.0, 0.0)))
    assert updated(found[::-1], status, 5.0, 900.0) == found
    assert updated((*found[1:], Condition("Mine", "True", 3.0)), status, 5.0, 900.0) == (
        found[0]._replace(since=5.0),
        *found[1:],
    )


def test_a_gang_without_conditions_has_them_since_its_state() -> None:
    """An older version wrote it: it runs since 5."""
    found = updated((), Status(State.RUNNING, Reason.OK, "2 replicas running"), 5.0, 900.0)
    assert {one.since for one in found} == {5.0}


def test_reason_and_message_stand_at_the_condition_that_they_are_about() -> None:
    status = Status(State.WAITING, Reason.RESOURCES, "needs 8 GPUs")
    found = plain(updated((), status, 0.0, 0.0), *map(str, status[:3]))
    no = {"status": "False", "reason": "Waiting", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"}
    assert found == [
        no | {"type": "Whole", "status": "True"},
        no | {"type": "Scheduled", "reason": "Resources", "message": "needs 8 GPUs"},
        *(no | {"type": name} for name in TYPES[2:]),
    ]


@pytest.mark.parametrize(
    ("state", "reason", "about"),
    [
        (State.INCOMPLETE, Reason.PODS_MISSING, "Whole"),
        (State.STARTING, Reason.BINDING, "Running"),
        (State.STARTING, Reason.QUOTA, "Whole"),
        (State.STARTING, Reason.NODES, "Scheduled"),
        (State.RUNNING, Reason.OK, "Running"),
        (State.RESIZING, Reason.SHARE, "Resizing"),
        (State.SUSPENDED, Reason.SUSPENDED, "Suspended"),
        (State.FINISHED, Reason.OK, "Finished"),
        (State.INVALID, Reason.INTERNAL, "Invalid"),
    ],
)
def test_one_condition_has_the_message(state: State, reason: Reason, about: str) -> None:
    status = Status(state, reason, "why")
    found = plain(updated((), status, 0.0, 0.0), str(state), str(reason), "why")
    assert [one["type"] for one in found if one["message"] == "why"] == [about]
    assert {str(one["reason"]) for one in found if one["type"] != about} == {str(state)}


# ---- in the circle ----


def written(cluster: FakeCluster, gang: str) -> list[dict[str, object]]:
    """Each status of a Gang that was sent, in order."""
    return [dict(a.status) for a in cluster.sent if isinstance(a, WriteGang) and a.gang == gang]


def a_life(cluster: FakeCluster) -> Iterator[str]:
    """It waits for two others, starts with two of its four replicas, grows and ends: what has just happened."""
    others = [cluster.job(name, 2, gpus=4) for name in ("first", "second")]
    yield "the others run"
    mine = cluster.job("train", 4, gpus=4, min_replicas="2")
    yield "waits"
    for name, pods in zip(("runs", "grows"), others, strict=True):
        for pod in pods:
            cluster.end(pod.uid)
        yield name
    owner = mine[0].controller
    assert owner is not None
    for pod in mine:
        cluster.end(pod.uid)
    cluster.owners[owner.uid] = replace(cluster.owners[owner.uid], size=0, over="Complete")
    yield "ends"


@pytest.mark.parametrize("restarts", [False, True])
def test_times_outlive_a_restart_and_change_with_their_status(restarts: bool) -> None:
    """status@seconds of each condition, in the order of TYPES; each step is 10 s after the one before."""
    cluster = FakeCluster(nodes=2)
    began, muster, found = cluster.now, Muster(cluster), {}
    for step in a_life(cluster):
        if restarts:
            muster = Muster(cluster)
        muster.settle(seconds=0.0)
        gang = cluster.gangs.get(("team", "job-train"))
        found[step] = " ".join(f"{c.status}@{c.since - began:.0f}" for c in gang.conditions) if gang else ""
        cluster.now += 10.0
    assert found == {
        "the others run": "",
        "waits": "True@10 False@10 False@10 False@10 False@10 False@10 False@10",
        "runs": "True@10 True@20 True@20 False@10 False@10 False@10 False@10",
        "grows": "True@10 True@20 True@20 False@30 False@10 False@10 False@10",
        "ends": "False@40 False@40 False@40 False@30 False@10 True@40 False@10",
    }


def test_conditions_go_with_the_writes_that_happen_anyway() -> None:
    cluster = FakeCluster(nodes=2)
    muster = Muster(cluster)
    for _ in a_life(cluster):
        muster.settle(seconds=0.0)
        cluster.now += 10.0
    found = written(cluster, "job-train")
    assert [one["state"] for one in found] == ["Waiting", "Running", "Resizing", "Running", "Finished"]
    assert all("conditions" in one for one in found)
    for before, after in pairwise(found):
        assert before | {"conditions": None} != after | {"conditions": None}, "only its conditions are new"
