"""What the owner of a job in place reads: pods are pods, GPUs are GPUs, and a first start is no hand-over."""

from __future__ import annotations

import re

import pytest

from muster.core.devices import words
from muster.core.devices.coordinator import Change
from muster.core.devices.granted import Granted
from muster.points import Profile
from muster.types import JobKey, Reason, State, Status
from tests.core.devices.circle import Circle


def told(circle: Circle, seconds: int) -> dict[str, list[str]]:
    """What owners read meanwhile, by job, each sentence once; plans tell of jobs with news only."""
    found: dict[str, list[str]] = {}
    for _ in range(seconds):
        circle.second()
        for key, status in circle.plan.statuses.items():
            if status.message not in found.setdefault(key.name, [])[-1:]:
                found[key.name].append(status.message)
    return found


def test_what_nobody_had_is_taken_up_and_what_another_had_is_handed_over() -> None:
    circle = Circle()
    circle.train("a", "1-4")
    taken = r"in place: 4 of 4 GPUs of n0 since \d\d:\d\dZ; taken up in \d\.\d s"
    last = told(circle, 8)["job-a"][-1]
    assert re.fullmatch(taken, last), last
    b = circle.train("b", "1-4")
    handed = r"in place: 2 of 4 GPUs of n0 since \d\d:\d\dZ; hand-over took \d+\.\d s, GPUs idle \d+\.\d s"
    after = told(circle, 8)
    assert all(re.fullmatch(handed, after[name][-1]) for name in ("job-a", "job-b")), after
    circle.cluster.end(b.uid)
    last = told(circle, 8)["job-a"][-1]
    assert re.search("4 of 4 GPUs of .*hand-over took", last), f"they were b's before: {last}"


def test_gpus_are_not_counted_as_pods_in_what_an_owner_reads() -> None:
    circle = Circle(nodes=2)
    circle.profile = Profile("shares nothing")
    circle.restart()
    a = circle.train("a", "2,4")
    circle.train("b", "8")
    first = told(circle, 2)
    assert first["job-a"][0] == "all replicas have a place; they are being started", first
    never = "needs 8 GPUs of one node, in place: no node is large enough; the best node has 4 GPUs"
    assert first["job-b"][0] == never, first
    told(circle, 6)
    circle.cluster.delete(a.uid)
    after = told(circle, 3)["job-a"]
    assert not [words for words in after if re.search(r"[2-9] (more )?pods|of [2-9] pods|\.gpus", words)], (
        after
    )


def test_who_has_no_gpu_yet_reads_that_and_who_is_to_give_it_what_it_is_to_go_on_with() -> None:
    """a's agent goes on asking, and never lets go of anything."""
    circle = Circle()
    a = circle.train("a", "1-4")
    circle.seconds(20)
    circle.slow.add(a.uid)
    circle.train("b", "1-4")
    after = told(circle, 100)
    assert after["job-b"][-1] == (
        "in place: no GPU yet; it is to have 2 of 4 GPUs of n0; job-a is to give them"
    )
    still = r"in place: 4 of 4 GPUs of n0 since \d\d:\d\dZ; it is to go on with 2"
    assert re.fullmatch(still, after["job-a"][-1]), after
    circle.restart()
    after = told(circle, 20)
    assert after["job-a"][-1] == "in place: 4 of 4 GPUs of n0; it is to have 2 of 4 GPUs of n0", "also now"


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ((), ""),
        (("team/a",), "; a is to give them"),
        (("team/a", "other/b"), "; a job of another namespace, a are to give them"),
        (("team/a", "team/b", "team/c", "team/d"), "; a, b and 2 more are to give them"),
    ],
)
def test_whoever_is_to_give_is_named(others: tuple[str, ...], found: str) -> None:
    keys = [JobKey(*name.split("/")) for name in others]
    mine = (Granted("p", "n0", 2),)
    assert words.waits_for(JobKey("team", "x"), mine, {}, {"n0": keys, "n1": [JobKey("team", "z")]}) == found


def test_a_job_between_all_its_gpus_and_its_next_ones_is_not_said_to_have_some() -> None:
    runs = Status(State.RUNNING, Reason.OK, "2 of 2 replicas run")
    grants = (Granted("p", "n0", 2),)
    between = words.told(
        runs,
        grants,
        8,
        True,
        starts=False,
        changes=[(Change(at=1.0, took=2.0, idle=0.5, count=0, handed=True), 720.0)],
    )
    assert between.message == "in place: no GPU since 00:12Z; it is to have 2 of 8 GPUs of n0"
