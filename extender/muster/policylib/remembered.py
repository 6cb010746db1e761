"""What a plugin remembers of each job, as columns of the table's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from muster.types import FloatArray, SharingSnapshot


def columns(snapshot: SharingSnapshot, name: str, fields: Sequence[str]) -> dict[str, FloatArray]:
    """(J,) numbers by field that the plugin `name` keeps of the jobs of the snapshot's table; 0 where it has none.

    From the table itself where an engine keeps columns (`points.Fold`), else from the jobs' memory.
    """
    table = snapshot.table
    kept: Mapping[str, Mapping[str, FloatArray]] | None = getattr(table, "memory", None)
    if kept is not None:
        own = kept.get(name, {})
        return {field: own[field] if field in own else np.zeros(len(table)) for field in fields}
    result = {field: np.zeros(len(table)) for field in fields}
    for row, key in enumerate(table.keys):
        job = snapshot.jobs.get(key)
        memory = job.memory.get(name) if job is not None else None
        if isinstance(memory, Mapping):
            for field in fields:
                value = memory.get(field, 0.0)
                result[field][row] = float(value) if isinstance(value, int | float) else 0.0
    return result


def folded(snapshot: SharingSnapshot, name: str) -> bool:
    """Whether an engine has folded the plugin's columns for this very snapshot already."""
    kept: Mapping[str, Mapping[str, FloatArray]] | None = getattr(snapshot.table, "memory", None)
    return kept is not None and name in kept
