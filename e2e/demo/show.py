"""The runs as they go, on stderr: a live table on a terminal, else a line of each every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from e2e.demo.course import Course

EVERY = 5.0  # seconds between lines
REFRESH = 0.25
WIDTH = 32  # of a bar, characters


class Show:
    """Draws all runs at once; `step` may be called by a thread of each."""

    def __init__(
        self, console: Console, gpus: int, jobs: int, limit: float, courses: Mapping[str, Course]
    ) -> None:
        self.console, self.gpus, self.jobs, self.limit = console, gpus, jobs, limit
        self._courses = courses
        self._now = dict.fromkeys(courses, 0.0)
        self._last = dict.fromkeys(courses, 0.0)
        self._live: Live | None = None
        self._alone = threading.Lock()

    def __enter__(self) -> Show:
        if self.console.is_terminal:
            self._live = Live(self._table(), console=self.console, auto_refresh=False)
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            self._live.stop()

    def step(self, run: str, now: float) -> None:
        """`now`: the trace's clock, seconds."""
        wall = time.monotonic()
        with self._alone:
            self._now[run] = now
            if wall - self._last[run] < (EVERY if self._live is None else REFRESH):
                return
            self._last[run] = wall
            if self._live is None:
                self.console.print(self._line(run), highlight=False, soft_wrap=True)
            else:
                self._live.update(self._table(), refresh=True)

    def _line(self, run: str) -> str:
        moment = self._courses[run].now
        return (
            f"{run:8} {clock(self._now[run])} of at most {clock(self.limit)}  "
            f"queue {moment.waiting:3}  running {moment.running:3}  partly bound {moment.partly:2}  "
            f"done {moment.done:3}/{self.jobs}  GPUs: {moment.running_gpus:3} busy, {moment.held_gpus:3} held, "
            f"{self.gpus - moment.running_gpus - moment.held_gpus:3} free"
        )

    def _table(self) -> Table:
        table = Table(
            title=f"The same jobs, {len(self._courses)} times (trace time; at most {clock(self.limit)})",
            caption="green: busy, red: held by gangs that can't run",
        )
        table.add_column("")
        for name in ("clock", "queue", "running", "partly", "done"):
            table.add_column(name, justify="right")
        table.add_column(f"{self.gpus} GPUs", min_width=WIDTH)
        for run, course in self._courses.items():
            moment = course.now
            filled = [round(WIDTH * part / self.gpus) for part in (moment.running_gpus, moment.held_gpus)]
            table.add_row(
                run,
                clock(self._now[run]),
                str(moment.waiting),
                str(moment.running),
                Text(str(moment.partly), style="bold red" if moment.partly else ""),
                f"{moment.done}/{self.jobs}",
                Text.assemble(
                    ("█" * filled[0], "green"),
                    ("█" * filled[1], "red"),
                    ("░" * max(0, WIDTH - sum(filled)), "dim"),
                ),
            )
        return table


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
