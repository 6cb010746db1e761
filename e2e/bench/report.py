"""What a measure says: progress on stderr, a table on stdout, JSON under out/bench."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from e2e.lab.places import CHECKOUT

OUT = CHECKOUT / "out" / "bench"


class Progress:
    """Bars on a terminal, a line for each finished step elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)

    def say(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False)

    @contextlib.contextmanager
    def reading(self, what: str, total: int) -> Iterator[Callable[[int], object]]:
        """A bar that is told how far it is."""
        began = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bars(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        ) as bars:
            task = bars.add_task(what, total=total)
            yield lambda done: bars.update(task, completed=done)
        self.say(f"{what}: {total} in {time.monotonic() - began:.1f} s")

    @contextlib.contextmanager
    def steps(self, what: str, total: int) -> Iterator[Callable[[], object]]:
        """A bar that is told each step; from several threads, so the count may be a little off."""
        done = [0]
        with self.reading(what, total) as reading:

            def step() -> None:
                done[0] += 1
                if done[0] % 100 == 0:
                    reading(done[0])

            yield step


@dataclass(frozen=True)
class Row:
    """One figure. aim: what the issue asks for, in words; good: whether it is reached, None where nothing is
    asked."""

    what: str
    value: str
    aim: str = ""
    good: bool | None = None


@dataclass
class Result:
    """What a measure found: rows for people, data for machines."""

    measure: str
    title: str
    rows: list[Row] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def row(self, what: str, value: str, aim: str = "", good: bool | None = None) -> None:
        self.rows.append(Row(what, value, aim, good))

    def save(self, folder: Path = OUT) -> Path:
        """Write out/bench/MEASURE.json; its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.measure}.json"
        content = {
            "measure": self.measure,
            "title": self.title,
            "machine": machine(),
            "rows": [vars(row) for row in self.rows],
            **self.data,
        }
        path.write_text(json.dumps(content, indent=1) + "\n")
        return path


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def show(results: Sequence[Result]) -> None:
    """A table a measure, on stdout."""
    console = Console()
    if not console.is_terminal:  # a file or a pipe: as wide as the figures need
        console = Console(width=140)
    for result in results:
        table = Table(title=result.title, title_justify="left", show_header=True)
        for column in ("measure", "figure", "asked for", ""):
            table.add_column(column, justify="right" if column == "figure" else "left", overflow="fold")
        for row in result.rows:
            verdict = {None: "", True: "[green]yes", False: "[red]no"}[row.good]
            table.add_row(row.what, row.value, row.aim, verdict)
        console.print(table)
