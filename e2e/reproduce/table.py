"""The rows as a table for a terminal, and as Markdown for a file."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from e2e.reproduce.entry import NOT_CLAIMED, Row

WIDTH = 180
EXACT = 1e-6
"""A relative tolerance that allows nothing but rounding."""
HEAD = ("figure", "target", "of", "result", "range", "off by", "allowed", "", "constants from", "why")
NUMBERS = ("target", "result", "range", "off by", "allowed")


def text(rows: Sequence[Row]) -> str:
    """A table for each paper."""
    out = Console(file=io.StringIO(), width=WIDTH, color_system=None, highlight=False)
    for paper, group in groupby(rows, key=lambda row: row.paper):
        table = Table(title=paper, title_justify="left", box=None, pad_edge=False, padding=(0, 1))
        for column in HEAD:
            table.add_column(column, justify="right" if column in NUMBERS else "left", max_width=60)
        for row in group:
            table.add_row(*cells(row))
        out.print(table)
        out.print()
    stream = out.file
    assert isinstance(stream, io.StringIO)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def markdown(rows: Sequence[Row]) -> str:
    """The same, with paper as a column, and below it what figures count, line by line."""
    lines = [f"| paper | {' | '.join(HEAD)} |", "|" + "---|" * (len(HEAD) + 1)]
    for row in rows:
        plain = [cell.replace("|", "\\|").replace("\n", " ") for cell in cells(row)]
        lines.append(f"| {row.paper} | {' | '.join(plain)} |")
    for row in rows:
        if row.detail:
            lines += ["", f"{row.paper}: {row.name}", "", *(f"- {line}" for line in row.detail)]
    return "\n".join(lines) + "\n"


def counts(verdicts: Iterable[str]) -> str:
    """How many are met, missed and so on, in words."""
    found = Counter(verdicts)
    return (
        f"{found['met']} met, {found['missed']} missed, {found[NOT_CLAIMED]} in a range or met and not claimed, "
        f"{found['by construction']} by construction, {found['shown']} without a target"
    )


def cells(row: Row) -> tuple[str, ...]:
    target = "-" if row.target is None else number(row.target)
    off = "-"
    if row.target and row.expect == "within" and math.isfinite(row.result):
        off = f"{100 * (row.result / row.target - 1):+.2f} %"
    match row.expect:
        case "within":
            allowed = percent(row.tolerance) if row.tolerance > EXACT else "none"
        case "sign":
            allowed = "same sign"
        case "inside":
            allowed = "in range"
        case other:
            allowed = other if not row.tolerance else f"{other}, {percent(row.tolerance)}"
    return (
        named(row.name, row.unit),
        target, row.basis or "-", number(row.result), spread(row), off, "-" if row.target is None else allowed,
        row.verdict, row.source, row.error or row.why,
    )  # fmt: skip


def named(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def percent(tolerance: float) -> str:
    return f"{float(f'{100.0 * tolerance:.2g}'):g} %"


def spread(row: Row) -> str:
    return "-" if math.isnan(row.low) else f"{number(row.low)} to {number(row.high)}"


def number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.2f}" if abs(value) < 10_000 else f"{value:,.0f}"
