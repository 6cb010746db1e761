"""On one node of all GPUs placement decides nothing: the two engines must give the same, job by job.

They share the plugins and how a cycle shares, and nothing of what moves jobs: one keeps columns, the other runs the
whole cycle on Job objects and counts GPUs by node.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from muster import profiles
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.submission import Curve, Linear, Submission
from muster.sim.workload import Cluster, Group, Workload

GAUGES = ("queue", "utilisation", "idle_gpus", "efficiency", "blocking", "finish_time_fairness")


def drawn(seed: int) -> Workload:
    """25 jobs of four models, whose speeds gain less and less, but not steadily so, with the replicas."""
    rng = np.random.default_rng(seed)
    models = {}
    for k in range(4):
        gains = 0.8 ** np.arange(8) * (0.6 + 0.8 * rng.random(8))
        models[f"m{k}"] = Curve(f"m{k}", tuple(float(x) for x in np.cumsum(gains)))
    at = np.sort(rng.integers(0, 1200, 25))
    jobs = [
        Submission(
            f"j{i}",
            float(t),
            f"m{rng.integers(4)}",
            float(int(rng.lognormal(5.5, 1))),
            int(rng.choice([1, 2, 4])),
        )
        for i, t in enumerate(at)
    ]
    return Workload(jobs, models)


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(whole_seconds=True),
        Options(restart=7.0),
        Options(checkpoint=30.0),
        Options(restart=40.0, checkpoint=30.0),
    ],
    ids=["exact", "whole seconds", "restarts cost", "work is lost", "stopped in their pauses"],
)
@pytest.mark.parametrize(
    "name", ["srtf", "srtf-max", "tiresias-l", "srsf-e", "max-min", "themis", "optimus", "afs-l", "afs-p"]
)
def test_the_engines_agree_on_every_job(name: str, options: Options) -> None:
    workload, profile = drawn(3), profiles.build(name)
    placed, fluid = (
        simulate(workload, Cluster((Group(1, 16),), fluid), profile, options) for fluid in (False, True)
    )
    np.testing.assert_allclose(placed.ended, fluid.ended, rtol=0, atol=1e-6)
    np.testing.assert_allclose(placed.started, fluid.started, rtol=0, atol=1e-6)
    np.testing.assert_allclose(placed.gpu_seconds, fluid.gpu_seconds, rtol=1e-9)
    assert placed.restarts.tolist() == fluid.restarts.tolist()
    for gauge in GAUGES:
        assert placed.gauges[gauge] == pytest.approx(fluid.gauges[gauge], rel=1e-9, abs=1e-9), gauge
    assert not placed.notes


@pytest.mark.parametrize("name", ["fifo", "srtf"])
def test_finish_time_fairness_has_one_yardstick_for_rigid_and_elastic_profiles(name: str) -> None:
    workload = Workload([Submission("a", 0.0, "linear", 800.0)], {"linear": Linear()})
    for fluid in (False, True):
        result = simulate(workload, Cluster((Group(1, 8),), fluid), profiles.build(name), Options())
        assert result.ended.tolist() == [800.0]
        assert result.gauges["finish_time_fairness"] == 8.0  # alone it could have had all 8 GPUs


def test_the_engines_agree_on_the_fairness_of_jobs_that_hold_what_they_ask_for() -> None:
    workload = drawn(5)
    asks = [replace(job, max=8 if n % 2 else 0) for n, job in enumerate(workload.submissions)]
    placed, fluid = (
        simulate(
            replace(workload, submissions=asks),
            Cluster((Group(1, 16),), fluid),
            replace(profiles.build("fifo"), order="strict"),
            Options(),
        )
        for fluid in (False, True)
    )
    assert placed.ended.tolist() == pytest.approx(fluid.ended.tolist())
    assert placed.gauges["finish_time_fairness"] == pytest.approx(fluid.gauges["finish_time_fairness"])
