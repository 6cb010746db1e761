"""Pollux's measurements: what a folder holds, and how fast and how far a job gets by it."""

import csv
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.makers import Makers
from muster.sim.models import pollux
from muster.sim.models.pollux import Application, packed, ring
from muster.sim.options import Options
from muster.sim.physics import RESUME, START, Change, Running, Stage
from muster.sim.traces.source import UnreadableError
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config, Grant
from tests.sim.course import course

STEP = {"1": 1.0, "2": 0.6, "11": 0.8, "12": 0.5, "22": 0.4}


def folder(path: Path, *, epochs: int = 3, name: str = "toy", louder: float = 1.0) -> Path:
    """An application measured at batch sizes 8 and 32 and local batch sizes 2 to 8; half of a step is exchange.
    louder: by what the noise of the gradients grows with each epoch, and so the goodput of a large batch."""
    (path / name).mkdir(parents=True)
    for batch, noise in ((8, 1.0), (32, 3.0)):
        rows = [
            {"iteration": 10 * (e + 1) * 8 // batch, "progress": 10.0 * (e + 1) + batch / 8, "metric": 0.5,
             "grad_sqr": 1.0, "grad_var": noise * louder**e}
            for e in range(epochs)
        ]  # fmt: skip
        written(path / name / f"validation-{batch}.csv", rows)
    rows = [
        {"placement": place, "local_bsz": b, "step_time": t * b / 8, "sync_time": t * b / 16}
        for place, t in STEP.items()
        for b in (2, 8)
    ]
    written(path / f"{name}-placements.csv", rows)
    wide = [(n, r, b, 0.1) for n in (3, 4) for r in (4, 16) for b in (2, 8)]
    written(
        path / f"{name}-scalability.csv",
        [
            {"num_nodes": n, "num_replicas": r, "local_bsz": b, "step_time": t, "sync_time": 0.0}
            for n, r, b, t in wide
        ],
    )
    return path


