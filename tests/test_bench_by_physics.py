"""Trainings of a paper's workload, for `python -m e2e.bench papers`: counted as the simulator counts them."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.bench import paper as paper_module
from e2e.bench.by_physics import ByPhysics, kind_of
from e2e.bench.paper import Paper, Releases, foretold
from e2e.bench.paper_in_place import InPlace
from e2e.bench.paper_profiles import PAPERS
from e2e.bench.papers_live import manifests, trained
from e2e.bench.trainings import Seen
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.physics import CHANGE, GROW, MOVE, RESUME, SHRINK, Running
from muster.sim.result import Result
from muster.types import Config

NODES = {"n0": "A100", "n1": "T4"}


def counting(paper: Paper, products: dict[str, str] = NODES) -> ByPhysics:
    """Roles are the first part of a pod's name."""
    return ByPhysics(paper.workload(), paper.speed, paper.round, products, lambda pod: pod.split("-")[0])


def starts(trainings: ByPhysics, paper: Paper, name: str, now: float = 0.0) -> None:
    (job,) = [one for one in trained(paper.workload(), paper.speed) if one.name == name]
    trainings.submitted(job, now)


def test_containers_on_a_node_share_it_and_one_alone_has_it_whole() -> None:
    paper = PAPERS["specon"]
    trainings = counting(paper)
    for name in ("job-01", "job-02"):
        starts(trainings, paper, name)
        trainings.saw(Seen(name, f"worker-{name}", "n0", over=False), 0.0)
    trainings.due(10.0)
    assert [one.done for one in trainings.paced.values()] == [10.0 * 8.0 / 2.0] * 2
    trainings.saw(Seen("job-02", "worker-job-02", "n0", over=True), 10.0)
    trainings.due(12.0)
    assert [one.done for one in trainings.paced.values()] == [40.0 + 2.0 * 8.0, 40.0]


def test_a_container_that_is_moved_stands_still_for_what_the_paper_says() -> None:
    paper = PAPERS["specon"]
    trainings = counting(paper)
    starts(trainings, paper, "job-01")
    trainings.saw(Seen("job-01", "worker-0", "n0", over=False), 0.0)
    trainings.saw(Seen("job-01", "worker-0", "n0", over=True), 5.0)
    trainings.saw(Seen("job-01", "worker-1", "n1", over=False), 6.0)
    one = trainings.paced["job-01"]
    assert (one.done, one.changes, one.paused_until) == (40.0, 1, 6.0 + 5.0 / 8.0)
    assert trainings.tells("job-01", 6.5) is None, "it does not train"
    trainings.due(one.paused_until)
    trainings.due(one.paused_until + 1.0)
    assert one.done == 48.0


def test_a_job_of_roles_trains_with_one_of_each_and_tells_each_epoch_until_it_is_heard() -> None:
    paper = PAPERS["coach"]
    trainings = counting(paper, {"n0": "gpu"})
    starts(trainings, paper, "job-0")
    for pod in ("worker-0", "server-0"):
        trainings.saw(Seen("job-0", pod, "n0", over=False), 0.0)
    assert trainings.paced["job-0"].runs is None, "without its scheduler"
    trainings.saw(Seen("job-0", "scheduler-0", "n0", over=False), 0.0)
    model = paper.workload().models["lenet-0"]
    config = Config((("scheduler", 1), ("server", 1), ("worker", 1)), (3,))
    assert trainings.paced["job-0"].rate == pytest.approx(model.speed(config) * paper.speed)
    trainings.due(32.0 / paper.speed)
    assert "boundary" not in (trainings.tells("job-0", 32.0 / paper.speed) or {})
    for _ in range(2):
        now = 33.0 / paper.speed
        trainings.due(now)
        told = trainings.tells("job-0", now)
        assert told is not None
        assert told["boundary"], "until it is heard"
    trainings.heard("job-0", int(told["epoch"]))
    assert "boundary" not in (trainings.tells("job-0", 33.0 / paper.speed) or {})


