"""The plain default scheduler in the simulator: pod by pod, deadlocks and stragglers included."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from muster import profiles
from muster.errors import ConfigurationError
from muster.settings import Settings, profile_of
from muster.sim.options import Options
from muster.sim.physics import Cost, Standard
from muster.sim.submission import Curve, Linear, RoleSpec, Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config

from .course import FIFO, Watched, ends, history, job, simulated, starts

KUBE = replace(FIFO, name="kube-default", planner="pods", scores=())


def test_replicas_start_one_by_one_and_hold_their_gpus_while_the_rest_waits() -> None:
    jobs = [job("a", 100, 0, 1), job("b", 40, 1, 4)]
    result = simulated(jobs, profile=KUBE)
    assert starts(result) == {"a": 0, "b": 100}
    assert history(result, "b") == [(1, 100, 3, "incomplete"), (100, 110, 4, "")]
    assert result.gpu_seconds.tolist() == [100, 3 * 99 + 40]
    assert result.gauges["overhead"] == pytest.approx(3 * 99 / (100 + 3 * 99 + 40))


def test_a_pod_that_does_not_fit_is_skipped_and_later_jobs_pass_it() -> None:
    roles = (RoleSpec("worker", 1, 1, gpus=4, cpu=1),)
    jobs = [job("a", 100, 0, 1), job("b", 10, 1, 1, roles=roles), job("c", 10, 2, 1)]
    assert starts(simulated(jobs, profile=KUBE)) == {"a": 0, "b": 100, "c": 2}


def test_two_gangs_that_hold_half_of_what_they_need_wait_for_ever() -> None:
    """The paper's example (Coach, section 8): what is left is given to some roles of A and others of B."""
    jobs = [job(n, 100, 0, 4) for n in "ab"]
    seeds = range(20)
    results = [simulated(jobs, 6, profile=KUBE, seed=seed) for seed in seeds]
    locked = [r for r in results if r.gauges["deadlocks"]]
    assert 0 < len(locked) < len(seeds)  # it depends on how their pods are delivered
    assert all("deadlock at 0 s: 2 jobs" in r.cut for r in locked)
    assert all(math.isnan(t) for r in locked for t in r.ended)
    assert all("waits for the rest for ever" in note for r in locked for note in r.notes)
    gang = simulated(jobs, 6, profile=FIFO)
    assert ends(gang) == {"a": 25, "b": 50}
    assert gang.gauges["deadlocks"] == 0


def test_a_job_that_asks_beyond_what_its_model_gains_from_has_all_of_its_replicas() -> None:
    half = Curve("half", (1.0, 1.5, 2.0))
    jobs = [Submission("a", 0, "half", 20, request=4), Submission("b", 0, "linear", 20, request=4, max=2)]
    result = simulated(jobs, 8, profile=KUBE, models={"half": half})
    assert ends(result) == {"a": 10, "b": 5}
    assert history(result, "a") == [(0, 10, 4, "")]
    assert (result.gauges["deadlocks"], result.notes) == (0, ())


def test_roles_begin_with_their_minimum_and_late_replicas_join() -> None:
    roles = (RoleSpec("scheduler", 1, 1, 0, 1000), RoleSpec("worker", 1, 3, 0, 1000))
    models = {"workers": Workers()}
    jobs = [
        Submission("a", 0, "workers", 30, roles=roles),
        Submission("b", 0.5, "workers", 30, roles=roles),
    ]
    result = simulated(jobs, groups=[Group(1, 0, cpu=6000)], models=models, profile=KUBE)
    # a: 1 + 3 pods; b: 1 + 1 until a ends at 10 (9.5 done by then), then all three: (30 - 9.5) / 3
    assert ends(result) == {"a": 10, "b": pytest.approx(10 + 20.5 / 3, abs=1e-3)}
    assert result.gauges["stragglers"] == 0  # at its end b had all of its replicas
    assert result.gauges["grows"] == 1


@dataclass(frozen=True)
class Workers:
    """As fast as it has workers; epochs of 8 iterations."""

    name: str = "workers"
    max: int = 3
    steps_per_epoch: float = 8.0

    def speed(self, config: Config) -> float:
        return float(config.count("worker"))


def test_late_replicas_of_a_job_that_changes_at_boundaries_join_at_the_next_one() -> None:
    roles = (RoleSpec("worker", 1, 3, 0, 1000),)
    tags = {"resize_at": "boundary"}
    jobs = [
        Submission("a", 0, "workers", 9, roles=roles),
        Submission("b", 0.5, "workers", 24, roles=roles, tags=tags),
    ]
    result = simulated(jobs, groups=[Group(1, 0, cpu=4000)], models={"workers": Workers()}, profile=KUBE)
    # a ends at 3; b's late replicas have places then, and join at the end of its epoch at 8.5
    assert ends(result) == {"a": 3, "b": pytest.approx(8.5 + 16 / 3, abs=1e-3)}
    assert result.gauges["stragglers"] == 1


def test_a_job_with_a_timeout_waits_so_long_for_all_of_its_replicas() -> None:
    roles = (RoleSpec("worker", 1, 3, 0, 1000),)
    tags = {"timeout": 5.0}
    jobs = [
        Submission("a", 0, "workers", 30, roles=roles),
        Submission("b", 1, "workers", 40, roles=roles, tags=tags),
    ]
    result = simulated(jobs, groups=[Group(1, 0, cpu=4000)], models={"workers": Workers()}, profile=KUBE)
    assert starts(result) == {"a": 0, "b": 6}
    assert history(result, "b")[0] == (1, 6, 0, "incomplete")
    assert ends(result)["b"] == 22  # 4 done alone until 10, then 36 / 3
    jobs[0] = replace(jobs[0], work=9)
    early = simulated(jobs, groups=[Group(1, 0, cpu=4000)], models={"workers": Workers()}, profile=KUBE)
    assert starts(early)["b"] == 3  # all of them had a place before the time was up


def test_pods_go_to_the_least_allocated_node() -> None:
    roles = (RoleSpec("main", 1, 1, 0, 1000, 1 << 30),)
    jobs = [Submission(f"j{i}", float(i), "linear", 100, roles=roles) for i in range(4)]
    result = simulated(jobs, groups=[Group(2, 0, cpu=8000)], profile=KUBE)
    nodes = [next(s.nodes[0] for s in result.segments if s.job == j) for j in range(4)]
    assert nodes[0] != nodes[1]
    assert nodes[2] != nodes[3]


def test_the_first_start_costs_when_all_is_there_and_not_before() -> None:
    physics = Standard({("", "start"): Cost(pause=7)})
    result = simulated([job("a", 100, 0, 1), job("b", 40, 1, 4)], profile=KUBE, physics=physics)
    assert history(result, "b") == [(1, 107, 3, "incomplete"), (107, 114, 4, "start"), (114, 124, 4, "")]


def test_the_same_seed_gives_the_same_order_of_pods() -> None:
    jobs = [job(n, 100, 0, 3) for n in "abc"]
    workload = Workload(jobs, {"linear": Linear()})

    def run(seed: int) -> list[float]:
        return Watched(workload, Cluster((Group(2, 3),)), KUBE, Options(seed=seed)).run().started.tolist()

    assert str(run(4)) == str(run(4))


def test_a_live_configuration_refuses_it_with_a_sentence() -> None:
    assert profiles.build("kube-default").planner == "pods"
    with pytest.raises(ConfigurationError, match="plans no gangs"):
        profile_of(Settings(profile="kube-default"))
