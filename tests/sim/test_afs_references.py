"""AFS's virtual clusters against the authors' own simulator: every job, to the second."""

import csv
import gzip
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from muster import profiles
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.result import Result
from muster.sim.traces import Asked, read
from muster.sim.workload import Cluster, Group, Workload

SIXTY_FOUR = Cluster((Group(16, 4),), fluid=True)
EXACT = {
    "max-min": "Max-Min",
    "afs-l": "AFS-L",
    "afs-s": "AFS-S",
    "optimus": "Optimus",
    "srsf": "SRSF",
    "srtf": "SRTF",
    "tiresias-l": "Tiresias-L",
}


@cache
def cluster(traces: Path, name: str) -> Workload:
    return read(Asked(traces / "afs" / f"trace_{name}.csv.gz", gpus=64))[0]


def run(traces: Path, name: str, profile: str) -> Result:
    options = Options(whole_seconds=True)
    return simulate(cluster(traces, name), SIXTY_FOUR, profiles.build(profile), options)


def hours(result: Result) -> float:
    return float((result.ended - result.submitted).mean() / 3600.0)


@pytest.mark.parametrize("profile", EXACT)
def test_each_job_of_2869ce_ends_in_the_second_of_the_authors_simulator(traces: Path, profile: str) -> None:
    with gzip.open(traces / "expected" / "afs-2869ce-jct-s.csv.gz", "rt") as file:
        expected = [float(row[EXACT[profile]]) for row in csv.DictReader(file)]
    result = run(traces, "2869ce", profile)
    assert (result.ended - result.submitted).tolist() == expected


def test_afs_p_is_within_what_its_coins_change(traces: Path) -> None:
    assert hours(run(traces, "2869ce", "afs-p")) == pytest.approx(15.99, rel=0.002)
    assert hours(run(traces, "e13805", "afs-p")) == pytest.approx(15.46, rel=0.002)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [("srtf", 23.92), ("srsf", 24.04), ("max-min", 17.92), ("afs-l", 15.32), ("afs-s", 17.92),
     ("optimus", 20.24), ("tiresias-l", 33.40)],
)  # fmt: skip
def test_average_completion_times_of_e13805(traces: Path, profile: str, expected: float) -> None:
    assert round(hours(run(traces, "e13805", profile)), 2) == expected


def test_tiresias_l_on_6c71a0_where_one_second_of_one_job_moves_the_average_by_hours(traces: Path) -> None:
    assert round(hours(run(traces, "6c71a0", "tiresias-l")), 2) == 91.02


def test_tail_and_makespan_of_2869ce_under_afs_l(traces: Path) -> None:
    result = run(traces, "2869ce", "afs-l")
    lengths = result.ended - result.submitted
    assert round(float(np.percentile(lengths, 99)) / 3600.0, 2) == 135.90
    assert round(float(result.ended.max() - result.submitted.min()) / 3600.0, 2) == 2269.44
