"""Gavel's throughputs: by product, scale factor and neighbour; and whole iterations in a round."""

import json
from pathlib import Path

import pytest

from muster.sim.engine import simulate
from muster.sim.models import gavel
from muster.sim.models.gavel import Configuration
from muster.sim.options import Options
from muster.sim.submission import Submission
from muster.sim.traces.source import UnreadableError
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config
from tests.sim.course import FIFO

A, B = "ResNet-18 (batch size 16)", "LM (batch size 5)"


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Configuration]:
    a, b = str((A, 1)), str((B, 1))
    cells = {a: {"null": 4.0, b: [3.0, 1.5]}, b: {"null": 2.0, a: [1.5, 3.0]}, str((A, 2)): {"null": 7.0}}
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"v100": cells, "k80": {a: {"null": 0.0}}, "v100_unconsolidated": cells}))
    found = gavel.read(file)
    assert all(isinstance(m, Configuration) for m in found.values())
    return found  # type: ignore[return-value]


def on(product: str, count: int = 1, beside: str = "") -> Config:
    return Config((("worker", count),), (1,) * count, product, 0, beside)


def test_speeds_are_those_of_the_file(models: dict[str, Configuration]) -> None:
    assert models[A].speed(on("v100")) == models[A].speed(on("")) == models[A].speed(on("V100")) == 4.0
    assert models[A].speed(on("v100", 2)) == 7.0
    assert models[A].speed(on("v100", beside=B)) == 3.0
    assert models[B].speed(on("v100", beside=A)) == 1.5
    assert models[A].max == 2


def test_where_it_does_not_run_or_was_not_measured_it_has_no_speed(models: dict[str, Configuration]) -> None:
    assert models[A].speed(on("k80")) == models[A].speed(on("v100", 3)) == models[B].speed(on("a100")) == 0.0


def test_a_job_is_rigid_at_its_scale_factor_which_must_have_been_measured(
    models: dict[str, Configuration],
) -> None:
    job = gavel.submission("0", A, 100.0, 2, 5.0, [], models)
    assert (job.request, job.min, job.max, job.work, job.submitted) == (2, 2, 2, 100.0, 5.0)
    with pytest.raises(ValueError, match="was not measured on 4 GPUs"):
        gavel.submission("0", A, 100.0, 4, 5.0, [], models)


def end_of(speed: float, work: float, **options: float) -> float:
    """When a job ends that runs all the time from 0 on."""
    model = Configuration("m", {("v100", 1): speed})
    job = Submission("x", 0.0, "m", work, 1, 1, 1)
    workload = Workload([job], {"m": model}, physics=gavel.physics)
    result = simulate(workload, Cluster((Group(1, 1, "v100"),)), FIFO, Options(**options))  # type: ignore[arg-type]
    return float(result.ended[0])


def test_a_round_takes_whole_iterations_only() -> None:
    """0.03/s: 10.8 in a round of 360 s, so ten, and what is left in the third: 5 / 0.03."""
    assert end_of(0.03, 25.0) == pytest.approx(720.0 + 5 / 0.03)
    assert end_of(0.03, 10.0) == pytest.approx(10 / 0.03)
    assert end_of(0.03, 20.0) == pytest.approx(360.0 + 10 / 0.03)


def test_the_round_is_the_users() -> None:
    assert end_of(0.03, 25.0, round=100.0) == pytest.approx(800.0 + 1 / 0.03)


def test_a_job_too_slow_for_one_iteration_a_round_still_ends() -> None:
    assert end_of(0.001, 2.0) == pytest.approx(2000.0)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"v100": {"ResNet": {"null": 1}}}', '{"v100": {"(\'a\', 1)": {}}}']
)
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(UnreadableError, match=r"t\.json"):
        gavel.read(tmp_path / "t.json")


def test_all_26_configurations_are_read(traces: Path) -> None:
    models = gavel.read(traces / "gavel/simulation_throughputs.json.gz")
    assert len(models) == 26
    assert max(model.max for model in models.values()) == 8
