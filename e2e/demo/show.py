"""A run as it goes, on stderr: a live table on a terminal, else a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from e2e.demo.course import Course

EVERY = 5.0  # seconds between lines
REFRESH = 0.25


class Show:
    """Draws one run after the other; the rows of earlier runs stay."""

    def __init__(self, console: Console, gpus: int, jobs: int, limit: float) -> None:
        self.console, self.gpus, self.jobs, self.limit = console, gpus, jobs, limit
        self._live: Live | None = None
        self._last = 0.0

    @contextmanager
    def of(self, scheduler: str, course: Course) -> Iterator[Show]:
        self._scheduler, self._course = scheduler, course
        self._last = 0.0
        if not self.console.is_terminal:
            yield self
            return
        with Live(console=self.console, refresh_per_second=4, transient=False) as self._live:
            yield self
        self._live = None

    def step(self, now: float, last: bool = False) -> None:
        """`now`: the trace's clock, seconds."""
        wall = time.monotonic()
        if self._live is not None:
            if last or wall - self._last >= REFRESH:
                self._last = wall
                self._live.update(self._table(now))
        elif last or wall - self._last >= EVERY:
            self._last = wall
            self.console.print(self._line(now), highlight=False, soft_wrap=True)

    def _line(self, now: float) -> str:
        moment = self._course.now
        return (
            f"{self._scheduler:17} {clock(now)} of at most {clock(self.limit)}  "
            f"queue {moment.waiting:3}  running {moment.running:3}  partly bound {moment.partly:2}  "
            f"done {moment.done:3}/{self.jobs}  GPUs: {moment.running_gpus:3} busy, {moment.held_gpus:3} held, "
            f"{self.gpus - moment.running_gpus - moment.held_gpus:3} free"
        )

    def _table(self, now: float) -> Group:
        moment = self._course.now
        busy, held = moment.running_gpus, moment.held_gpus
        table = Table(title=f"{self._scheduler}   {clock(now)} of at most {clock(self.limit)} (trace time)")
        for name in ("queue", "running", "partly bound", "done", "GPUs busy", "GPUs held idle", "GPUs free"):
            table.add_column(name, justify="right", min_width=8)
        table.add_row(
            str(moment.waiting),
            str(moment.running),
            Text(str(moment.partly), style="bold red" if moment.partly else ""),
            f"{moment.done}/{self.jobs}",
            str(busy),
            Text(str(held), style="bold red" if held else ""),
            str(self.gpus - busy - held),
        )
        width = 60
        filled = [round(width * part / self.gpus) for part in (busy, held)]
        bar = Text.assemble(
            ("GPUs ", ""),
            ("█" * filled[0], "green"),
            ("█" * filled[1], "red"),
            ("░" * max(0, width - sum(filled)), "dim"),
            ("  green: busy, red: held by gangs that can't run", "dim"),
        )
        done = Table.grid(padding=(0, 1))
        done.add_row("jobs", ProgressBar(total=max(1, self.jobs), completed=moment.done, width=60))
        return Group(table, bar, done)


def clock(seconds: float) -> str:
    """H:MM:SS."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def final_table(rows: list[tuple[str, list[str]]], schedulers: list[str]) -> Table:
    table = Table(title="The same jobs, the same nodes")
    table.add_column("")
    for name in schedulers:
        table.add_column(name, justify="right")
    for what, values in rows:
        table.add_row(what, *values)
    return table
