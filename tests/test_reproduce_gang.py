"""`make reproduce PAPERS=gang`: what the authors' runs of Coach say of an epoch's seconds."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import pytest

from e2e.reproduce import gang, run
from e2e.reproduce._coach_runs import seconds_by_run, seconds_of
from e2e.reproduce.entry import Range
from muster.sim.presets import coach

NAMES = {"lenet": "LeNet", "resnet18": "Cifar10"}
"""Models of the preset, as the authors' folders are called."""


def job(chosen: float, minis: tuple[float, ...] = (9.0, 20.0, 21.0, 30.0, 40.0)) -> str:
    """As the authors' files have it: five mini-epochs, of which two workers have a line each, and two chosen ones."""
    first, *others = minis
    times = [first, others[0], others[1], others[2], 99.0, others[3], 99.0]
    return f"""[ {{
        "epochs": [ 1, 2, 3, 4, 4, 5, 5 | 6, 7 ],
        "servers": [ 1, 1, 2, 1, 1, 2, 2 | 1, 1 ],
        "workers": [ 1, 1, 1, 2, 2, 2, 2 | 1, 1 ],
        "time": [ {", ".join(map(str, times))} | {chosen}, {chosen + 1} ] }} ]"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs of single jobs, and two files that are none."""
    folder = tmp_path / "coach" / "LeNet"
    folder.mkdir(parents=True)
    (folder / "single_job_a.txt").write_text(job(22.0))
    (folder / "single_job_b_static.txt").write_text(job(30.0, (9.0, 30.0, 31.04, 35.0, 45.0)))
    (folder / "single_job_c.txt").write_text(job(24.0, (9.0, 25.0, 26.0, 36.0, 46.0)))
    (folder / "multi_job_a.txt").write_text(job(99.0))
    (folder / "single_job_cut.txt").write_text(job(1.0).replace("30.0, ", ""))
    return tmp_path


def test_a_runs_seconds_are_medians_without_the_first_epoch_and_once_an_epoch(runs: Path) -> None:
    assert seconds_by_run(runs, "LeNet") == [
        ((22.0, 21.0), (30.0, 40.0)),
        ((30.0, 31.04), (35.0, 45.0)),
        ((25.0, 26.0), (36.0, 46.0)),
    ]


def test_seconds_of_an_epoch_are_medians_over_runs_to_a_tenth(runs: Path) -> None:
    assert seconds_of(seconds_by_run(runs, "LeNet")) == ((25.0, 26.0), (35.0, 45.0))
    assert seconds_of([((31.04, 1.06), (2.0, 3.0))]) == ((31.0, 1.1), (2.0, 3.0))


@pytest.mark.parametrize("model", coach.SECONDS)
def test_the_presets_seconds_are_what_the_rule_gives_of_the_authors_runs(model: str) -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    by_run = seconds_by_run(run.DATA, NAMES[model])
    assert len(by_run) == 7
    assert seconds_of(by_run) == coach.SECONDS[model]


def test_coachs_figures_are_ranges_over_the_authors_runs(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "DRAWS", 1)
    gang._dynamic.cache_clear()
    assert astuple(gang._mini(runs, min)) == pytest.approx((31.4, 21.0, 31.4))
    assert astuple(gang._mini(runs, max)) == pytest.approx((39.0, 39.0, 46.0))
    assert gang._choice(runs, 0) == Range(1.0, 1.0, 1.0)
    gang._dynamic.cache_clear()


def test_three_lenets_run_with_the_shortest_and_the_longest_epochs_too(runs: Path) -> None:
    longest, shortest = ((25.0, 26.0), (36.0, 46.0)), ((22.0, 21.0), (30.0, 40.0))
    assert gang._cases(runs) == (*gang.CASES, gang.Case(seconds=shortest), gang.Case(seconds=longest))


def test_what_only_gives_back_the_authors_seconds_is_by_construction(runs: Path) -> None:
    made = {entry.name: entry for entry in gang._choices(runs)}
    assert [name for name, entry in made.items() if entry.fitted] == [
        "Coach, longest mini-epoch",
        "Coach, shortest mini-epoch",
    ]
