"""What is measured and attained of jobs in place counts their GPUs, not their pods."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.asking import Asking
from muster.core.devices.in_use import as_it_trains
from muster.points import Profile
from muster.types import Config, CreateProvisioningRequest, Job, Phase, RecordEvent, Report, Reported
from tests.core.devices.circle import Circle
from tests.scenario import job as scenario_job
from tests.scenario import role

SPEED = "1=1,2=2,4=3"


def trains(circle: Circle, seconds: int, workers: int = 0) -> None:
    """Job a reports each second, and takes a step a second on each GPU."""
    uid = circle.pod("a").uid
    for _ in range(seconds):
        job = circle.ledger.jobs[circle.key("job-a")]
        step = (job.report.step if job.report is not None else 0.0) + circle.using("a")
        report = Report(circle.cluster.now, step, 1e6, workers=workers)
        circle.ledger.apply(Reported(uid, report), circle.cluster.now)
        circle.second()


def job(circle: Circle, name: str = "a") -> Job:
    return circle.ledger.jobs[circle.key(f"job-{name}")]


def on(count: int) -> Config:
    return Config((("worker.gpus", count),), (count,))


def two() -> Circle:
    """Job a on all four GPUs of a node for a while, then on two, beside b."""
    circle = Circle()
    circle.train("a", "1-4", speed=SPEED, remaining_work="1000000")
    circle.seconds(6)
    trains(circle, 40)
    circle.train("b", "1-4")
    trains(circle, 40)
    return circle


def test_a_job_of_one_pod_attains_what_its_gpus_do() -> None:
    circle = Circle()
    circle.train("a", "1-4", speed=SPEED)
    circle.seconds(6)
    facts, now = job(circle).facts, circle.cluster.now
    assert (facts.gpu_seconds.rate, facts.progress.rate, facts.executed.rate) == (4.0, 3.0, 1.0)
    circle.train("b", "1-4")
    circle.seconds(8)
    after = job(circle).facts
    assert (after.gpu_seconds.rate, after.progress.rate, job(circle, "b").facts.gpu_seconds.rate) == (
        2.0,
        2.0,
        2.0,
    )
    assert 4 * 2 < after.gpu_seconds.at(circle.cluster.now) - facts.gpu_seconds.at(now) < 4 * 8
    assert [count for _, count in after.shares] == [4, 2]


def test_a_pod_that_waits_for_its_gpus_attains_nothing() -> None:
    circle = Circle()
    circle.train("a", "4")
    circle.seconds(6)
    circle.slow.add(circle.pod("a").uid)
    circle.cluster.end(circle.pod("a").uid)
    circle.imageless.add("b")
    circle.train("b", "4")
    circle.seconds(8)
    found = job(circle, "b")
    assert (found.bound, found.facts.first_start, found.facts.gpu_seconds.rate) == (1, None, 0.0)


def test_the_speed_that_a_job_reports_is_that_of_its_gpus() -> None:
    circle = two()
    assert dict(job(circle).samples) == {on(4): 4.0, on(2): 2.0}


@pytest.mark.parametrize(("workers", "counts"), [(0, True), (1, True), (4, True), (2, False)])
def test_workers_of_a_job_in_place_are_its_pods_or_its_gpus(workers: int, counts: bool) -> None:
    circle = Circle()
    circle.train("a", "1-4", speed=SPEED, remaining_work="1000000")
    circle.seconds(6)
    trains(circle, 40, workers)
    assert dict(job(circle).samples) == ({on(4): 4.0} if counts else {})


def test_a_pod_that_leaves_beside_its_successor_asks_for_no_gpus_of_its_own() -> None:
    leaving, successor = role("worker", 2, gpus=0, on=["n0"], ending=["n0"]).members
    pods = replace(role("worker", 1, gpus=0), members=(leaving, successor))
    ending = leaving if leaving.phase is Phase.ENDING else successor
    stays = successor if ending is leaving else leaving
    trained = as_it_trains(
        scenario_job("a", roles=[pods]), (2, 4), {ending.uid: {"n0": 1}, stays.uid: {"n0": 2}}
    )
    (slots,) = trained.roles
    assert (slots.min, slots.bound) == (2, 2)


def test_after_a_restart_of_muster_it_is_the_same_configuration() -> None:
    circle = two()
    trains(circle, 60)  # what was measured last is written, too
    before = job(circle)
    circle.restart()
    circle.seconds(3)
    after = job(circle)
    assert (after.samples, after.facts.shares) == (before.samples, before.facts.shares)
    assert (after.facts.restarts, after.facts.gpu_seconds.rate) == (0, 2.0)


def test_a_new_leader_tells_no_change_of_a_job_whose_gpus_it_found() -> None:
    circle = two()
    circle.restart()
    circle.seconds(40)
    told = [a for a in circle.cluster.sent if isinstance(a, RecordEvent) and a.job == circle.key("job-a")]
    assert not [one.message for one in told if "Shrunk" in one.message or "Grown" in one.message]


def test_an_autoscaler_is_asked_for_a_node_with_the_gpus_of_a_job_in_place() -> None:
    circle = Circle()
    circle.profile = Profile(asking=Asking("provisioning-request", after=5.0))
    circle.restart()
    circle.train("a", "4")
    circle.seconds(6)
    circle.train("b", "2,4")
    circle.train("c", "3-4")
    circle.seconds(40)
    asked = {a.name: a.sets for a in circle.cluster.sent if isinstance(a, CreateProvisioningRequest)}
    assert [(name, count, shape.gpus) for name, count, shape in asked["job-b"]] == [("worker", 1, 2)]
