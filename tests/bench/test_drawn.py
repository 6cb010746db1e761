"""The jobs of `python -m e2e.bench elastic`, and what their load stands for."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from e2e.bench import demand
from e2e.bench.drawn import SHORTEST, Drawing, draw, part_of_philly, write
from e2e.bench.predicted import ELASTIC, RIGID, STRICT, Point
from e2e.bench.trainings import Trained
from muster.sim.submission import Curve, Submission
from muster.sim.workload import Workload

MODELS = {
    "chat": Curve("chat", (2.0, 3.0, 3.5, 4.0)),
    "vision": Curve("vision", tuple(10.0 * n**0.8 for n in range(1, 33))),
}
DRAWING = Drawing(jobs=300, seed=7)


def length(job: Trained, drawing: Drawing = DRAWING) -> float:
    """Trace seconds on the GPUs that it asks for."""
    return job.work / job.speeds[job.request] * drawing.speed


def test_the_same_seed_draws_the_same_jobs_and_another_does_not() -> None:
    assert draw(DRAWING, MODELS) == draw(DRAWING, MODELS)
    assert draw(DRAWING, MODELS) != draw(Drawing(jobs=300, seed=8), MODELS)


def test_another_load_changes_only_when_jobs_arrive() -> None:
    busy, calm = draw(Drawing(seed=3, load=4.0), MODELS), draw(Drawing(seed=3, load=1.0), MODELS)
    assert [(j.request, j.model, j.work) for j in busy] == [(j.request, j.model, j.work) for j in calm]
    assert [4.0 * j.at for j in busy] == pytest.approx([j.at for j in calm], abs=0.01)


def test_jobs_are_within_the_bounds_and_the_curves_of_their_models() -> None:
    found = draw(DRAWING, MODELS)
    assert all(SHORTEST - 1 <= length(job) <= DRAWING.longest + 1 for job in found)
    assert max(job.request for job in found) == 16, "half of 32 GPUs"
    for job in found:
        assert (job.least, job.most) == (1, {"chat": 4, "vision": 16}[job.model])
        assert job.request <= job.most
        assert job.speeds[:2] == (0.0, 1.0)
        assert len(job.speeds) == job.most + 1
    assert {job.request for job in draw(Drawing(jobs=300, request=4), MODELS)} == {1, 2, 4}


def test_lengths_are_not_squeezed_to_the_bounds() -> None:
    at_an_end = [job for job in draw(DRAWING, MODELS) if length(job) > 0.99 * DRAWING.longest]
    assert len(at_an_end) < 0.05 * DRAWING.jobs


def test_while_jobs_arrive_they_ask_for_the_load() -> None:
    found = draw(DRAWING, MODELS)
    asked = sum(job.request * length(job) for job in found) / DRAWING.speed
    offered = DRAWING.gpus * max(job.at for job in found)
    assert asked / offered == pytest.approx(DRAWING.load, rel=0.05)


def test_sizes_are_as_frequent_as_in_philly_among_jobs_of_such_lengths() -> None:
    sizes = Counter(job.request for job in draw(Drawing(jobs=3000), MODELS))
    assert sizes[1] > sizes[4] > sizes[2]
    alone = part_of_philly(Drawing(request=1)) / part_of_philly(Drawing())
    assert sizes[1] / 3000 == pytest.approx(alone, abs=0.03)


def test_the_part_of_philly_that_is_left_is_said() -> None:
    assert part_of_philly(Drawing()) == pytest.approx(0.09, abs=0.005)
    assert part_of_philly(Drawing(longest=9000.0)) > part_of_philly(Drawing())


def test_jobs_csv_has_a_row_a_job(tmp_path: Path) -> None:
    found = draw(Drawing(jobs=3), MODELS)
    write(found, tmp_path / "jobs.csv")
    with (tmp_path / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["job"] for row in rows] == ["job-00", "job-01", "job-02"]
    assert [int(row["request"]) for row in rows] == [job.request for job in found]
    assert {row["model"] for row in rows} <= set(MODELS)


def test_fifo_keeps_the_size_that_is_asked_for() -> None:
    (job,) = draw(Drawing(jobs=1), MODELS)
    assert ELASTIC.has(job) == job
    assert (RIGID.has(job).least, RIGID.has(job).most) == (job.request, job.request)
    assert STRICT.settings()["order"] == "strict"


def test_a_ratio_says_how_many_times_shorter_the_average_is() -> None:
    point = Point(Drawing(), {"afs-l": 100.0, "fifo": 150.0}, {})
    assert point.ratio(ELASTIC, RIGID) == 1.5


# --- what a load stands for -----------------------------------------------------------------------------------


def trace(*jobs: tuple[float, float, int]) -> Workload:
    """Jobs of (submission s, length s on their GPUs, GPUs)."""
    model = Curve("m", (1.0, 1.5, 2.0, 2.5))
    submissions = [
        Submission(f"j{number}", at, "m", lasts * model.speeds[gpus - 1], gpus)
        for number, (at, lasts, gpus) in enumerate(jobs)
    ]
    return Workload(submissions, {"m": model})


def test_the_load_of_a_trace_is_what_it_asks_for_by_what_there_is() -> None:
    found = demand.jobs(trace((0.0, 100.0, 4), (50.0, 60.0, 1), (200.0, 40.0, 1)))
    assert found.tolist() == [[0.0, 100.0, 4.0], [50.0, 60.0, 1.0], [200.0, 40.0, 1.0]]
    assert demand.load(found, gpus=2) == pytest.approx(500.0 / (2 * 200.0))


def test_a_busy_hour_counts_what_runs_from_before() -> None:
    early = [(0.0, 2 * 3600.0, 4)]
    rush = [(3600.0 + n, 1800.0 - n, 1) for n in range(10)]
    found = demand.jobs(trace(*early, *rush))
    # All of the second hour for the first job, half of it for ten others, less the seconds that they come late.
    asked = 4 * 3600.0 + sum(1800.0 - n for n in range(10))
    assert demand.busy_hours(found, gpus=3) == pytest.approx([asked / 3600.0 / 3])


def test_what_a_job_sees_weighs_traces_by_their_jobs() -> None:
    full = np.array([(0.0, 10.0, 64.0), (5.0, 10.0, 64.0), (10.0, 0.0, 64.0)])
    calm = np.array([(10.0 * n, 0.0, 1.0) for n in range(9)])
    assert demand.seen_by_a_job([full, calm]) == pytest.approx(2.0 * 3 / 12)
