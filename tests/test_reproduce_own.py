"""The sizes of Philly's virtual clusters that `make reproduce PAPERS=own` simulates."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from e2e.demo.trace import BadTraceError, TracedJob
from e2e.reproduce import own
from e2e.reproduce._own_size import own_size, own_sizes
from tests.demo.test_workload import philly

NIGHT = datetime(2017, 10, 9)


def job(at: float, hours: float, gpus: int) -> TracedJob:
    """One that is submitted `at` hours after midnight."""
    return TracedJob(NIGHT + timedelta(hours=at), hours * 3600.0, gpus, "vc")


def test_a_peak_of_less_than_a_hundredth_of_the_time_does_not_count() -> None:
    assert own_size([job(0.0, 100.0, 9), job(50.0, 0.9, 64)]) == 16, "9 GPUs are two nodes"
    assert own_size([job(0.0, 100.0, 9), job(50.0, 1.1, 64)]) == 80, "73 GPUs are ten"


def test_a_job_that_begins_when_another_ends_is_not_beside_it() -> None:
    assert own_size([job(0.0, 10.0, 8), job(10.0, 10.0, 8)]) == 8
    assert own_size([job(0.0, 10.0, 8), job(9.0, 10.0, 8)]) == 16


def test_the_sizes_are_those_of_the_trace() -> None:
    found = own_sizes(philly())
    assert {vc: found[vc] for vc in own.ORDER} == own.OWN


def test_a_file_that_is_no_trace_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "philly.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadTraceError, match=r"philly\.csv, line 2: expected timestamp"):
        own_sizes(tmp_path / "philly.csv")
