"""The picture of a soak: GPUs in use and wanted, jobs, changes, over time."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from e2e.soak.drive import Outcome


def draw(outcome: Outcome, path: Path) -> None:
    """A PNG at `path`."""
    figure = Figure(figsize=(11, 6.4), dpi=130, layout="constrained")
    times = [moment.at for moment in outcome.moments]
    gpus, jobs, changes = figure.subplots(3, 1, sharex=True)
    gpus.plot(times, [m.wanted for m in outcome.moments], color="#bbbbbb", label="wanted by all jobs")
    gpus.fill_between(times, [m.used for m in outcome.moments], step="post", color="#3b7dd8", label="in use")
    gpus.axhline(outcome.gpus, color="#444444", linewidth=0.8, linestyle="--")
    gpus.set(ylabel="GPUs", ylim=(0, outcome.gpus * 1.6))
    gpus.legend(loc="upper right", frameon=False, ncols=2)
    jobs.plot(times, [m.running for m in outcome.moments], color="#3b7dd8", label="running")
    jobs.plot(times, [m.waiting for m in outcome.moments], color="#d8433b", label="waiting")
    jobs.set(ylabel="jobs")
    jobs.legend(loc="upper right", frameon=False, ncols=2)
    changes.plot(times, [m.changes for m in outcome.moments], color="#444444")
    changes.set(ylabel="growths and shrinks", xlabel="seconds")
    course, tally = outcome.course, outcome.tally
    figure.suptitle(
        f"{tally.arrivals} jobs in {course.seconds:.0f} s (seed {course.seed}), {tally.starts} starts, "
        f"{tally.growths} growths, {tally.shrinks} shrinks, {outcome.use:.0%} of the GPUs that could be used were; "
        f"{len(outcome.faults)} faults",
        fontsize=10,
        x=0.01,
        ha="left",
    )
    for axes in (gpus, jobs, changes):
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
