"""The picture: GPUs over time for each scheduler, one over the other, and how long jobs waited."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from e2e.demo.course import HOUR, MINUTE
from e2e.demo.outcome import Outcome, figures

BUSY, HELD = "#3b7dd8", "#d8433b"
LINES = ("#777777", BUSY)


def draw(runs: Sequence[Outcome], gpus: int, title: str, path: Path) -> None:
    """A PNG at `path`."""
    figure = Figure(figsize=(11, 3.0 * len(runs) + 3.4), dpi=130, layout="constrained")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    rows = figure.subplots(len(runs) + 1, 1, gridspec_kw={"height_ratios": [1.0] * len(runs) + [0.85]})
    latest = max(run.end for run in runs) / HOUR
    for axes, run in zip(rows, runs, strict=False):
        _gpus(axes, run, gpus, latest)
    rows[0].legend(loc="upper right", ncols=2, fontsize=9, framealpha=0.95)
    rows[len(runs) - 1].set_xlabel("hours since the first submission (trace time)")
    _waits(rows[-1], runs)
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
        labels=("busy: the whole gang runs", "held by gangs that are partly bound: idle"),
        linewidth=0,
    )
    axes.axhline(gpus, color="#444444", linewidth=0.8, linestyle="--")
    axes.set(xlim=(0, latest), ylim=(0, gpus * 1.32), ylabel="GPUs", yticks=range(0, gpus + 1, gpus // 4))
    found = figures(run)
    if run.makespan is None:
        end = f"{run.completed} of {len(run.jobs)} jobs done when it was cut off"
    else:
        end = f"all {run.completed} jobs done after {run.makespan / HOUR:.1f} h"
        axes.axvline(run.end / HOUR, color="#444444", linewidth=1.0)
    axes.set_title(
        f"{run.scheduler}: {end}, {found['gpu_hours_held']:.1f} GPU-hours held idle", loc="left", fontsize=11
    )
    axes.spines[["top", "right"]].set_visible(False)


def _waits(axes: Axes, runs: Sequence[Outcome]) -> None:
    """The share of the jobs that had started so long after their submission; jobs that never did are missing at
    the top."""
    longest = 1.0
    for run, colour in zip(runs, LINES, strict=False):
        waits = sorted((job.started - job.submitted) / MINUTE for job in run.jobs if job.started is not None)
        shares = [number / len(run.jobs) for number in range(1, len(waits) + 1)]
        longest = max(longest, *waits, 1.0)
        axes.step(
            [0.0, *waits, 1e6], [0.0, *shares, shares[-1] if shares else 0.0], where="post", color=colour,
            linewidth=2, label=run.scheduler,
        )  # fmt: skip
    axes.set(
        xlim=(0, longest * 1.03),
        ylim=(0, 1.03),
        xlabel="minutes from submission to the last pod bound (trace time)",
        ylabel="jobs started",
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("Time to start", loc="left", fontsize=11)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.legend(loc="lower right", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