def written(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def toy(tmp_path: Path) -> Application:
    found = pollux.read(folder(tmp_path))["toy"]
    assert isinstance(found, Application)
    return found


def run(*nodes: int, batch: int = 16) -> Config:
    return Config((("worker", sum(nodes)),), nodes, "", batch)


def test_an_epoch_ends_where_the_least_run_had_got_and_the_last_end_is_the_work(toy: Application) -> None:
    assert toy.ends == (0.0, 11.0, 21.0, 31.0)
    assert [toy.epoch(x) for x in (0.0, 10.9, 11.0, 30.0, 31.0)] == [0, 0, 1, 2, 3]
    assert [toy.epoch_end(x) for x in (0.0, 11.0, 31.0)] == [11.0, 21.0, math.inf]
    assert pollux.submission("a", 5.0, "toy", 2, 16, {"toy": toy}).work == 31.0


def test_goodput_is_progress_a_second(toy: Application) -> None:
    """Batch 16 on two GPUs of a node: 8 each, 0.6 s. Noise between the runs at 8 (1) and 32 (3): 1 + 8/24 x 2 = 5/3;
    (5/3 + 1) / (5/3 / 2 + 1) iterations of the small batch a step."""
    assert toy.speed(run(2)) == pytest.approx((5 / 3 + 1) / (5 / 6 + 1) / 0.6)


def test_a_replica_accumulates_what_it_cannot_hold_and_one_alone_always_twice(toy: Application) -> None:
    assert toy.local(32, 4) == (8, 0)
    assert toy.local(32, 2) == (8, 1)
    assert toy.local(8, 1) == (8, 0)
    assert toy.local(8, 1, accumulate=True) == (4, 1)
    assert toy.local(16, 1) == (8, 1)


def test_a_placement_reads_the_same_wherever_it_begins(toy: Application) -> None:
    assert ring((4, 2, 4)) == ring((2, 4, 4)) == (2, 4, 4)
    assert toy.step_time((2, 1), 8) == toy.step_time((1, 2), 8) == (0.5, 0.25)
    assert toy.step_time((2, 1), 5)[0] == pytest.approx(0.5 * 5 / 8)
    assert packed(6, 4) == (4, 2)


def test_what_was_not_measured_is_interpolated_and_beyond_that_the_nearest_holds(toy: Application) -> None:
    inside, _ = toy.step_time((4, 3, 1), 8)
    assert 0.05 < inside < 0.5
    assert toy.step_time((4, 4, 4, 4, 4, 4), 8) == (0.1, 0.0)


def test_declared_speeds_are_of_steps_packed_and_the_work_of_all_iterations(toy: Application) -> None:
    submission = pollux.submission("a", 0.0, "toy", 2, 16, {"toy": toy})
    work, speeds = toy.declared(submission, 2)
    one = 1.0 + 0.5  # two passes of 8, one exchange
    assert dict(speeds)[2] == pytest.approx(one / 0.6)
    assert dict(speeds)[4] == pytest.approx(one / (0.4 * 4 / 8))
    assert work == pytest.approx((30 * 2 / 3 + 7 * 1 / 3) * one)
    assert toy.declared(submission, 2) is toy.declared(submission, 2)


def test_a_job_ends_when_the_sum_of_its_epochs_is_over_in_both_engines(tmp_path: Path) -> None:
    toy = pollux.read(folder(tmp_path, louder=100.0))["toy"]
    assert isinstance(toy, Application)
    speeds = [toy.speed_at(run(2, batch=32), (a + b) / 2) for a, b in pairwise(toy.ends)]
    assert speeds[2] > 1.5 * speeds[0]
    seconds = sum((b - a) / speed for (a, b), speed in zip(pairwise(toy.ends), speeds, strict=True))
    jobs = [replace(pollux.submission("a", 0.0, "toy", 2, 32, {"toy": toy}), min=2, max=2)]
    for fluid in (True, False):
        cluster = Cluster((Group(1, 2),), fluid)
        result = simulate(Workload(jobs, {"toy": toy}), cluster, build("max-min"), Options(restart=0.0))
        assert result.ended.tolist() == pytest.approx([seconds])


def test_a_job_that_is_done_has_nothing_left_of_what_is_declared(tmp_path: Path) -> None:
    """Whatever the speed of its first epoch is."""
    toy = pollux.read(folder(tmp_path, louder=100.0))["toy"]
    jobs = [pollux.submission("a", 0.0, "toy", 2, 32, {"toy": toy})]
    makers = Makers({"toy": toy}, Cluster((Group(2, 2),)), 4, 2)
    training = makers.training(0, 1, jobs[0])
    assert training.declared > 0.0
    assert training.total / training.one == pytest.approx(training.declared)


def test_reports_count_iterations_to_the_end_of_the_epoch_and_leave_one_in_the_last(toy: Application) -> None:
    physics = pollux.physics(Options(restart=30.0))
    submission = pollux.submission("a", 0.0, "toy", 2, 8, {"toy": toy})
    left = []
    for step in (0.0, 11.0, 21.0):
        job = Running(0, submission, toy, run(2, batch=8), ("n0", "n0"), step, 0.0)
        report = physics.report(job, Stage(1.0, 11.0, 31.0), boundary=False)
        left.append((report.total - report.step, report.epoch))
    assert left == [(20.0, 0), (10.0, 1), (1.0, 2)]


def test_the_first_start_costs_what_a_restart_costs(toy: Application) -> None:
    physics = pollux.physics(Options(restart=30.0))
    submission = pollux.submission("a", 0.0, "toy", 2, 8, {"toy": toy})
    job = Running(0, submission, toy, run(2), ("n0",), 0.0, 0.0)
    assert [physics.cost(Change(kind, "restart", None, job)).pause for kind in (START, RESUME)] == [
        30.0,
        30.0,
    ]


def test_another_batch_size_is_no_restart_and_costs_nothing(tmp_path: Path) -> None:
    toy = pollux.read(folder(tmp_path))["toy"]
    assert isinstance(toy, Application)
    jobs = [replace(pollux.submission("a", 0.0, "toy", 2, 8, {"toy": toy}), min=2, max=2)]
    grants = {0: {"a": (2, Grant(batch=8))}, 4: {"a": (2, Grant(batch=32))}}
    workload = Workload(jobs, {"toy": toy}, physics=pollux.physics)
    result = simulate(
        workload, Cluster((Group(1, 2),)), course(grants, resize="restart"), Options(restart=3.0)
    )
    first = toy.speed_at(run(2, batch=8), 0.0)
    ends, at, step = list(toy.ends[1:]), 3.0, 0.0
    for end in ends:
        if at < 4.0:
            step, at = first * 1.0, 4.0
        at += round((end - step) / toy.speed_at(run(2, batch=32), step))
        step = end
    assert result.ended.tolist() == [at]
    assert result.restarts.tolist() == [0]


def test_noise_is_the_gradients_variance_over_their_squared_norm_in_samples(toy: Application) -> None:
    run = toy.runs[32]
    assert toy.noise(32, 1) == pytest.approx(run.grad_var[1] / run.grad_sqr[1] * 8)


def test_a_row_whose_batch_size_was_not_measured_is_refused(toy: Application) -> None:
    with pytest.raises(ValueError, match="batch_size of toy must be from 8 to 32; found 64"):
        pollux.submission("a", 0.0, "toy", 2, 64, {"toy": toy})


def test_a_folder_that_lacks_something_says_what(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="placements"):
        pollux.read(tmp_path)
    short = folder(tmp_path / "short", epochs=1, name="bert")
    with pytest.raises(UnreadableError, match="holds 1 epochs, 2 are needed"):
        pollux.read(short)
    broken = folder(tmp_path / "broken")
    (broken / "toy-placements.csv").write_text("placement,local_bsz,step_time,sync_time\n1,2,fast,0\n")
    with pytest.raises(UnreadableError, match="line 2: needs numbers"):
        pollux.read(broken)


def test_the_six_applications_are_read(traces: Path) -> None:
    models = pollux.read(traces / "pollux")
    assert {name: model.max for name, model in models.items()} == {
        "bert": 96, "cifar10": 128, "deepspeech2": 64, "imagenet": 640, "ncf": 1, "yolov3": 128,
    }  # fmt: skip
