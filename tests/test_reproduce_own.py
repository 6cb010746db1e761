"""What `make reproduce PAPERS=own` simulates, and that the page on tide says what came out."""

from __future__ import annotations

import re
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


PAGE = (Path(__file__).parents[1] / "plugins" / "README.md").read_text(encoding="utf-8")
TIDE = PAGE[PAGE.index("\n## Tide\n") : PAGE.index("\n## On a live cluster\n")]


def rows(head: str) -> dict[str, list[str]]:
    """The cells of the table on tide's page whose head begins so, by the first of each row."""
    table = TIDE[TIDE.index(f"\n| {head}") + 1 :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {first: others for first, *others in cells}


def test_each_figure_has_a_name_of_its_own_and_the_page_s_commands_name_some(tmp_path: Path) -> None:
    names = [entry.name for entry in own.entries(tmp_path)]
    assert len(set(names)) == len(names)
    asked = re.findall(r"--only '?([^'`]+)", TIDE)
    assert len(asked) >= 2
    assert [text for text in asked if not any(text.lower() in name.lower() for name in names)] == []


def test_an_aim_that_the_page_s_table_misses_is_told_as_missed_and_no_other() -> None:
    table = rows("64 GPUs, tide / AFS-L")
    assert [vc.split()[0] for vc in table] == list(own.ORDER)
    assert [vc for vc in table if "tuned" in vc] == [f"{vc} (tuned)" for vc in own.TUNED]
    missed = {
        (vc.split()[0], what)
        for vc, figures in table.items()
        for (what, aim), figure in zip(own.AIMS.items(), figures[: len(own.AIMS)], strict=True)
        if float(figure) > aim
    }
    assert missed == set(own.MISSED)


def test_every_aim_is_met_or_missed() -> None:
    aims = rows("aim |")
    assert len(aims) == 9
    assert {aim: verdict for aim, (verdict, _) in aims.items() if verdict not in ("met", "missed")} == {}


@pytest.mark.parametrize(
    ("head", "count"),
    [
        ("restarts | `tide-packed`", 6),
        ("`tide-packed` / | mean JCT, workloads 1 to 8", 13),
        ("`tide-packed` / | no restarts", 22),
    ],
)
def test_each_of_polluxs_eight_workloads_has_its_figure_or_none(head: str, count: int) -> None:
    lists = [cell.split(", ") for row in rows(head).values() for cell in row if ", " in cell]
    assert len(lists) == count
    for figures in lists:
        assert [bool(re.fullmatch(r"\d\.\d+|-", figure)) for figure in figures] == [True] * 8, figures
