"""The picture: GPUs over time for each run, one over the other, and how long jobs waited and took."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from e2e.demo.course import HOUR, MINUTE
from e2e.demo.outcome import JobOutcome, Outcome, figures

BUSY, HELD = "#3b7dd8", "#d8433b"
LINES = ("#777777", BUSY, "#2f9e5b")


def draw(runs: Sequence[Outcome], gpus: int, title: str, path: Path) -> None:
    """A PNG at `path`."""
    figure = Figure(figsize=(11, 2.5 * len(runs) + 3.4), dpi=110, layout="constrained")
    figure.suptitle(textwrap.fill(title, 120), fontsize=10, x=0.01, ha="left", color="#444444")
    grid = figure.add_gridspec(len(runs) + 1, 2)
    rows = [figure.add_subplot(grid[row, :]) for row in range(len(runs))]
    latest = max(run.end for run in runs) / HOUR
    for axes, run in zip(rows, runs, strict=True):
        _gpus(axes, run, gpus, latest)
    rows[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=9, frameon=False)
    rows[-1].set_xlabel("hours since the first submission (trace time)")
    _shares(figure.add_subplot(grid[-1, 0]), runs, "Time to start", "time_to_start", lambda job: job.started)
    _shares(figure.add_subplot(grid[-1, 1]), runs, "Completion time", "jct", lambda job: job.ended)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _gpus(axes: Axes, run: Outcome, gpus: int, latest: float) -> None:
    times = [moment.at / HOUR for moment in run.moments] + [run.end / HOUR]
    busy = [moment.running_gpus for moment in run.moments]
    held = [moment.held_gpus for moment in run.moments]
    axes.stackplot(
        times,
        [*busy, busy[-1]],
        [*held, held[-1]],
        step="post",
        colors=(BUSY, HELD),
        labels=("busy", "held by partly bound gangs"),
        linewidth=0,
    )
    axes.axhline(gpus, color="#444444", linewidth=0.8, linestyle="--")
    axes.set(
        xlim=(0, latest * 1.01), ylim=(0, gpus * 1.06), ylabel="GPUs", yticks=range(0, gpus + 1, gpus // 4)
    )
    if run.makespan is None:
        end = f"{run.completed} of {len(run.jobs)} jobs done when it was cut off"
    else:
        end = f"all {run.completed} jobs done after {run.makespan / HOUR:.1f} h"
    axes.axvline(run.end / HOUR, color="#444444", linewidth=1.0)
    held_hours = f"{run.area('held_gpus'):.1f} GPU-hours held idle"
    axes.set_title(f"{run.scheduler}: {end}, {held_hours}", loc="left", fontsize=11, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)


def _shares(
    axes: Axes,
    runs: Sequence[Outcome],
    title: str,
    name: str,
    moment: Callable[[JobOutcome], float | None],
) -> None:
    """The share of the jobs that had come to a moment so long after their submission; jobs that never did are missing
    at the top."""
    longest = 1.0
    for run, colour in zip(runs, LINES, strict=True):
        came = ((job, moment(job)) for job in run.jobs)
        waits = sorted((at - job.submitted) / MINUTE for job, at in came if at is not None)
        shares = [number / len(run.jobs) for number in range(1, len(waits) + 1)]
        longest = max(longest, *waits, 1.0)
        mean = figures(run)[f"{name}_mean_minutes"]
        least = "" if len(waits) == len(run.jobs) else "≥ "
        axes.step(
            [0.0, *waits, 1e6], [0.0, *shares, shares[-1] if shares else 0.0], where="post", color=colour,
            linewidth=2, label=f"{run.scheduler}: mean {least}{mean:.1f} min",
        )  # fmt: skip
    axes.set(
        xlim=(0, longest * 1.03), ylim=(0, 1.03), xlabel="minutes from submission (trace time)", ylabel="jobs"
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.legend(loc="lower right", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
