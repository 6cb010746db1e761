"""The hour that the demo submits: drawn or traced, always the same for the same seed, and never more than asked."""

from __future__ import annotations

import gzip
import os
import random
from dataclasses import asdict
from pathlib import Path

import pytest

from e2e.demo import trace
from e2e.demo.statistics import work_out
from e2e.demo.trace import BadTraceError
from e2e.demo.workload import Submission, Workload, drawn, elastic, manifest, traced, workers
from muster.sim.philly import PHILLY

HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def philly() -> Path:
    """The trace, where TRACES or the project's neighbour folder has it."""
    beside = Path(__file__).parents[2].parent / "shared" / "data"
    path = Path(os.environ.get("TRACES") or beside) / "philly" / "philly.csv.gz"
    if not path.exists():
        pytest.skip("no Philly trace: TRACES=folder names the data")
    return path


def hour(seed: int = 1, **options: object) -> object:
    return drawn(PHILLY, seed, 60, gpus=128, window=3600.0, cap=1800.0, worker=None, **options)  # type: ignore[arg-type]


def test_the_constants_agree_with_the_trace() -> None:
    assert asdict(work_out(philly())) == asdict(PHILLY)


def test_the_same_seed_gives_the_same_hour_and_another_another() -> None:
    assert hour(1) == hour(1)
    assert hour(1) != hour(2)


def test_a_drawn_hour_keeps_to_its_window_its_cap_and_half_of_the_lab() -> None:
    for seed in range(20):
        made = drawn(PHILLY, seed, 60, gpus=128, window=3600.0, cap=1800.0, worker=None)
        moments = [job.at for job in made.jobs]
        assert moments == sorted(moments)
        assert moments[0] == 0.0
        assert moments[-1] <= 3600.0
        assert all(0 < job.duration <= 1800.0 and job.gpus <= 64 and job.pod_gpus <= 8 for job in made.jobs)


@pytest.mark.parametrize(
    ("gpus", "worker", "expected"),
    [(1, 4, (1, 1)), (8, 4, (2, 4)), (12, 8, (2, 6)), (64, 8, (8, 8)), (7, 4, (7, 1)), (2, 8, (1, 2))],
)
def test_a_given_size_of_workers_makes_as_few_pods_as_can_be(
    gpus: int, worker: int, expected: tuple[int, int]
) -> None:
    assert workers(gpus, worker, random.Random(0)) == expected


def test_drawn_workers_divide_the_job() -> None:
    rng = random.Random(0)
    assert {workers(8, None, rng) for _ in range(100)} == {(8, 1), (4, 2), (2, 4), (1, 8)}
    assert {workers(12, None, rng) for _ in range(100)} == {(12, 1), (6, 2), (3, 4)}


def test_an_hour_of_a_trace_has_what_runs_and_what_is_submitted_and_leaves_out_what_is_too_big(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write(
            HEAD
            + "2017-10-01 00:10:00,60,8,480,a\n"  # ended long before
            + "2017-10-01 01:30:00,5400,4,21600,a\n"  # runs at 02:00, 3600 s to go
            + "2017-10-01 02:00:30,100000,16,1600000,a\n"  # capped
            + "2017-10-01 02:10:00,600,32,19200,a\n"  # too big
            + "2017-10-01 02:20:00,600,1,600,b\n"
            + "2017-10-01 02:30:00,600,1,600,a\n"
        )
    made = traced(trace.read(path), gpus=32, cap=1800.0, seed=1, worker=8, cluster="a")
    assert [(job.at, job.duration, job.gpus, job.pods) for job in made.jobs] == [
        (0.0, 1800.0, 4, 1),
        (30.0, 1800.0, 16, 2),
        (1800.0, 600.0, 1, 1),
    ]
    assert made.left_out == ("1 jobs of more than 16 GPUs",)
    assert "hour 2 of the trace" in made.source


def test_the_real_trace_gives_an_overloaded_hour() -> None:
    made = traced(trace.read(philly()), gpus=128, cap=3600.0, seed=1, worker=None)
    assert made.load(128) > 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "timestamp,duration\n2017-10-01 00:10:00,60\n",
            "line 2: expected timestamp, duration (s), num_gpus",
        ),
        (HEAD + "yesterday,60,8,480,a\n", "line 2"),
        (HEAD, "no job in it asks for a GPU"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_the_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(BadTraceError, match=said.replace("(", r"\(").replace(")", r"\)")):
        trace.read(path)


@pytest.mark.parametrize(
    ("options", "said"), [({"cluster": "x"}, "has no virtual cluster"), ({"hour": 7}, "hour 7")]
)
def test_an_hour_or_cluster_that_is_not_there_is_said(
    tmp_path: Path, options: dict[str, object], said: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEAD + "2017-10-01 00:10:00,60,8,480,a\n")
    with pytest.raises(BadTraceError, match=said):
        traced(trace.read(path), gpus=32, cap=60.0, seed=1, worker=8, **options)  # type: ignore[arg-type]


def test_the_pods_of_a_job_run_until_the_demo_ends_them() -> None:
    made = drawn(PHILLY, 1, 5, gpus=128, window=3600.0, cap=1800.0, worker=None).jobs[0]
    body = manifest(made, 2, "default-scheduler")
    template = body["spec"]["template"]
    assert body["metadata"]["name"] == f"{made.name}-try2"
    assert body["spec"]["parallelism"] == body["spec"]["completions"] == made.pods
    assert template["metadata"]["annotations"] == {}
    assert template["spec"]["schedulerName"] == "default-scheduler"


def test_jobs_of_more_than_one_gpu_become_elastic_and_keep_their_work() -> None:
    single = Submission("single", 0.0, 600.0, pods=1, pod_gpus=1)
    gang = Submission("gang", 5.0, 600.0, pods=4, pod_gpus=2)
    large = Submission("large", 9.0, 600.0, pods=3, pod_gpus=8)
    made = elastic(Workload("invented", (single, gang, large), 60.0, 600.0), gpus=64, serial=0.5)
    assert made.jobs[0] == single
    alone, stretched, most = made.jobs
    assert (alone.least, alone.most) == (1, 1)
    assert (stretched.gpus, stretched.least, stretched.most) == (8, 1, 8)
    assert (most.least, most.most) == (1, 4)  # half of the cluster is 32 GPUs
    # Amdahl's law with half of a step serial: 2 GPUs 4/3 times as fast as one, 4 GPUs 8/5, 8 GPUs 16/9.
    assert stretched.speeds[:3] == pytest.approx((0.0, 1.0, (8 / 5) / (4 / 3)))
    assert [stretched.rate(n) for n in (0, 4)] == [0.0, 1.0]
    assert stretched.rate(1) == pytest.approx((4 / 3) / (16 / 9))


def test_an_elastic_job_tells_muster_what_it_is_in_seconds_of_this_machine() -> None:
    one = Submission("gang", 0.0, 900.0, pods=2, pod_gpus=4, speeds=(0.0, 1.0, 1.5, 1.8))
    spec = manifest(one, 1, "muster", pace=90.0)["spec"]
    assert (spec["parallelism"], spec["completions"], spec["successPolicy"]) == (
        3,
        3,
        {"rules": [{"succeededIndexes": "0"}]},
    )
    assert spec["template"]["metadata"]["annotations"] == {
        "muster.dev/min-replicas": "1",
        "muster.dev/max-replicas": "3",
        "e2e.muster.dev/stop-seconds": "0",
        "muster.dev/request": "2",
        "muster.dev/speed": "1=1.0000,2=1.5000,3=1.8000",
        "muster.dev/remaining-work": "15.000",
    }
