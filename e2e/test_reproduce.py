"""The quick part of `make reproduce`: what is claimed of the papers' figures holds. Needs no lab, needs TRACES."""

from __future__ import annotations

import os

import pytest

from e2e.reproduce import run, table

CHOSEN = os.environ.get("PAPERS", "").split() or run.papers()

# In CI a skip is a failure (e2e/lacks.py).
pytestmark = pytest.mark.skipif(
    not (run.DATA / "README.md").exists(),
    reason="no folder of traces: set TRACES to one (see e2e/README.md, Traces)",
)


@pytest.mark.parametrize("paper", CHOSEN)
def test_the_quick_figures_that_are_claimed_hold(paper: str) -> None:
    rows = run.measure(paper, quick=True)
    failed = [row for row in rows if row.failed]
    assert not failed, "\n" + table.text(rows)


def test_every_figure_says_why_its_tolerance_is_what_it_is() -> None:
    silent = [
        (paper, entry.name)
        for paper in CHOSEN
        for entry in run.entries(paper, quick=False)
        if entry.target is not None and not entry.why
    ]
    assert not silent
