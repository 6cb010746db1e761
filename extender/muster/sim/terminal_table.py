"""The comparison of profiles as a table for a terminal."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from muster.core.reasons.words import plural
from muster.sim import figures
from muster.sim.result import Result

if TYPE_CHECKING:
    from muster.sim.request import Outcome

WIDTH = 110
ROWS: Sequence[tuple[str, str, str]] = (
    ("avg_jct_h", "average JCT", "h"),
    ("p50_jct_h", "median JCT", "h"),
    ("p99_jct_h", "p99 JCT", "h"),
    ("avg_queueing_h", "average wait for a start", "h"),
    ("makespan_h", "makespan", "h"),
    ("utilisation", "GPUs in use", "%"),
    ("cluster_efficiency", "cluster efficiency", ""),
    ("avg_queue", "jobs waiting, average", ""),
    ("blocking_index", "blocking index", ""),
    ("finish_time_fairness", "finish-time fairness", ""),
    ("restarts", "restarts", ""),
    ("migrations", "migrations", ""),
    ("unfinished", "jobs unfinished", ""),
)
"""Figure, words, unit: what is shown of every profile, where the engine gives it."""


NOTES = 10
"""Notes of a profile that are listed; all of them are in the JSON and in the report."""
OF_GPUS = ("utilisation", "cluster_efficiency")
"""Nothing on a cluster without GPUs."""


def comparison(outcome: Outcome) -> str:
    """Figures in rows, profiles in columns."""
    out = Console(file=io.StringIO(), width=max(WIDTH, 34 + 16 * len(outcome.results)), color_system=None)
    table = Table(box=None, pad_edge=False)
    table.add_column(
        f"{plural(len(outcome.workload.submissions), 'job')}, {plural(outcome.cluster.gpus, 'GPU')}"
    )
    for name in outcome.results:
        table.add_column(name, justify="right", overflow="fold")
    for _, label, unit, values in rows(outcome.results):
        table.add_row(label, *(number(value, unit) for value in values))
    out.print(table)
    for name, result in outcome.results.items():
        if result.cut:
            out.print(f"{name}: cut short, {result.cut}", markup=False, highlight=False)
    for term in outcome.terms:
        out.print(term, markup=False, highlight=False)
    for name, result in outcome.results.items():
        for note in result.notes[:NOTES]:
            out.print(f"{name}: {note}", markup=False, highlight=False)
        if len(result.notes) > NOTES:
            more = len(result.notes) - NOTES
            out.print(f"{name}: and {more} more such notes (--json)", markup=False, highlight=False)
    if outcome.skipped:
        out.print(f"not run: {', '.join(outcome.skipped)}", markup=False, highlight=False)
    stream = out.file
    assert isinstance(stream, io.StringIO)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def rows(results: Mapping[str, Result]) -> Iterator[tuple[str, str, str, list[float]]]:
    """Figure, words, unit and the figure of each profile: only what there is, and what says something."""
    found = [figures.figures(result) for result in results.values()]
    for figure, label, unit in ROWS:
        values = [one.get(figure, math.nan) for one in found]
        if all(math.isnan(value) for value in values) or (figure == "unfinished" and not any(values)):
            continue
        if figure in OF_GPUS and not any(one["gpus"] for one in found):
            continue
        yield figure, f"{label} ({unit})" if unit else label, unit, values


def number(value: float, unit: str = "") -> str:
    """A figure for reading: as many digits as say something."""
    if math.isnan(value):
        return "-"
    if unit == "%":
        return f"{100 * value:.1f}"
    if isinstance(value, int) or (value == int(value) and abs(value) >= 1000):
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.1f}"
    if abs(value) >= 1 or value == 0:
        return f"{value:.2f}"
    return f"{value:.3f}" if abs(value) >= 0.01 else f"{value:.3g}"
