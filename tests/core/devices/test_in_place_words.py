"""What the owner of a job in place reads: pods are pods, GPUs are GPUs, and a first start is no hand-over."""

from __future__ import annotations

import re

from muster.core.devices import words
from muster.core.devices.coordinator import Change
from muster.core.devices.granted import Granted
from muster.points import Profile
from muster.types import Reason, State, Status
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
