"""What `make reproduce` calls met, missed and failed."""

from __future__ import annotations

import math
import sys
import types
from functools import partial
from pathlib import Path

import pytest

from e2e.reproduce import _page, run, table
from e2e.reproduce.entry import FREE, ONE, Entry, Range


def entry(result: float, target: float | None = 10.0, **fields: object) -> Entry:
    plain = {"unit": "h", "tolerance": 0.05, "why": "because", "quick": True, "measure": lambda: result}
    return Entry(**{"name": f"figure {result}", "target": target, **plain, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expect", "target", "results"),
    [
        ("within", 10.0, {9.5: True, 10.5: True, 9.4: False, 10.6: False, math.nan: False}),
        ("within", -10.0, {-9.5: True, -10.6: False, 10.0: False}),
        ("at least", 10.0, {9.5: True, 99.0: True, 9.4: False, math.nan: False}),
        ("at most", 10.0, {10.5: True, 0.0: True, 10.6: False, math.nan: False}),
        ("sign", -14.7, {-0.1: True, -50.0: True, 0.0: False, 3.0: False, math.nan: False}),
        ("within", None, {3.0: True}),
    ],
)
def test_a_result_meets_its_target(expect: str, target: float | None, results: dict[float, bool]) -> None:
    assert {r: entry(r, target, expect=expect).met(r) for r in results} == results


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> str:
    def broken() -> float:
        raise ValueError("no data")

    made = types.ModuleType("e2e.reproduce.somebody")
    made.entries = lambda _: [  # type: ignore[attr-defined]
        entry(10.1, basis="paper"),
        entry(12.0, claimed=False, why="the paper leaves it open", basis="authors"),
        entry(10.0, claimed=False, basis="own"),
        entry(13.0),
        entry(7.0, None),
        entry(1.0, quick=False),
        entry(0.0, measure=broken),
    ]
    monkeypatch.setitem(sys.modules, "e2e.reproduce.somebody", made)
    return "somebody"


def test_only_a_claim_that_does_not_hold_or_an_error_fails(paper: str) -> None:
    rows = run.measure(paper, quick=True)
    assert [(row.verdict, row.failed) for row in rows] == [
        ("met", False),
        ("missed", False),
        ("holds, not claimed", False),
        ("FAILS", True),
        ("shown", False),
        ("error", True),
    ]
    assert len(run.measure(paper, quick=False)) == 7
    assert len(run.measure(paper, quick=False, only="FIGURE 1.0")) == 1


def test_the_table_shows_target_result_tolerance_and_reason(paper: str) -> None:
    rows = run.measure(paper, quick=True)
    assert table.cells(rows[0]) == (
        *("figure 10.1 (h)", "10.00", "paper", "10.10", "-", "+1.00 %"),
        *("5 %", "met", "", "because"),
    )
    assert table.cells(rows[1])[-3:] == ("missed", "", "the paper leaves it open")
    assert table.cells(rows[4])[1:7] == ("-", "-", "7.00", "-", "-", "-")
    assert table.cells(rows[5])[3:] == ("-", "-", "-", "5 %", "error", "", "ValueError: no data")
    assert table.text(rows).splitlines()[0] == "somebody"
    assert table.markdown(rows).count("\n") == 8


def test_what_was_measured_over_draws_shows_its_range_and_is_met_where_the_target_lies_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draws = {"measure": lambda: Range.of([8.0, 9.0, 13.0]), "expect": "inside", "source": "free: three draws"}
    made = types.ModuleType("e2e.reproduce.somebody")
    made.entries = lambda _: [entry(0.0, 12.0, **draws), entry(0.0, 14.0, **draws, claimed=False)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "e2e.reproduce.somebody", made)
    inside, outside = run.measure("somebody", quick=True)
    assert table.cells(inside)[1:9] == (
        *("12.00", "-", "10.00", "8.00 to 13.00", "-", "in range"),
        *("met", "free: three draws"),
    )
    assert (outside.verdict, outside.failed) == ("missed", False)
    assert not entry(12.0, 12.0, expect="inside").met(12.0), "one number is no range"


def test_what_was_fitted_to_its_target_is_never_called_met(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("e2e.reproduce.somebody")
    made.entries = lambda _: [entry(10.0, fitted=True), entry(12.0, fitted=True)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "e2e.reproduce.somebody", made)
    near, far = run.measure("somebody", quick=True)
    assert (near.verdict, near.reproduced, near.failed) == ("by construction", False, False)
    assert (far.verdict, far.reproduced, far.failed) == ("FAILS", False, True)


def test_what_is_not_claimed_is_never_counted_as_met(paper: str) -> None:
    rows = run.measure(paper, quick=True)
    assert [(row.name, row.claimed) for row in rows if row.reproduced] == [("figure 10.1", True)]
    assert table.counts(row.verdict for row in rows) == (
        "1 met, 1 missed, 1 in a range or met and not claimed, 0 by construction, 1 without a target"
    )


def test_a_folder_is_searched_for_papers_and_not_for_the_runner() -> None:
    assert not {"entry", "run", "table", "__main__"} & set(run.papers())
    assert all((Path(run.__file__).parent / f"{name}.py").exists() for name in run.papers())


def test_a_run_that_was_cut_short_goes_on_with_what_it_has_not_measured_yet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    def figure(name: str, result: float | Range) -> Entry:
        def measure() -> float | Range:
            measured.append(name)
            if name == "cut" and measured.count("cut") == 1:
                raise KeyboardInterrupt
            if name == "broken":
                raise ValueError("no data")
            return result

        return entry(0.0, name=name, measure=measure)

    made = types.ModuleType("e2e.reproduce.somebody")
    made.entries = lambda _: [  # type: ignore[attr-defined]
        figure("plain", 10.0), figure("broken", 0.0), figure("drawn", Range(10.0, 9.6, 10.4)), figure("cut", 11.0)
    ]  # fmt: skip
    monkeypatch.setitem(sys.modules, "e2e.reproduce.somebody", made)
    with pytest.raises(KeyboardInterrupt):
        run.measure("somebody", quick=True, kept=tmp_path)
    rows = run.measure("somebody", quick=True, kept=tmp_path)
    assert measured == ["plain", "broken", "drawn", "cut", "broken", "cut"], "an error is no figure"
    assert [(row.name, row.result, row.low, row.high) for row in rows if not row.error] == [
        ("plain", 10.0, pytest.approx(math.nan, nan_ok=True), pytest.approx(math.nan, nan_ok=True)),
        ("drawn", 10.0, 9.6, 10.4),
        ("cut", 11.0, pytest.approx(math.nan, nan_ok=True), pytest.approx(math.nan, nan_ok=True)),
    ]
    assert [row.verdict for row in rows] == ["met", "error", "met", "FAILS"]
    monkeypatch.setattr(run, "measured_with", lambda: "other code")
    assert run.results_of(tmp_path, "somebody") == {}
    assert "somebody: 3 figures of" in capsys.readouterr().err


def test_figures_are_of_the_same_code_and_traces_while_no_file_of_these_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, alone, traces = tmp_path / "code", tmp_path / "trace.py", tmp_path / "traces"
    for folder in (code, traces / "philly"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(run, "CODE", (code, alone))
    monkeypatch.setattr(run, "DATA", traces)
    found = []
    for path, text in (
        (code / "policy.py", "a = 1"),
        (code / "policy.py", "a = 2"),
        (code / "notes.md", "no code"),
        (alone, "read"),
        (traces / "philly" / "jobs.csv", "1"),
        (traces / "philly" / "jobs.csv", "12"),
        (traces / "again.csv", "12"),
    ):
        path.write_text(text)
        found.append(run.measured_with.__wrapped__())
    assert found[1] == found[2], "a page of documentation makes no figure another one"
    assert len(set(found)) == len(found) - 1
    assert run.measured_with.__wrapped__() == found[-1]


@pytest.mark.parametrize("paper", run.papers())
def test_every_figure_says_where_its_constants_come_from(paper: str) -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    assert [entry.name for entry in run.entries(paper, quick=False) if not entry.source] == []


@pytest.mark.parametrize("paper", run.papers())
def test_every_figure_with_something_free_behind_it_has_a_range_or_says_why_not(paper: str) -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    free = [one for one in run.entries(paper, quick=False) if FREE.search(one.source)]
    assert [one.name for one in free if not one.ranged and ONE not in one.source] == []
    assert [one.name for one in free if one.ranged and ONE in one.source] == [], "has one all the same"


def test_what_a_figure_measures_is_known_by_its_annotation() -> None:
    def drawn(_: int) -> Range:
        raise AssertionError("is not measured for that")

    def plain() -> float:
        raise AssertionError("is not measured for that")

    assert entry(0.0, measure=partial(drawn, 1)).ranged
    assert not entry(0.0, measure=plain).ranged


def test_the_readmes_tables_are_those_of_a_run(paper: str) -> None:
    rows = run.measure(paper, quick=True)[:3]
    page = "before\n<!-- figures of somebody -->\n<!-- end -->\n<!-- figures of else -->\nold\n<!-- end -->\n"
    made = _page.written(page, rows)
    assert made == (
        "before\n<!-- figures of somebody -->\n"
        f"{_page.HEAD}\n"
        "| figure 10.1 (h) | 10 ± 5 % (P) | 10.10 | - | met | a |\n"
        "| figure 12.0 (h) | 10 ± 5 % (A) | 12 | - | **missed** | a |\n"
        "| figure 10.0 (h) | 10 ± 5 % (O) | 10 | - | holds, not claimed | a |\n\n"
        "- a: \n"
        "- P: target: the paper prints it, or what it is worked out from\n"
        "- A: target: the authors' code, data or artifact; the paper does not print it\n"
        "- O: target: our own bound\n"
        "<!-- end -->\n<!-- figures of else -->\nold\n<!-- end -->\n"
    )
    assert _page.written(made, rows) == made
    assert _page.figures(made)["somebody"][1] == ("figure 12.0 (h)", "10 ± 5 % (A)", "missed", "")


@pytest.mark.parametrize("paper", sorted(_page.figures(_page.README.read_text())))
def test_the_readmes_tables_have_every_figure_of_the_code_with_where_its_constants_come_from(
    paper: str,
) -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    there = _page.figures(_page.README.read_text())[paper]
    entries = {table.named(one.name, one.unit): one for one in run.entries(paper, quick=False)}
    assert [(name, target, source) for name, target, _, source in there] == [
        (name, _page.target_of(one), one.source) for name, one in entries.items()
    ]
    met = [name for name, _, verdict, _ in there if verdict == "met"]
    assert [name for name in met if entries[name].fitted or not entries[name].claimed] == []


def test_the_totals_that_the_readme_states_are_those_of_its_tables() -> None:
    page = _page.README.read_text()
    assert _page.written(page, []) == page
