"""How much clusters are asked for: what the load of a drawn workload stands for. Pure.

The eleven traces of AFS (Philly's virtual clusters) on the 64 GPUs of that paper's cluster. Two figures: GPU-seconds
asked for by GPU-seconds there are, from the first submission to the last, as a job sees it (each trace counts by its
jobs); and the GPUs that would be in use in a busy hour if every job began at once, by the GPUs there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.sim.workload import Workload
from muster.types import Config, FloatArray

GPUS = 64
BUSY = 10
"""Submissions in a busy hour (as e2e.demo.statistics has it)."""
HOUR = 3600.0


def jobs(workload: Workload) -> FloatArray:
    """(J, 3): submission (s), length (s) on the GPUs that were asked for, those GPUs."""
    return np.array(
        [
            (one.submitted, one.work / workload.models[one.model].speed(_alike(one.request)), one.request)
            for one in workload.submissions
        ]
    )


def load(found: FloatArray, gpus: int = GPUS) -> float:
    """GPU-seconds asked for by GPU-seconds there are, from the first submission to the last."""
    at, length, asked = found.T
    return float((length * asked).sum() / (gpus * (at[-1] - at[0])))


def busy_hours(found: FloatArray, gpus: int = GPUS) -> FloatArray:
    """Of each hour with BUSY submissions or more: the GPUs that all jobs would use at once, by the GPUs there are."""
    at, length, asked = found.T
    at = at - at[0]
    edges = np.arange(0.0, at[-1] + HOUR, HOUR)
    used = np.diff(_since(at, asked, edges) - _since(at + length, asked, edges)) / (HOUR * gpus)
    submitted = np.bincount((at // HOUR).astype(int), minlength=len(used))[: len(used)]
    busy: FloatArray = used[submitted >= BUSY]
    return busy


def seen_by_a_job(traces: Sequence[FloatArray]) -> float:
    """The mean of the traces' loads, each as often as it has jobs."""
    return float(np.average([load(one) for one in traces], weights=[len(one) for one in traces]))


def _since(at: FloatArray, asked: FloatArray, edges: FloatArray) -> FloatArray:
    """GPU-seconds until each edge, if each amount were used from its moment on."""
    order = np.argsort(at)
    began = np.searchsorted(at[order], edges)
    amounts = np.concatenate(([0.0], np.cumsum(asked[order])))
    moments = np.concatenate(([0.0], np.cumsum(asked[order] * at[order])))
    found: FloatArray = edges * amounts[began] - moments[began]
    return found


def _alike(count: int) -> Config:
    return Config(roles=(("worker", count),), nodes=(count,))
