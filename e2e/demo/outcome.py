"""Figures of a finished run, the comparison of two, and their JSON. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from e2e.demo.course import HOUR, MINUTE, Course, Moment, Stay
from e2e.demo.workload import Workload

Json = dict[str, Any]


@dataclass(frozen=True)
class JobOutcome:
    """Seconds of the trace's clock since the run began; None: not within the run."""

    name: str
    gpus: int
    pods: int
    submitted: float
    started: float | None
    ended: float | None
    attempts: int
    interrupted: int  # times that it lost a worker while it ran
    resized: int  # changes of its number of workers


@dataclass(frozen=True)
class Outcome:
    """A run of one scheduler. `end`: when it was over; `limit`: when it would have been cut off."""

    scheduler: str
    end: float
    limit: float
    jobs: tuple[JobOutcome, ...]
    stays: tuple[Stay, ...]
    moments: tuple[Moment, ...]

    @property
    def completed(self) -> int:
        return sum(job.ended is not None for job in self.jobs)

    @property
    def never_started(self) -> int:
        return sum(job.started is None for job in self.jobs)

    @property
    def makespan(self) -> float | None:
        """First submission to last end, seconds; None where not all jobs have ended."""
        ends = [job.ended for job in self.jobs if job.ended is not None]
        if len(ends) < len(self.jobs) or not ends:
            return None
        return max(ends) - min(job.submitted for job in self.jobs)

    @property
    def waits(self) -> list[float]:
        """Submission to the last pod bound, seconds, the last try counted from the first submission; for a job
        that did not start: until the end of the run, which is too little."""
        return sorted((self.end if job.started is None else job.started) - job.submitted for job in self.jobs)

    @property
    def times(self) -> list[float]:
        """JCT: submission to end, seconds; of a job that has not ended, until the end of the run: too little."""
        return sorted((self.end if job.ended is None else job.ended) - job.submitted for job in self.jobs)

    @property
    def sat(self) -> list[Stay]:
        return [stay for stay in self.stays if stay.sat]

    def area(self, what: str) -> float:
        """GPU-hours under running_gpus or held_gpus."""
        ends = [*(moment.at for moment in self.moments[1:]), self.end]
        held = (getattr(now, what) * (end - now.at) for now, end in zip(self.moments, ends, strict=True))
        return float(sum(held)) / HOUR


def outcome(scheduler: str, course: Course, end: float, limit: float) -> Outcome:
    return Outcome(
        scheduler=scheduler,
        end=end,
        limit=limit,
        jobs=tuple(
            JobOutcome(
                job.submission.name,
                job.submission.gpus,
                job.submission.pods,
                job.submitted,
                job.started,
                job.ended,
                job.attempt,
                job.interrupted,
                job.resized,
            )
            for job in course.jobs.values()
        ),
        stays=tuple(course.stays),
        moments=tuple(course.moments),
    )


def figures(run: Outcome) -> Json:
    """What is compared: plain numbers, times in the unit that the name says, all of the trace's clock."""
    gangs = {stay.job for stay in run.sat}
    waits, times = np.array(run.waits or [0.0]), np.array(run.times or [0.0])
    return {
        "jobs": len(run.jobs),
        "jobs_completed": run.completed,
        "jobs_never_started": run.never_started,
        "gangs_partly_bound": len(gangs),
        "gangs_partly_bound_hours": sum(stay.ended - stay.began for stay in run.sat) / HOUR,
        "gangs_partly_bound_longest_minutes": max((stay.ended - stay.began for stay in run.sat), default=0.0)
        / MINUTE,
        "gangs_given_up": sum(stay.gave_up for stay in run.stays),
        "gpu_hours_held": run.area("held_gpus"),
        "gpu_hours_run": run.area("running_gpus"),
        "time_to_start_mean_minutes": float(waits.mean()) / MINUTE,
        "time_to_start_p50_minutes": float(np.quantile(waits, 0.5)) / MINUTE,
        "time_to_start_p95_minutes": float(np.quantile(waits, 0.95)) / MINUTE,
        "jct_mean_minutes": float(times.mean()) / MINUTE,
        "jct_p50_minutes": float(np.quantile(times, 0.5)) / MINUTE,
        "jct_p95_minutes": float(np.quantile(times, 0.95)) / MINUTE,
        "resizes": sum(job.resized for job in run.jobs),
        "makespan_hours": None if run.makespan is None else run.makespan / HOUR,
        "run_hours": run.end / HOUR,
    }


