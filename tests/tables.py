"""Hand-made tables for Share plugins and the maths that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from muster.points import Adjust
from muster.types import Grants, JobKey, Nodes, SharingSnapshot, Table


def table(
    gpus: int,
    *,
    most: Sequence[int],
    least: Sequence[int] | int = 1,
    request: Sequence[int] | int = 1,
    have: Sequence[int] | int = 0,
    unit: Sequence[int] | int = 1,
    remaining: Sequence[float] | float = 100.0,
    submitted: Sequence[float] | None = None,
    first_start: Sequence[float] | float = np.inf,
    run_start: Sequence[float] | float = np.inf,
    run_gpu_seconds: Sequence[float] | float = 0.0,
    curve: Sequence[int] | None = None,
    curves: Sequence[Sequence[float]] | None = None,
    sizes: Mapping[int, tuple[int, ...]] | None = None,
    per_node: int = 4,
) -> Table:
    """One row for each of `most`; a single value is every row's. Without curves all jobs are linear."""
    jobs = len(most)

    def floats(values: Sequence[float] | float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array(np.broadcast_to(values, jobs), dtype=np.float64)

    def ints(values: Sequence[int] | int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(np.broadcast_to(values, jobs), dtype=np.int64)

    made = Table()
    made.keys = [JobKey("test", f"job-{n}") for n in range(jobs)]
    made.row = {key: n for n, key in enumerate(made.keys)}
    made.gpus, made.per_node, made.products = gpus, per_node, {}
    made.max, made.min, made.request = ints(most), ints(least), ints(request)
    made.have, made.unit, made.fixed, made.priority = ints(have), ints(unit), ints(0), ints(0)
    made.submitted = floats(range(jobs) if submitted is None else submitted)
    made.first_start, made.run_start = floats(first_start), floats(run_start)
    made.last_resize = floats(-np.inf)
    made.gpu_seconds = made.run_gpu_seconds = floats(run_gpu_seconds)
    made.executed = made.progress = floats(0.0)
    made.remaining = floats(remaining)
    width = max([*most, 1]) + 1
    shown = [list(range(width))] if curves is None else [list(c) for c in curves]
    made.curves = np.array([c + [c[-1]] * (width - len(c)) for c in shown], dtype=np.float64)
    made.curve = ints(0 if curve is None else curve)
    made.sizes = dict(sizes or {})
    return made


def snapshot(of: Table, now: float = 0.0, seed: int = 0) -> SharingSnapshot:
    """A snapshot that holds nothing but the table."""
    nodes = Nodes([])
    return SharingSnapshot(now, nodes, nodes.total, {}, table=of, seed=seed)


def granted(plugin: object, of: Table, now: float = 0.0, plan: Sequence[int] | None = None) -> list[int]:
    """What a Share plugin grants, or an Adjust plugin of `plan`, which the one before it granted."""
    shown = snapshot(of, now)
    if isinstance(plugin, Adjust):
        before = Grants(of.have if plan is None else np.array(plan, dtype=np.int64))
        replicas = plugin.adjust(before, shown).replicas
    else:
        replicas = plugin.share(shown).replicas  # type: ignore[attr-defined]
    result: list[int] = replicas.tolist()
    return result
