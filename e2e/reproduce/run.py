"""Measures entries, a paper a process."""

from __future__ import annotations

import math
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import e2e.reproduce
from e2e.reproduce.entry import Entry, Range, Row

DATA = Path(os.environ.get("TRACES", Path(__file__).parents[2] / ".." / "shared" / "data")).resolve()
NO_PAPERS = ("entry", "run", "table")


def papers() -> list[str]:
    """The modules of this folder that have entries."""
    found = [module.name for module in pkgutil.iter_modules(e2e.reproduce.__path__)]
    return sorted(name for name in found if name not in NO_PAPERS and not name.startswith("_"))


def entries(paper: str, quick: bool, only: str = "") -> list[Entry]:
    """The entries of a paper that are asked for."""
    found: list[Entry] = import_module(f"e2e.reproduce.{paper}").entries(DATA)
    return [e for e in found if (e.quick or not quick) and only.lower() in e.name.lower()]


def run(
    chosen: Sequence[str], quick: bool, only: str = "", processes: int = 1, say: Callable[[str], None] = print
) -> list[Row]:
    """All rows, by paper and in each paper's own order."""
    if processes == 1 or len(chosen) == 1:
        done = {paper: measure(paper, quick, only) for paper in chosen}
    else:
        done = {}
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            waiting = {pool.submit(measure, paper, quick, only): paper for paper in chosen}
            for future in as_completed(waiting):
                done[waiting[future]] = future.result()
    for paper in chosen:
        if not done[paper]:
            say(f"{paper}: no {'quick ' if quick else ''}entries")
    return [row for paper in chosen for row in done[paper]]


def measure(paper: str, quick: bool, only: str = "") -> list[Row]:
    """One paper's rows; each is told on stderr when it is done."""
    rows = []
    for entry in entries(paper, quick, only):
        began = time.perf_counter()
        measured: float | Range = math.nan
        error = ""
        try:
            measured = entry.measure()
        except Exception as problem:  # one broken figure must not hide the others
            error = f"{type(problem).__name__}: {problem}"
        ends = (measured.low, measured.high) if isinstance(measured, Range) else (math.nan, math.nan)
        result = float(measured.value if isinstance(measured, Range) else measured)
        row = Row(
            paper, entry.name, entry.target, entry.unit, entry.tolerance, entry.expect, entry.why, entry.claimed,
            result, not error and entry.met(measured), time.perf_counter() - began, error, entry.source, *ends,
            entry.fitted,
        )  # fmt: skip
        rows.append(row)
        said = f"{row.verdict}, {row.result:.4g} {row.unit} ({row.seconds:.1f} s)"  # also where a run is cut short
        print(f"{paper}: {entry.name}: {said} {error}".rstrip(), file=sys.stderr)
    return rows
