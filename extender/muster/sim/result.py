"""What a simulation gives: one row a job, time-weighted gauges, and, where asked for, the whole history.

All times are seconds from the trace's start; nan = did not happen (a job that never started or ended).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.sim.workload import Problem
from muster.types import FloatArray, IntArray

NO_SPEED = "its model has no speed in the configuration that it runs in"
NOTHING_COMES = "it waits, and nothing comes that would start it"
"""Why a job never ends, where nobody says more."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One job in one configuration for a while; `gpus` is 0 while it waits between two runs."""

    job: int
    start: float
    end: float
    gpus: int
    nodes: tuple[str, ...] = ()
    note: str = ""  # "restart", "hand-over", ... while it makes no progress


@dataclass(frozen=True)
class Result:
    """One profile on one workload.

    names: J job names in the workload's order; submitted, started, ended: (J,) s; restarts, moves: (J,);
    gpu_seconds: (J,). gauges: time-weighted means from first submission to last completion: `queue` (jobs
    waiting), `utilisation` and `idle_gpus`, `efficiency` (CE: (1/M) sum of speed / speed on one GPU),
    `blocking` (mean over waiting jobs of waiting time / remaining time on one GPU), `finish_time_fairness`, ...
    segments and queue (time, jobs waiting) only where the history was recorded. cut: why it ended early; interrupted:
    by Ctrl-C. notes: what the reader must know (assumptions, jobs left out). events: events processed.
    """

    profile: str
    names: Sequence[str]
    submitted: FloatArray
    started: FloatArray
    ended: FloatArray
    restarts: IntArray
    moves: IntArray
    gpu_seconds: FloatArray
    gpus: int
    gauges: Mapping[str, float] = field(default_factory=dict)
    segments: Sequence[Segment] = ()
    queue: Sequence[tuple[float, int]] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    cut: str = ""
    interrupted: bool = False
    events: int = 0
    requests: Sequence[int] = ()
    models: Sequence[str] = ()
