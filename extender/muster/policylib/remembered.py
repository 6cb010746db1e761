"""What a plugin remembers of each job, as columns of the table's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from muster.memory import Memory
from muster.types import FloatArray, SharingSnapshot


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


def number(value: object) -> float:
    """A number that a plugin kept, 0 where it is none."""
    return float(value) if isinstance(value, int | float) else 0.0


def folded(snapshot: SharingSnapshot, memory: Memory[Any]) -> bool:
    """Whether an engine has folded the plugin's columns for this very snapshot already."""
    kept: Mapping[str, Mapping[str, FloatArray]] | None = getattr(snapshot.table, "memory", None)
    return kept is not None and memory.name in kept
