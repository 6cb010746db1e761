"""What a plugin remembers of each job, as columns of the table's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from muster.memory import Memory
from muster.types import FloatArray, Job, SharingSnapshot


def columns(snapshot: SharingSnapshot, memory: Memory[Any], fields: Sequence[str]) -> dict[str, FloatArray]:
    """(J,) numbers by field that a plugin's memory has of the jobs of the snapshot's table; 0 where it has none.

    From the table itself where an engine keeps columns (`points.Fold`), else from the jobs' memory.
    """
    table = snapshot.table
    kept: Mapping[str, Mapping[str, FloatArray]] | None = getattr(table, "memory", None)
    if kept is not None:
        own = kept.get(memory.name, {})
        return {field: own[field] if field in own else np.zeros(len(table)) for field in fields}
    result = {field: np.zeros(len(table)) for field in fields}
    for row, key in enumerate(table.keys):
        job = snapshot.jobs.get(key)
        plain = (memory.plain(job) if job is not None else None) or {}
        for field in fields:
            result[field][row] = number(plain.get(field))
    return result


def has_places(job: Job) -> bool:
    """Whether it has been granted something: it is on nodes, or on its way there."""
    return bool(job.running or job.reservations or job.restart_on)


def earlier(granted: FloatArray, start: FloatArray) -> FloatArray:
    """(J,) when each job was granted what it has, as remembered (0: not known), where that is before its start.

    In a simulation it never is: a start is at once. On a cluster kube-scheduler binds in any order, and who restarts
    begins another run: by starts alone those granted together would take GPUs from each other.
    """
    return np.where(granted > 0.0, np.minimum(granted, start), start)


def number(value: object) -> float:
    """A number that a plugin kept, 0 where it is none."""
    return float(value) if isinstance(value, int | float) else 0.0


def folded(snapshot: SharingSnapshot, memory: Memory[Any]) -> bool:
    """Whether an engine has folded the plugin's columns for this very snapshot already."""
    kept: Mapping[str, Mapping[str, FloatArray]] | None = getattr(snapshot.table, "memory", None)
    return kept is not None and memory.name in kept