def test_a_model_goes_at_the_speed_of_its_slowest_product() -> None:
    paper = PAPERS["similarity"]
    trainings = counting(paper)
    name = next(one.name for one in paper.workload().submissions if one.max > 1)
    starts(trainings, paper, name)
    rates = []
    for pod, node in (("worker-0", "n0"), ("worker-1", "n1")):
        trainings.saw(Seen(name, pod, node, over=False), 0.0)
        rates.append(trainings.paced[name].rate)
    model = trainings.paced[name].runs.model
    slow = Config((("worker", 2),), (1, 1), "T4", batch=trainings.paced[name].runs.submission.batch)
    assert rates[1] == pytest.approx(model.speed(slow) * paper.speed)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ((2, "aa"), (2, "aa"), RESUME),
        ((2, "aa"), (2, "ab"), MOVE),
        ((2, "aa"), (3, "aab"), GROW),
        ((3, "aab"), (1, "a"), SHRINK),
    ],
)
def test_what_kind_a_change_is(before: tuple[int, str], after: tuple[int, str], kind: str) -> None:
    def running(count: int, nodes: str) -> Running:
        return Running(0, None, None, Config((("worker", count),)), tuple(nodes), 0.0, 0.0)  # type: ignore[arg-type]

    assert kind_of(running(*before), running(*after)) == kind


def test_roles_traded_for_each_other_are_a_change_of_their_own() -> None:
    def running(workers: int, servers: int) -> Running:
        config = Config((("server", servers), ("worker", workers)))
        return Running(0, None, None, config, (), 0.0, 0.0)  # type: ignore[arg-type]

    assert kind_of(running(2, 1), running(1, 2)) == CHANGE


@pytest.mark.parametrize(
    "paper", [pytest.param(one, id=name) for name, one in PAPERS.items() if not isinstance(one, InPlace)]
)
def test_each_paper_has_jobs_for_a_lab_of_which_nothing_is_known(paper: Paper) -> None:
    workload = paper.workload()
    bodies = [body for one in workload.submissions for body in manifests(one, paper.places)]
    assert len({body["metadata"]["name"] for body in bodies}) == len(bodies) >= len(workload.submissions)
    assert not any(one.known or "profiled" in one.tags for one in workload.submissions)


def test_what_changes_take_longer_shows_in_what_is_foretold() -> None:
    at_once, late = (foretold(PAPERS["similarity"], Releases(usual), 0.0, 0.0).jct for usual in (0.0, 60.0))
    assert 0.0 < at_once < late


def test_simulated_jobs_come_as_far_into_a_round_as_they_came_on_the_cluster() -> None:
    paper = PAPERS["gavel-max-min"]
    round_s = paper.round * paper.speed
    first = paper.workload().submissions[0].submitted
    for into in (0.0, 0.25):
        made = paper.beginning(1.8e9 // paper.round * paper.round + into * paper.round)
        assert made.submissions[0].submitted > 0.0
        assert (made.submissions[0].submitted - first) % round_s == pytest.approx(into * round_s, abs=1e-3)
    assert PAPERS["specon"].beginning(1.8e9).submissions[0] == PAPERS["specon"].workload().submissions[0]


def test_a_seed_of_what_is_foretold_is_of_releases_and_not_of_what_a_policy_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which is with 0 on clusters: with 1, jobs of gavel-fifo that all want one product were given several."""
    told: list[Options] = []

    def simulated(*given: Any) -> Result:
        told.append(given[-1])
        return simulate(*given)

    monkeypatch.setattr(paper_module, "simulate", simulated)
    foretold(PAPERS["specon-default"], Releases(11.0, apart=5.5, rest=8.0), 0.0, 1.8e9, 1)
    assert [(one.seed, one.release_seed) for one in told] == [(0, 1)]
    assert [(one.release, one.release_spread, one.release_rest) for one in told] == [(11.0, 0.25, 8.0)]
