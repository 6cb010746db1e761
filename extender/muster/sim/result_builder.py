"""From the end of a simulation on nodes to its Result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from muster.sim.result import NO_SPEED, NOTHING_COMES, Result
from muster.sim.running_job import Training
from muster.sim.truth import Truth
from muster.sim.workload import Workload
from muster.types import JobKey, Status

MANY = 10
"""Different complaints that are listed."""


def listed(plugin_errors: Mapping[str, Sequence[float]]) -> list[tuple[str, Sequence[float]]]:
    """The first of them."""
    return list(plugin_errors.items())[:MANY]


def result(
    trainings: Sequence[Training],
    truth: Truth,
    workload: Workload,
    profile: str,
    events: int,
    now: float,
    cut: str,
    statuses: Mapping[JobKey, Status],
    plugin_errors: Mapping[str, Sequence[float]],
    *,
    interrupted: bool = False,
) -> Result:
    """What came of it by `now`. statuses: as of the last plan. complaints: what plugins did
    wrong, when first (s) and how often."""
    ended = np.array([t.ended for t in trainings], dtype=np.float64)
    never = [t for t in trainings if math.isnan(t.ended)]
    end = now if never else float(ended.max(initial=0.0))
    for training in truth.active.values():
        truth.advance(training, end)
        truth.tally.close(training, end)
    notes = [f"job {t.submission.name} never ends: {why(t, truth, statuses)}" for t in never if not cut]
    notes += [
        f"{words} ({times:.0f} times from {at:.0f} s on)" for words, (at, times) in listed(plugin_errors)
    ]
    if len(plugin_errors) > MANY:
        notes.append(f"and {len(plugin_errors) - MANY} other complaints of plugins")
    locked = [t for t in never if t.spots and t.config is None and not cut]
    if locked:
        cut = f"deadlock at {now:.0f} s: {len(locked)} jobs hold places and wait for the rest of theirs for ever"
    return Result(
        profile=profile,
        names=[t.submission.name for t in trainings],
        submitted=np.array([t.arrival for t in trainings], dtype=np.float64),
        started=np.array([t.started for t in trainings], dtype=np.float64),
        ended=ended,
        restarts=np.array([t.restarts for t in trainings], dtype=np.int64),
        moves=np.array([t.moves for t in trainings], dtype=np.int64),
        gpu_seconds=np.array([t.gpu_seconds.at(end) for t in trainings], dtype=np.float64),
        gpus=truth.site.gpus,
        gauges={
            **truth.tally.means(trainings, end, truth.site.gpus),
            "deadlocks": float(len(locked)),
        },
        segments=tuple(sorted(truth.tally.segments, key=lambda s: (s.start, s.job))),
        queue=tuple(truth.tally.queue),
        problems=workload.problems,
        notes=tuple(notes),
        cut=cut,
        interrupted=interrupted,
        events=events,
        requests=[t.submission.request for t in trainings],
        models=[t.submission.model for t in trainings],
    )


def why(training: Training, truth: Truth, statuses: Mapping[JobKey, Status]) -> str:
    """Why a job never ends."""
    if training.key not in truth.active:
        return "it was never submitted"
    if training.spots and training.config is None:
        return f"it holds {len(training.spots)} of its replicas' places and waits for the rest for ever"
    if training.spots:
        return NO_SPEED
    if training.key in statuses:
        return statuses[training.key].message
    return NOTHING_COMES
