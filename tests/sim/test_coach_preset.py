"""Coach's experiments in the simulator: deadlocks, stragglers, and counts from epoch to epoch."""

from __future__ import annotations

import numpy as np
import pytest

from muster.core.progress.fits import reached
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.presets import coach
from muster.sim.result import Result
from muster.sim.workload import Workload
from muster.types import Config


def run(workload: Workload, profile: str, seed: int = 0) -> Result:
    assert workload.cluster is not None
    return simulate(workload, workload.cluster, build(profile), Options(seed=seed, record=True))


def test_the_example_of_section_8_deadlocks_pod_by_pod_and_not_as_gangs() -> None:
    by_seed = [run(coach.workload(s, "deadlock"), "kube-default", s) for s in range(6)]
    locked = [r for r in by_seed if r.gauges["deadlocks"]]
    assert locked
    assert "deadlock" in locked[0].cut
    assert len(locked) < len(by_seed)  # it depends on the order in which the pods come
    for seed in range(6):
        gangs = run(coach.workload(seed, "deadlock"), "gang", seed)
        assert not gangs.cut
        assert not np.isnan(gangs.ended).any()
        assert gangs.started[1] == pytest.approx(gangs.ended[0])  # one after the other


def test_the_default_scheduler_leaves_stragglers_and_the_gang_scheduler_none() -> None:
    pods = run(coach.workload(0), "kube-default")
    gangs = run(coach.workload(0), "gang")
    assert pods.gauges["stragglers"] > 0.0
    assert gangs.gauges["stragglers"] == 0.0


def test_where_there_is_room_for_all_the_schedulers_are_equal() -> None:
    pods, gangs = (run(coach.workload(0, places=5), p) for p in ("kube-default", "gang"))
    assert list(pods.ended) == list(gangs.ended)


def counts(result: Result, job: int = 0) -> list[tuple[int, int]]:
    """(workers, servers) one after another: a worker has a GPU, the scheduler is one replica."""
    return [(s.gpus, len(s.nodes) - s.gpus - 1) for s in result.segments if s.job == job and s.gpus]


def test_coach_tunes_for_four_mini_epochs_and_then_leaves_out_the_worker_that_slows_it() -> None:
    result = run(coach.workload(0, "dynamic", jobs=1), "coach")
    chosen = counts(result)
    assert chosen == [(1, 1), (2, 1), (1, 2), (2, 2), (1, 1)]
    minis = [s.end - s.start for s in result.segments if s.gpus][:4]
    assert all(20.0 <= seconds <= 40.0 for seconds in minis)


def test_coach_never_waits_for_the_tuning_of_all_jobs() -> None:
    result = run(coach.workload(0, "dynamic", jobs=3), "coach")
    assert not result.cut
    assert (result.started == 0.0).all()
    assert result.gauges["deadlocks"] == 0.0


def test_a_job_ends_when_its_loss_was_at_the_target_three_epochs_running() -> None:
    workload = coach.workload(5)
    for learner in workload.models.values():
        assert isinstance(learner, coach.Learner)
        assert reached(learner.losses, coach.NETS["lenet"].target) == len(learner.losses)
        assert learner.work == len(learner.losses) * coach.STEPS
        assert learner.loss(0.0) == 2.3
        assert learner.loss(coach.STEPS) == learner.losses[0]
        assert learner.epoch(2.0 * coach.STEPS) == 2
        assert learner.epoch_end(0.5 * coach.STEPS) == coach.STEPS


def test_the_speed_is_what_the_authors_measured() -> None:
    model = next(iter(coach.workload(0).models.values()))

    def epochs(workers: int, servers: int, nodes: tuple[int, ...] = (5,)) -> float:
        config = Config((("scheduler", 1), ("server", servers), ("worker", workers)), nodes)
        return model.speed(config) / coach.STEPS

    assert 1.0 / epochs(1, 1) == pytest.approx(32.1)
    assert 1.0 / epochs(2, 2) == pytest.approx(39.0)
    assert epochs(0, 1) == 0.0
    slow = next(iter(coach.workload(0, model="resnet18").models.values()))
    config = Config((("scheduler", 1), ("server", 2), ("worker", 2)), (3, 2))
    assert slow.speed(config) == pytest.approx(0.9 / 51.9 * coach.STEPS)


@pytest.mark.parametrize("wrong", [{"experiment": "x"}, {"model": "x"}, {"places": 0}, {"jobs": 0}])
def test_what_is_not_an_experiment_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        coach.workload(0, **wrong)  # type: ignore[arg-type]
