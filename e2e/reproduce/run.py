"""Measures entries, a paper a process."""

from __future__ import annotations

import json
import math
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from hashlib import sha256
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import e2e.reproduce
from e2e.reproduce.entry import Entry, Range, Row

DATA = Path(os.environ.get("TRACES", Path(__file__).parents[2] / ".." / "shared" / "data")).resolve()
CODE = tuple(
    Path(__file__).parents[2] / name
    for name in ("extender/muster", "plugins", "e2e/reproduce", "e2e/demo/trace.py")
)
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
    chosen: Sequence[str], quick: bool, only: str = "", processes: int = 1, say: Callable[[str], None] = print,
    kept: Path | None = None,
) -> list[Row]:  # fmt: skip
    """All rows, by paper and in each paper's own order. kept: as `measure` has it."""
    if processes == 1 or len(chosen) == 1:
        done = {paper: measure(paper, quick, only, kept) for paper in chosen}
    else:
        done = {}
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            waiting = {pool.submit(measure, paper, quick, only, kept): paper for paper in chosen}
            for future in as_completed(waiting):
                done[waiting[future]] = future.result()
    for paper in chosen:
        if not done[paper]:
            say(f"{paper}: no {'quick ' if quick else ''}entries")
    return [row for paper in chosen for row in done[paper]]


def measure(paper: str, quick: bool, only: str = "", kept: Path | None = None) -> list[Row]:
    """One paper's rows; each is told on stderr when it is done. kept: a folder where each figure is written down as
    soon as it is measured, and from which those are taken that are there already (`results_of`)."""
    before = results_of(kept, paper) if kept else {}
    rows = []
    for entry in entries(paper, quick, only):
        began = time.perf_counter()
        measured: float | Range = math.nan
        error = ""
        try:
            measured = before[entry.name] if entry.name in before else entry.measure()
        except Exception as problem:  # one broken figure must not hide the others
            error = f"{type(problem).__name__}: {problem}"
        ends = (measured.low, measured.high) if isinstance(measured, Range) else (math.nan, math.nan)
        result = float(measured.value if isinstance(measured, Range) else measured)
        row = Row(
            paper, entry.name, entry.target, entry.unit, entry.tolerance, entry.expect, entry.why, entry.claimed,
            result, not error and entry.met(measured), time.perf_counter() - began, error, entry.source, *ends,
            entry.fitted, not error and entry.in_part(measured), entry.short, entry.basis,
            tuple(entry.detail()) if entry.detail and not error else (),
        )  # fmt: skip
        rows.append(row)
        if kept and not error and entry.name not in before:
            with _file(kept, paper).open("a", encoding="utf-8") as file:
                file.write(json.dumps([entry.name, result, *ends, measured_with()]) + "\n")
        said = f"{row.verdict}, {row.result:.4g} {row.unit} ({row.seconds:.1f} s)"  # also where a run is cut short
        print(f"{paper}: {entry.name}: {said} {error}".rstrip(), file=sys.stderr)
    return rows


def results_of(folder: Path, paper: str) -> dict[str, float | Range]:
    """What runs before have measured of a paper with this code and these traces, by name; empty where there was none.
    How many others there are is told on stderr."""
    path = _file(folder, paper)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("]")]  # the last one may have been cut off
    same = [figures for *figures, how in found if how == measured_with()]
    if len(same) < len(found):
        others = len(found) - len(same)
        print(f"{paper}: {others} figures of {path} are of other code or traces: left aside", file=sys.stderr)
    return {name: result if math.isnan(low) else Range(result, low, high) for name, result, low, high in same}


@cache
def measured_with() -> str:
    """What stands for the code that figures depend on, and for the traces: names and sizes of these."""
    found = sha256()
    for part in CODE:
        for path in [part] if part.is_file() else sorted(part.rglob("*.py")):
            found.update(path.relative_to(part).as_posix().encode() + b"\0" + path.read_bytes())
    for path in sorted(path for path in DATA.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(DATA)} {path.stat().st_size}\0".encode())
    return found.hexdigest()[:16]


def _file(folder: Path, paper: str) -> Path:
    return folder / f"{paper}.jsonl"
