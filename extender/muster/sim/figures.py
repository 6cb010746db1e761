"""From a Result to figures. README.md beside this file defines each; hours are suffixed _h.

Percentiles are numpy's linear ones. A figure that does not exist (no job completed) is nan, which JSON has as null.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from muster.sim.result import Result
from muster.sim.workload import Problem
from muster.types import FloatArray

HOUR = 3600.0
COLUMNS = ("profile", "job", "submit_s", "start_s", "end_s", "jct_s", "restarts", "gpu_seconds")
GAUGES = {
    "jobs": "avg_jobs",
    "queue": "avg_queue",
    "utilisation": "utilisation",
    "idle_gpus": "avg_idle_gpus",
    "efficiency": "cluster_efficiency",
    "blocking": "blocking_index",
    "finish_time_fairness": "finish_time_fairness",
}
"""The engines' time-weighted means, and what they are called here; others keep their names."""


def figures(result: Result) -> dict[str, float | int]:
    """Every figure of one profile by name."""
    ended = ~np.isnan(result.ended)
    started = ~np.isnan(result.started)
    jct = (result.ended - result.submitted)[ended] / HOUR
    waited = (result.started - result.submitted)[started] / HOUR
    found: dict[str, float | int] = {
        "jobs": len(result.names),
        "completed": int(ended.sum()),
        "unfinished": int((~ended).sum()),
        "never_started": int((~started).sum()),
        "avg_jct_h": _mean(jct),
        "p50_jct_h": _percentile(jct, 50),
        "p90_jct_h": _percentile(jct, 90),
        "p99_jct_h": _percentile(jct, 99),
        "makespan_h": _makespan(result) / HOUR,
        "avg_queueing_h": _mean(waited),
        "p50_queueing_h": _percentile(waited, 50),
        "p99_queueing_h": _percentile(waited, 99),
        "gpu_hours": float(result.gpu_seconds.sum()) / HOUR,
        "restarts": int(result.restarts.sum()),
        "migrations": int(result.moves.sum()),
        "gpus": result.gpus,
        "events": result.events,
    }
    for gauge, value in result.gauges.items():  # what an engine measures besides never stands in for ours
        found.setdefault(GAUGES.get(gauge, gauge), float(value))
    return found


def as_json(
    results: Mapping[str, Result], problems: Sequence[Problem] = (), notes: Sequence[str] = ()
) -> str:
    """One object, keyed by the profile as given. problems and notes: of the trace, which all profiles share."""
    plain = {name: _plain(result, problems, notes) for name, result in results.items()}
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"


def jobs_csv(results: Mapping[str, Result]) -> str:
    """A row for each profile and job, in the trace's order; what did not happen is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, result in results.items():
        columns: tuple[Iterable[Any], ...] = (
            result.names,
            map(shown, result.submitted.tolist()),
            map(shown, result.started.tolist()),
            map(shown, result.ended.tolist()),
            map(shown, (result.ended - result.submitted).tolist()),
            result.restarts.tolist(),
            map(shown, result.gpu_seconds.tolist()),
        )
        writer.writerows((name, *row) for row in zip(*columns, strict=True))
    return out.getvalue()


def problems_csv(problems: Sequence[Problem]) -> str:
    """What was not as it should be, and what was done about it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("line", "what", "done"))
    writer.writerows((p.line or "", p.what, p.done) for p in problems)
    return out.getvalue()


def shown(value: float) -> str:
    """A number that reads back as the same one: 12, 12.5, nothing for nan."""
    if math.isnan(value):
        return ""
    return str(int(value)) if value == int(value) else repr(value)


def all_problems(result: Result, problems: Sequence[Problem]) -> list[Problem]:
    """Those of the trace, then those of the run."""
    return list(dict.fromkeys([*problems, *result.problems]))


def _plain(result: Result, problems: Sequence[Problem], notes: Sequence[str]) -> dict[str, Any]:
    plain: dict[str, Any] = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in figures(result).items()
    }
    plain["cut"] = result.cut
    plain["notes"] = list(dict.fromkeys([*notes, *result.notes]))
    plain["problems"] = [
        {"line": p.line, "what": p.what, "done": p.done} for p in all_problems(result, problems)
    ]
    return plain


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else math.nan


def _percentile(values: FloatArray, at: float) -> float:
    return float(np.percentile(values, at)) if len(values) else math.nan


def _makespan(result: Result) -> float:
    """Last completion minus first submission (s); nan before any completion."""
    ended = result.ended[~np.isnan(result.ended)]
    return float(ended.max() - result.submitted.min()) if len(ended) else math.nan
