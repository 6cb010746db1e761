"""Scenarios that kind does not run, each with its reason: left out before the run, or skipped in it. A run says once
how many, by reason.

Left out is what has a lab of its own that kind can't be: its module says in OWN_LAB why, in the words that follow
"N scenarios"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

REASONS: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the scenarios that were left out, one each."""
ENDS = ("passed", "failed", "error", "xfailed", "xpassed", "skipped")
UNSAID = "have a lab of their own, and their module says no OWN_LAB"


def why(*, asks: bool, other_lab: bool, runs: bool, on_a_lab: bool, own_lab: str) -> str:
    """Why a scenario is left out on kind, "" where it runs there, or needs no cluster at all.

    asks: it wants a cluster, by a fixture; other_lab: not the session's, but one of another shape; runs: kind can be
    put into other shapes for it; on_a_lab: it has the marker `lab`; own_lab: its module's OWN_LAB."""
    if (asks and not other_lab) or (not asks and not on_a_lab):
        return ""
    return own_lab or ("" if runs else UNSAID)


def table(left_out: Iterable[str], ended: Mapping[str, Sequence[Any]]) -> list[str]:
    """What was not run on kind, by reason; `ended`: pytest's reports by how they ended."""
    before = Counter(left_out)
    during = Counter(_reason(report) for report in ended.get("skipped", ()))
    begun = sum(len(ended.get(how, ())) for how in ENDS)
    return [
        f"{before.total()} scenarios are left out:",
        *_rows(before),
        f"{during.total()} of {begun} that were begun are skipped:",
        *_rows(during),
    ]


def _rows(reasons: Counter[str]) -> list[str]:
    return [
        f"{count:6} {reason}" for reason, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    ]


def _reason(report: Any) -> str:
    reason: str = report.longrepr[2]  # after file and line
    return reason.removeprefix("Skipped: ").removeprefix("not on kind: ")
