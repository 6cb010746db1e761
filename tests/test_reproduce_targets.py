"""Whose the target of each figure of `make reproduce` is: a paper's, its authors' code's, our own."""

from __future__ import annotations

import sys
import types

import pytest

from e2e.reproduce import _page, run, table
from e2e.reproduce.entry import Entry


def entry(result: float, target: float | None = 10.0, **fields: object) -> Entry:
    plain = {"unit": "", "tolerance": 0.05, "why": "because", "quick": True, "measure": lambda: result}
    return Entry(**{"name": f"figure {result}", "target": target, **plain, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("paper", run.papers())
def test_every_figure_says_whose_its_target_is_and_what_has_none_says_nothing(paper: str) -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    made = run.entries(paper, quick=False)
    assert [one.name for one in made if (one.target is None) != (one.basis == "")] == []


def test_no_number_of_the_authors_code_passes_as_the_papers() -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    whose = {paper: {one.basis for one in run.entries(paper, quick=False)} for paper in ("gavel", "pollux")}
    assert whose == {"gavel": {"authors", ""}, "pollux": {"authors"}}, (
        "those papers' own numbers were not compared"
    )
    afs = {one.name: one for one in run.entries("afs", quick=False)}
    printed = [one.target for one in afs.values() if one.basis == "paper"]
    assert printed == [31.1, 32.8, 18.3, 15.2, 3.53, 3.32, 63.2, 2.4, 1.2, 2.7, 1.9, 3.1], (
        "papers/afs-coddl.txt"
    )
    theirs, code = (
        afs[f"11 VCs, tiresias-l / afs-p, most{words}"] for words in ("", ", by the authors' code")
    )
    assert (theirs.basis, code.basis) == ("paper", "authors")
    assert not theirs.met(2.98), "the paper prints 3.1"
    assert theirs.met(3.06)
    assert theirs.met(3.14)
    assert code.met(2.98)


def test_a_bound_of_our_own_is_no_figure_of_a_paper() -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    found = {
        paper: [one.name for one in run.entries(paper, quick=False) if one.basis == "own"]
        for paper in run.papers()
    }
    assert [paper for paper, names in found.items() if names] == ["own"]
    afs = {one.name: one for one in run.entries("afs", quick=False)}
    assert [one.target for name, one in afs.items() if "measuring at all below" in name] == [None, None]
    assert not afs["2869ce, themis / afs-p"].claimed, "the paper's 1.2 to 2.2 are of 11 virtual clusters"


def test_what_a_figure_counts_is_told_in_the_results_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("e2e.reproduce.somebody")
    made.entries = lambda _: [entry(2.0, None, detail=lambda: ["one", "two"])]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "e2e.reproduce.somebody", made)
    (row,) = run.measure("somebody", quick=True)
    assert row.detail == ("one", "two")
    assert table.markdown([row]).splitlines()[3:] == ["", "somebody: figure 2.0", "", "- one", "- two"]


def test_the_totals_say_whose_the_targets_are_that_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("e2e.reproduce.somebody")
    made.entries = lambda _: [entry(10.0, basis="paper"), entry(12.0, basis="authors", claimed=False)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "e2e.reproduce.somebody", made)
    page = "<!-- totals -->\n<!-- end -->\n<!-- figures of somebody -->\n<!-- end -->\n"
    told = _page.totals(_page.written(page, run.measure("somebody", quick=True)))
    assert told.endswith(
        " Of those met 1 are numbers that a paper prints, 0 a direction of a paper's, 0 what its authors' code, data "
        "or artifact has, 0 bounds of our own."
    )