def comparison(runs: Sequence[Outcome]) -> list[tuple[str, list[str]]]:
    """Rows of the table at the end: what, and a figure for each run. "≥" where jobs that were cut off are in it."""
    found = [figures(run) for run in runs]

    def row(what: str, form: str, *names: str) -> tuple[str, list[str]]:
        return what, [form.format(*(values[name] for name in names)) for values in found]

    def minutes(what: str, name: str, cut: str) -> tuple[str, list[str]]:
        return what, [f"{'≥ ' if cut_off(values, cut) else ''}{values[name]:.1f} min" for values in found]

    def cut_off(values: Json, cut: str) -> bool:
        return bool(
            values["jobs_never_started"] if cut == "start" else values["jobs_completed"] < values["jobs"]
        )

    return [
        minutes("completion time (JCT) [1], mean", "jct_mean_minutes", "end"),
        minutes("  p50", "jct_p50_minutes", "end"),
        minutes("  p95", "jct_p95_minutes", "end"),
        minutes("time to start [2], mean", "time_to_start_mean_minutes", "start"),
        minutes("  p50", "time_to_start_p50_minutes", "start"),
        minutes("  p95", "time_to_start_p95_minutes", "start"),
        row("gangs that sat partly bound [3]", "{}", "gangs_partly_bound"),
        row("  for how long, all together", "{:.1f} h", "gangs_partly_bound_hours"),
        row("  the longest", "{:.0f} min", "gangs_partly_bound_longest_minutes"),
        row("  gave up and were submitted again", "{} times", "gangs_given_up"),
        row("GPU-hours held by gangs that could not run", "{:.1f}", "gpu_hours_held"),
        row("GPU-hours of jobs that ran [4]", "{:.0f}", "gpu_hours_run"),
        row("changes of size of elastic jobs", "{}", "resizes"),
        (
            "makespan",
            [
                f"{values['makespan_hours']:.2f} h"
                if values["makespan_hours"] is not None
                else f"over {values['run_hours']:.2f} h (cut off)"
                for values in found
            ],
        ),
        (
            "jobs completed",
            [f"{values['jobs_completed']} of {values['jobs']}" for values in found],
        ),
    ]


NOTES = (
    "All times are the trace's.",
    "[1] first submission to the end; of jobs that were not done, the time until the run was cut off.",
    "[2] first submission to the last pod bound, of an elastic job to its first; of jobs that never started, the "
    "time until the run was cut off.",
    "[3] for over a minute, with a member that the scheduler had refused. What gangs hold while they are on their "
    "way up is in the GPU-hours held, in every run.",
    "[4] a job that has more GPUs than it asked for uses them less well: the same work takes more GPU-hours.",
)


def as_json(runs: Sequence[Outcome], workload: Workload, cluster: Json, options: Json) -> Json:
    """Everything, to draw it again or to compare: figures, jobs, stays, moments."""
    return {
        "cluster": cluster,
        "options": options,
        "workload": {
            "source": workload.source,
            "left_out": list(workload.left_out),
            "jobs": len(workload.jobs),
            "gangs": workload.gangs,
            "pods": workload.pods,
            "gpu_hours": workload.gpu_hours,
            "load": workload.load(cluster["nodes"] * cluster["gpus_a_node"]),
            "window_hours": workload.window / HOUR,
            "cap_hours": workload.cap / HOUR,
        },
        "schedulers": {
            run.scheduler: {
                "figures": figures(run),
                "jobs": [dataclasses.asdict(job) for job in run.jobs],
                "stays": [dataclasses.asdict(stay) | {"sat": stay.sat} for stay in run.stays],
                "moments": [dataclasses.asdict(moment) for moment in run.moments],
            }
            for run in runs
        },
    }
