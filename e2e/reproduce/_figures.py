"""What `own` compares of two runs: completion times, restarts, and how fair the worst was treated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from muster.sim.result import Result
from muster.sim.workload import Workload
from muster.types import FloatArray


def times(result: Result) -> FloatArray:
    """(J,) s from submission to end."""
    spans: FloatArray = result.ended - result.submitted
    return spans


def mean(result: Result, workload: Workload) -> float:  # noqa: ARG001
    """s, of all jobs."""
    return float(times(result).mean())


def _tail(result: Result, workload: Workload) -> float:  # noqa: ARG001
    return float(np.percentile(times(result), 99))


def _longest(result: Result, workload: Workload) -> float:  # noqa: ARG001
    return float(times(result).max())


def _restarts(result: Result, workload: Workload) -> float:  # noqa: ARG001
    return float(result.restarts.sum())


def _fairness(result: Result, workload: Workload) -> float:
    """The largest (time in the cluster) / (time alone on 1/n of it), n = jobs there on average meanwhile: what the
    gauge `finish_time_fairness` is the mean of, which also says how parts of a GPU count."""
    events = np.sort(np.concatenate((result.submitted, result.ended)))
    there = np.searchsorted(np.sort(result.submitted), events, "right") - np.searchsorted(
        np.sort(result.ended), events, "right"
    )
    crowds = np.concatenate(([0.0], np.cumsum(there[:-1] * np.diff(events))))
    crowd = np.interp(result.ended, events, crowds) - np.interp(result.submitted, events, crowds)
    spans = times(result)
    worst = 0.0
    for job, time, shared in zip(workload.submissions, spans.tolist(), crowd.tolist(), strict=True):
        seconds = np.array(workload.models[job.model].seconds)  # type: ignore[attr-defined]
        part = min(result.gpus * time / max(shared, 1.0), len(seconds), result.gpus)
        speed = np.interp(part, np.arange(len(seconds) + 1), np.concatenate(([0.0], 1.0 / seconds)))
        worst = max(worst, time * speed / job.work)
    return worst


FIGURES: dict[str, Callable[[Result, Workload], float]] = {
    "mean JCT": mean,
    "p99 JCT": _tail,
    "longest JCT": _longest,
    "worst finish-time fairness": _fairness,
    "restarts": _restarts,
}
