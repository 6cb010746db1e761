"""A job in place is measured at each size below its share: on fewer of its GPUs, which stay its own meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from muster.points import Profile, Share, load
from muster.types import Grants, JobKey, RecordEvent, Report, Reported, SharingSnapshot, Status
from muster_plugins.max_min import MaxMin
from tests.core.devices.circle import Circle

SPEEDS = {0: 0.0, 1: 1.0, 2: 1.7, 3: 2.2, 4: 2.5}
"""Steps a second by GPUs."""


@dataclass(frozen=True)
class FirstTakesAll:
    """The first job has all that it can train on; the others get what it leaves."""

    def share(self, snapshot: SharingSnapshot) -> Grants:
        table = snapshot.table
        replicas = np.zeros(len(table), dtype=np.int64)
        replicas[:1] = table.max[:1]
        return Grants(replicas)


class Sweeps(Circle):
    """Each job that trains reports each second. mute: those that have stopped to; seen: GPUs that each has trained
    on, each number once while it lasts."""

    def __init__(self, gpus: int = 4, share: Share | None = None, **arguments: object) -> None:
        super().__init__(gpus=gpus)
        sweep = load("sweep", {"limit": 60.0, **arguments})
        cost = load("resize-cost")
        shares = (share or MaxMin(), cost, sweep)
        named = (("resize-cost", cost), ("sweep", sweep))
        self.profile = Profile(
            "sweeps", shares=shares, named=named, conserving=True, estimate=load("measured")
        )
        self.seen: dict[str, list[int]] = {}
        self.steps: dict[str, float] = {}
        self.mute: set[str] = set()
        self.restart()

    def second(self) -> None:
        for key in list(self.ledger.jobs):
            name = key.name.removeprefix("job-")
            count = self.using(name)
            seen = self.seen.setdefault(name, [])
            if count and seen[-1:] != [count]:
                seen.append(count)
            self.steps[name] = self.steps.get(name, 0.0) + SPEEDS[count]
            if count and name not in self.mute:
                report = Report(self.cluster.now, self.steps[name], 1e6)
                self.ledger.apply(Reported(self.pod(name).uid, report), self.cluster.now)
        super().second()

    def until(self, name: str, count: int) -> None:
        """Until it trains on so many GPUs, within 100 s."""
        for _ in range(100):
            if self.using(name) == count:
                return
            self.second()
        raise AssertionError(f"{name} trained on {self.seen[name]}")

    def samples(self, name: str) -> dict[int, float]:
        """Speed by GPUs, as measured."""
        job = self.ledger.jobs[self.job(name)]
        return {config.replicas: round(speed, 1) for config, speed in job.samples.items()}

    def job(self, name: str) -> JobKey:
        return self.key(f"job-{name}")

    def status(self, name: str) -> Status:
        return self.plan.statuses[self.job(name)]


def test_a_job_of_four_gpus_is_measured_at_three_two_and_one_and_has_four_again() -> None:
    circle = Sweeps(sizes="all")
    circle.train("a", "1-4")
    circle.seconds(180)
    assert circle.seen["a"] == [4, 3, 2, 1, 4]
    assert circle.samples("a") == {n: speed for n, speed in SPEEDS.items() if n}
    assert len([p for p in circle.cluster.pods.values() if p.ours]) == 1
    told = [a.message for a in circle.cluster.sent if isinstance(a, RecordEvent) and a.job == circle.job("a")]
    assert not [words for words in told if "Shrunk" in words or "Grown" in words], "its share never changed"


def test_sizes_are_those_that_network_packing_allows() -> None:
    circle = Sweeps()
    circle.train("a", "1-4")
    circle.seconds(140)
    assert circle.seen["a"] == [4, 2, 1, 4]


def test_its_owner_reads_at_how_many_of_its_gpus_it_is_measured() -> None:
    circle = Sweeps()
    circle.train("a", "1,2,4")
    words, why = set[str](), set[str]()
    for _ in range(140):
        circle.second()
        words.add(circle.status("a").message.partition("; measured")[2])
        why.add(circle.ledger.whys[circle.job("a")].partition(";")[0])
    assert " at 2 of its 4 GPUs, then it has all of them again" in words
    assert "is measured at 2 of its 4 GPUs, then it has all of them again" in why
    assert "measured" not in circle.status("a").message


def test_who_waits_does_not_start_on_the_gpus_that_idle_meanwhile_and_their_holders_stay() -> None:
    circle = Sweeps(share=FirstTakesAll())
    circle.train("a", "1-4")
    circle.seconds(5)
    made = set(circle.records)
    circle.train("b", "1")
    circle.cluster.job("c", 1, 1)
    for _ in range(140):
        circle.second()
        assert set(circle.records) == made
        assert not circle.using("b")
        assert circle.status("c").state == "Waiting"
    assert circle.seen["a"] == [4, 2, 1, 4]


def test_another_job_that_arrives_gets_its_share_at_once_and_the_first_one_the_rest_of_it() -> None:
    circle = Sweeps()
    circle.train("a", "1-4")
    circle.until("a", 1)
    circle.train("b", "1-4")
    circle.seconds(10)
    assert (circle.using("a"), circle.using("b")) == (2, 2)
    circle.seconds(300)
    assert (circle.using("a"), circle.using("b")) == (2, 2)
    assert set(circle.samples("b")) == {1, 2}
    assert set(circle.samples("a")) == {1, 2, 4}


def test_a_job_that_falls_silent_while_it_is_measured_has_its_gpus_again() -> None:
    circle = Sweeps()
    circle.train("a", "1-4")
    circle.until("a", 2)
    circle.mute.add("a")
    circle.seconds(70)
    assert circle.using("a") in (1, 4)
    circle.seconds(60)
    assert circle.using("a") == 4
    circle.seconds(300)
    assert circle.seen["a"][-1] == 4, "it is not tried while nothing is heard of it"


def test_at_most_so_many_jobs_are_measured_at_a_time() -> None:
    circle = Sweeps(gpus=8, jobs=1)
    circle.train("a", "1,4")
    circle.train("b", "1,4")
    small = 0
    for _ in range(200):
        circle.second()
        both = [grant.measure for grant in circle.plan.grants.values()]
        small = max(small, both.count(1))
    assert small == 1
    assert set(circle.samples("a")) == set(circle.samples("b")) == {1, 4}


@pytest.mark.parametrize("at", [1, 2])
def test_a_new_leader_goes_on_and_what_is_measured_then_has_all_of_its_share(at: int) -> None:
    circle = Sweeps()
    circle.train("a", "1-4")
    circle.until("a", at)
    circle.seconds(2)
    circle.restart()
    circle.seconds(4)
    planned = circle.ledger.in_place
    assert planned is not None
    (granted,) = planned.granted[circle.job("a")]
    assert (granted.count, granted.trains) == (4, at)
    circle.seconds(200)
    assert circle.seen["a"] == [4, 2, 1, 4]


def test_a_change_that_costs_too_much_is_not_made_for_it() -> None:
    circle = Sweeps(cost=0.0)
    circle.train("a", "1-4")
    circle.seconds(20)
    circle.train("b", "1-4")  # a change of its, which takes a moment
    circle.seconds(200)
    assert circle.seen["a"] == [4, 2]


def test_the_plan_is_the_same_when_it_is_made_again() -> None:
    circle = Sweeps()
    circle.train("a", "1-4")
    circle.until("a", 2)
    snapshot = circle.ledger.snapshot(circle.cluster.now)
    first, second = (circle.ledger.plan(snapshot) for _ in range(2))
    assert first.grants == second.grants
    assert first.shares[circle.job("a")] == 4
    assert (first.grants[circle.job("a")].measure, first.grants[circle.job("a")].kept) == (2, 2)
