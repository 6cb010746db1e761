"""Chaos: the same seed has the same troubles, and what has become of a job is told truly."""

from __future__ import annotations

from itertools import pairwise

import pytest

from e2e.chaos.end import fate
from e2e.chaos.troubles import PROCESSES, SOONEST, VERBS, What, troubles
from e2e.cluster import Json, Pod
from e2e.scenario import job, pod
from e2e.soak.arrivals import Course, arrivals


def test_the_same_seed_has_the_same_jobs_and_troubles_and_another_has_others() -> None:
    assert list(troubles(3, 600.0)) == list(troubles(3, 600.0))
    assert list(troubles(3, 600.0)) != list(troubles(4, 600.0))
    course = Course(seconds=60.0, seed=3)
    assert list(arrivals(course)) == list(arrivals(course))


def test_a_longer_run_begins_with_the_troubles_of_a_shorter_one() -> None:
    short, long = list(troubles(3, 60.0)), list(troubles(3, 600.0))
    assert long[: len(short)] == short


def test_ten_minutes_have_every_kind_of_trouble_and_pauses_between_them() -> None:
    found = list(troubles(1, 600.0))
    assert {one.what for one in found} == set(What)
    assert {one.process for one in found} == {"", *PROCESSES}
    assert all(after.at - before.at >= SOONEST - 0.02 for before, after in pairwise(found))


def test_who_answers_the_verbs_is_started_again_by_its_planner_and_frozen_for_a_while() -> None:
    found = [one for one in troubles(1, 6000.0) if one.process.startswith(VERBS)]
    assert {one.what for one in found} == {What.KILL, What.STOP, What.FREEZE}
    assert all((one.seconds > 0) == (one.what is What.FREEZE) for one in found)


def seen(count: int, node: str = "", phase: str = "Pending", gated: bool = False) -> list[Pod]:
    plain = pod("one")
    plain["spec"] |= {"nodeName": node} if node else {}
    plain["spec"] |= {"schedulingGates": [{"name": "muster.dev/queue"}]} if gated else {}
    return [Pod(plain | {"status": {"phase": phase}})] * count


WAITS = {"state": "Waiting", "reason": "Resources", "message": "needs 4 GPUs"}


@pytest.mark.parametrize(
    ("status", "pods", "gang", "told"),
    [
        ({"conditions": [{"type": "Complete", "status": "True"}]}, [], {}, "done"),
        ({}, seen(2, "n0", "Running"), {}, "whole"),
        ({}, seen(1, "n0", "Running") + seen(1, "n0", "Succeeded"), {}, "whole"),
        ({}, seen(2, gated=True), WAITS, "waits"),
        ({"failed": 3}, [], {}, "backs off"),
        (
            {},
            seen(2, gated=True),
            {"state": "Running"},
            "waits and does not say why; its Gang: state='Running'",
        ),
        (
            {},
            seen(1, "n0", "Running") + seen(1, gated=True),
            {},
            "is partly bound: 1 of at least 2; its Gang: ",
        ),
        ({}, [], {}, "has no pods; its Gang: "),
    ],
)
def test_what_has_become_of_a_job(status: Json, pods: list[Pod], gang: Json, told: str) -> None:
    assert fate(job("train", 2) | {"status": status}, pods, gang) == told
