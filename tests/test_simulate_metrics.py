"""Figures from a Result: counted by hand, percentiles as numpy's linear ones, hours."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from muster.sim import figures
from muster.sim.result import Result
from muster.sim.workload import Problem

NAN = math.nan


def result(**fields: object) -> Result:
    """Three jobs on 4 GPUs: two done after 1 h and 3 h, the second of them restarted once; the third never ended."""
    made = Result(
        profile="fifo",
        names=["a", "b", "c"],
        submitted=np.array([0.0, 1800.0, 3600.0]),
        started=np.array([0.0, 3600.0, NAN]),
        ended=np.array([3600.0, 12600.0, NAN]),
        restarts=np.array([0, 1, 0]),
        moves=np.array([0, 2, 0]),
        gpu_seconds=np.array([7200.0, 18000.5, 0.0]),
        gpus=4,
        gauges={"queue": 0.5, "utilisation": 0.5, "jobs": 1.5},
        events=6,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def test_the_figures_of_three_jobs() -> None:
    found = figures.figures(result())
    assert found == {
        "jobs": 3,
        "completed": 2,
        "unfinished": 1,
        "never_started": 1,
        "avg_jct_h": 2.0,
        "p50_jct_h": 2.0,
        "p90_jct_h": pytest.approx(2.8),
        "p99_jct_h": pytest.approx(2.98),
        "makespan_h": 3.5,
        "avg_queueing_h": 0.25,
        "p50_queueing_h": 0.25,
        "p99_queueing_h": pytest.approx(0.495),
        "gpu_hours": pytest.approx(25200.5 / 3600),
        "restarts": 1,
        "migrations": 2,
        "gpus": 4,
        "events": 6,
        "avg_queue": 0.5,
        "utilisation": 0.5,
        "avg_jobs": 1.5,
    }


def test_makespan_counts_from_the_first_submission_not_from_zero() -> None:
    later = result(submitted=np.array([900.0, 1800.0, 3600.0]))
    assert figures.figures(later)["makespan_h"] == 3.25


def test_json_is_keyed_by_the_profile_as_given_and_has_null_for_what_does_not_exist() -> None:
    none = result(ended=np.full(3, NAN), cut="interrupted at 5 s", notes=("own",))
    text = figures.as_json({"fifo:order=strict": none}, [Problem(3, "what", "left out")], ["shared"])
    plain = json.loads(text)
    assert list(plain) == ["fifo:order=strict"]
    one = plain["fifo:order=strict"]
    assert (one["jobs"], one["completed"], one["avg_jct_h"], one["makespan_h"]) == (3, 0, None, None)
    assert (one["cut"], one["notes"]) == ("interrupted at 5 s", ["shared", "own"])
    assert one["problems"] == [{"line": 3, "what": "what", "done": "left out"}]


def test_jobs_csv_has_a_row_a_profile_and_job_and_numbers_that_read_back() -> None:
    third = result(submitted=np.array([0.1, 1800.0, 3600.0]), ended=np.array([1 / 3, 12600.0, NAN]))
    text = figures.jobs_csv({"x:a=1,b=2": result(), "y": third})
    rows = list(csv.DictReader(io.StringIO(text)))
    assert text.splitlines()[0] == "profile,job,submit_s,start_s,end_s,jct_s,restarts,gpu_seconds"
    assert [(row["profile"], row["job"]) for row in rows] == [
        (p, j) for p in ("x:a=1,b=2", "y") for j in "abc"
    ]
    assert list(rows[1].values()) == ["x:a=1,b=2", "b", "1800", "3600", "12600", "10800", "1", "18000.5"]
    assert list(rows[2].values()) == ["x:a=1,b=2", "c", "3600", "", "", "", "0", "0"]
    assert float(rows[3]["jct_s"]) == 1 / 3 - 0.1


def test_problems_of_the_trace_and_of_the_run_are_listed_once() -> None:
    shared, own = Problem(3, "a, b", "left out"), Problem(0, "never fits", "never started")
    assert figures.all_problems(result(problems=(own, shared)), [shared]) == [shared, own]
    assert (
        figures.problems_csv([shared, own])
        == 'line,what,done\n3,"a, b",left out\n,never fits,never started\n'
    )
