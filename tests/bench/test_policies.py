"""Runs of `python -m e2e.bench policies` that are kept, so that a measure goes on where it was cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from e2e.bench import policies
from e2e.bench.live import replays
from e2e.bench.paper_in_place import InPlace
from e2e.bench.paper_profiles import PAPERS
from e2e.bench.policies import Kept
from e2e.bench.predicted import HOURS, Side
from e2e.bench.report import Progress
from e2e.bench.trainings import Trained
from e2e.bench.workload_one import PROFILES
from muster import profiles
from muster.core.cycle import cycle
from muster.core.snapshot_codec import dump
from muster.core.views.view import View
from muster.settings import load_settings, profile_of
from tests.scenario import job, node, snapshot

JOBS = {"jobs": 30, "seed": 1}
RUN = {"jct_s": 12.5, "release_s": 0.5, "differ": []}


def test_a_run_that_was_kept_is_found_by_family_and_number(tmp_path: Path) -> None:
    Kept(tmp_path, JOBS).keep("afs-l", 0, RUN)
    again = Kept(tmp_path, JOBS)
    assert again.run("afs-l", 0) == RUN | {"arguments": JOBS}
    assert again.run("afs-l", 1) is None
    assert again.run("fifo", 0) is None


def test_a_run_of_other_jobs_is_made_again(tmp_path: Path) -> None:
    Kept(tmp_path, JOBS).keep("afs-l", 0, RUN)
    assert Kept(tmp_path, JOBS | {"seed": 2}).run("afs-l", 0) is None


def test_a_run_that_did_not_measure_what_gpus_take_to_change_hands_is_made_again(tmp_path: Path) -> None:
    Kept(tmp_path, JOBS).keep("afs-l", 0, {"jct_s": 12.5, "differ": []})
    assert Kept(tmp_path, JOBS).run("afs-l", 0) is None


def test_a_run_that_was_cut_off_while_it_was_written_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "afs-l-0.run.part").write_text('{"jct_s": 12')
    assert Kept(tmp_path, JOBS).run("afs-l", 0) is None


def test_jobs_keep_the_size_that_they_ask_for_where_nothing_is_shared() -> None:
    job = Trained("job-0", 0.0, 4, 1, 8, 60.0, tuple(float(n) for n in range(9)))
    held = {name for name in policies.FAMILIES if Side(name, name).has(job).least == 4}
    assert held == {"fifo", "gang", "gang-pack", "specon"}


def test_every_profile_that_runs_on_a_cluster_can_be_measured() -> None:
    """Here, or on jobs of its paper."""
    live = {name for name, one in profiles.NAMED.items() if not one.simulation_only}
    assert live == {*policies.ALL, *PAPERS, *PROFILES}


def dumped(tmp_path: Path) -> Path:
    before = snapshot([node("n0")], jobs=[job("starts", worker=2)])
    profile = profiles.build("max-min")
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(dump(View(before, cycle(before, profile), profile))))
    return path


def test_plans_of_a_run_that_ended_before_it_was_cut_off_are_made_again_by_the_next(tmp_path: Path) -> None:
    kept, side = Kept(tmp_path, JOBS), Side("max-min", "max-min")
    kept.keep("max-min", 0, {"jct_s": 12.5, "release_s": 0.5, "dumps": [str(dumped(tmp_path))]})
    policies.replayed(Progress(), [(side, 0)], kept)
    run = Kept(tmp_path, JOBS).of("max-min", 0)
    assert (run["dumps"], run["differ"]) == (1, [])
    policies.replayed(Progress(), [(side, 0)], kept)  # its dumps are not looked at any more
    assert Kept(tmp_path, JOBS).of("max-min", 0) == run


@pytest.mark.parametrize(
    ("profile", "plugin", "argument", "seconds"),
    [("themis", "themis", "lease", 60.0), ("afs-p", "afs-p", "quantum", 360.0),
     ("tiresias-l", "tiresias-l", "threshold", 9000.0), ("pollux", "pollux", "delay", 1.5),
     ("tiresias-l-max", "tiresias-l", "threshold", 9000.0), ("afs-p-packed", "afs-p", "quantum", 360.0)],
)  # fmt: skip
def test_leases_quanta_and_rounds_are_as_compressed_as_the_jobs(
    tmp_path: Path, profile: str, plugin: str, argument: str, seconds: float
) -> None:
    hurried = Side(profile, profile, hurried=20.0).settings()
    assert hurried["pluginArgs"][plugin][argument] == seconds
    file = tmp_path / "muster.yaml"
    file.write_text(yaml.safe_dump(hurried))
    (share,) = (one for one in profile_of(load_settings(file)).shares if hasattr(one, argument))
    assert getattr(share, argument) == seconds
    assert "pluginArgs" not in Side(profile, profile).settings()


@pytest.mark.parametrize("profile", ["afs-p", "afs-l", "fifo"])
def test_what_resizes_cost_is_as_compressed_as_the_jobs(profile: str) -> None:
    side = Side(profile, profile, resize_cost=True, hurried=20.0)
    given = side.settings().get("pluginArgs", {}).get("resize-cost")
    assert given == (None if profile == "fifo" else {"horizon": 30.0, "cost": 1.5})
    profile_of(load_settings(yaml.safe_dump(side.settings())))


@pytest.mark.parametrize("profile", sorted(HOURS))
@pytest.mark.parametrize("hurried", [1.0, 20.0])
def test_a_cluster_takes_the_configuration_of_each_side(profile: str, hurried: float) -> None:
    profile_of(load_settings(yaml.safe_dump(Side(profile, profile, hurried=hurried).settings())))


@pytest.mark.parametrize("part", ["shares", "reservations", "whys"])
def test_a_plan_with_a_part_missing_is_not_replayed_identically(tmp_path: Path, part: str) -> None:
    path = dumped(tmp_path)
    whole = json.loads(path.read_text())
    assert replays(path)
    assert whole["plan"].pop(part)
    path.write_text(json.dumps(whole))
    assert not replays(path)


@pytest.mark.parametrize("name", PAPERS)
def test_a_cluster_takes_the_configuration_of_each_profile_on_its_papers_jobs(name: str) -> None:
    paper = PAPERS[name]
    in_place = {"devices": {"enabled": True}} if isinstance(paper, InPlace) else {}
    built = profile_of(load_settings(yaml.safe_dump(paper.settings() | in_place)))
    assert built.round == paper.round
