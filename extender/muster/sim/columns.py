"""The fluid engine's table: the columns that Share plugins read, kept up from event to event instead of made again.

Rows are the jobs that have been submitted and have not ended, by submission (ties: the trace's order). Two
matrices hold all columns, so that a job that ends takes two moves of the rows behind it; the table's columns are
views of them. What grows with time (GPU-seconds, remaining work) is worked out when a plugin asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from muster.sim.fluid_truth import (
    CURVE,
    EXECUTED,
    FIRST,
    FIXED,
    FLOATS,
    GPU_SECONDS,
    HAVE,
    INTS,
    JOB,
    MAX,
    MIN,
    PRIORITY,
    REMAINING,
    REQUEST,
    RESIZE,
    RUN,
    RUN_GPU_SECONDS,
    SINCE,
    SUBMITTED,
    UNIT,
    WORK,
    Truth,
)
from muster.types import Config, FloatArray, IntArray, JobKey, Table


def _floats(row: int) -> Any:
    """A column that is a row of `floats`."""
    return property(lambda self: self.floats[row, : self.count])


def _ints(row: int) -> Any:
    """A column that is a row of `ints`."""
    return property(lambda self: self.ints[row, : self.count])


class Columns(Table):
    """The table of one simulation. See the module; `now` is the time for which it is right (s)."""

    __slots__ = (
        *("_believed", "_keys", "_sizes", "count", "floats", "ints"),
        *("configs", "kept", "memory", "names", "now", "simple", "speeds", "stale", "truth"),
    )

    def __init__(self, known: Truth, names: Sequence[str], gpus: int, per_node: int) -> None:
        self.truth = known
        self.names = names
        self.gpus, self.per_node, self.products = gpus, per_node, {}
        self.simple = known.simple
        self.floats: FloatArray = np.zeros((FLOATS, 64), dtype=np.float64)
        self.ints: IntArray = np.zeros((INTS, 64), dtype=np.int64)
        self.memory: dict[str, dict[str, FloatArray]] = {}  # by plugin and field, (J,): `points.Fold`
        # Made once a curve, for Job objects: declared speeds, and configurations with their true speeds.
        self.speeds: dict[int, tuple[tuple[int, float], ...]] = {}
        self.configs: dict[int, tuple[tuple[Config, float], ...]] = {}
        self.kept: dict[int, dict[str, Mapping[str, object]]] = {}  # by job and plugin: `points.Observe`
        self.count = 0
        self.now = 0.0
        # Progress that is not written yet: rows, iterations left, and s of one iteration on one replica.
        self.stale: tuple[IntArray, FloatArray, FloatArray] | None = None
        self._moved()

    def __len__(self) -> int:
        return self.count

    # ---- rows ----

    def add(self, jobs: Sequence[int]) -> None:
        """Jobs that have been submitted, as the last rows."""
        end = self.count + len(jobs)
        while end > self.floats.shape[1]:
            self.floats = np.concatenate((self.floats, np.zeros_like(self.floats)), axis=1)
            self.ints = np.concatenate((self.ints, np.zeros_like(self.ints)), axis=1)
        first, last = jobs[0], jobs[-1] + 1
        self.floats[:, self.count : end] = self.truth.floats[:, first:last]
        self.ints[:, self.count : end] = self.truth.ints[:, first:last]
        for columns in self.memory.values():
            for name, column in columns.items():
                columns[name] = np.concatenate((column, np.zeros(len(jobs))))
        self.count = end
        self._moved()

    def remove(self, rows: Sequence[int]) -> None:
        """Rows of jobs that have ended; the rows behind them move up."""
        for row in reversed(rows):
            end = self.count
            if row + 1 < end:
                self.floats[:, row : end - 1] = self.floats[:, row + 1 : end]
                self.ints[:, row : end - 1] = self.ints[:, row + 1 : end]
            self.count = end - 1
        for columns in self.memory.values():
            for name, column in columns.items():
                columns[name] = np.delete(column, rows)
        self._moved()

    def _moved(self) -> None:
        """Rows have come or gone: what was worked out by row is not right any more."""
        self._keys: list[JobKey] | None = None
        self._sizes: dict[int, tuple[int, ...]] | None = None
        self._believed: tuple[FloatArray, IntArray, FloatArray] | None = None

    def believe(self, remaining: Sequence[float], curve: IntArray, curves: FloatArray) -> None:
        """What the profile's Estimate says instead of the truth, until rows change or it is asked again."""
        self._believed = np.array(remaining, dtype=np.float64), curve, curves

    submitted = _floats(SUBMITTED)
    first_start = _floats(FIRST)
    run_start = _floats(RUN)
    last_resize = _floats(RESIZE)
    min = _ints(MIN)
    max = _ints(MAX)
    request = _ints(REQUEST)
    have = _ints(HAVE)
    unit = _ints(UNIT)
    fixed = _ints(FIXED)
    priority = _ints(PRIORITY)
    job = _ints(JOB)
    """(J,) the number of each job in the workload."""

    # ---- what is worked out when it is asked for ----

    def flush(self) -> None:
        """Writes the running jobs' progress to the columns."""
        if self.stale is not None:
            rows, left, alone = self.stale
            self.stale = None
            self.floats[WORK][rows] = left
            remaining = left * alone
            if not self.truth.known:
                remaining[np.isnan(self.floats[REMAINING, rows])] = np.nan
            self.floats[REMAINING][rows] = remaining

    @property
    def remaining(self) -> FloatArray:  # type: ignore[override]
        if self._believed is not None:
            return self._believed[0]
        self.flush()
        return self.floats[REMAINING, : self.count]

    def times(self, replicas: IntArray) -> FloatArray:
        """(J,) s that each job would still take at a number of replicas, nan = unknown (see
        `policylib.greedy.times`)."""
        if self._believed is not None:
            remaining, curve, curves = self._believed
            with np.errstate(divide="ignore", invalid="ignore"):
                believed: FloatArray = remaining / curves[curve, replicas]
            return believed
        self.flush()
        left: FloatArray = self.floats[WORK, : self.count] * self.truth.seconds[self.curve, replicas]
        if not self.truth.known:
            left[np.isnan(self.floats[REMAINING, : self.count])] = np.nan
        return left

    @property
    def curve(self) -> IntArray:  # type: ignore[override]
        return self.ints[CURVE, : self.count] if self._believed is None else self._believed[1]

    @property
    def curves(self) -> FloatArray:  # type: ignore[override]
        return self.truth.relative if self._believed is None else self._believed[2]

    def _held(self) -> IntArray:
        held: IntArray = self.have * self.unit + np.where(self.have > 0, self.fixed, 0)
        return held

    @property
    def gpu_seconds(self) -> FloatArray:  # type: ignore[override]
        total = self.floats[GPU_SECONDS, : self.count]
        return total + self._held() * (self.now - self.floats[SINCE, : self.count])

    @property
    def run_gpu_seconds(self) -> FloatArray:  # type: ignore[override]
        total = self.floats[RUN_GPU_SECONDS, : self.count]
        return total + self._held() * (self.now - self.floats[SINCE, : self.count])

    @property
    def executed(self) -> FloatArray:  # type: ignore[override]
        length = self.now - self.floats[SINCE, : self.count]
        return self.floats[EXECUTED, : self.count] + np.where(self.have > 0, length, 0.0)

    @property
    def progress(self) -> FloatArray:  # type: ignore[override]
        self.flush()
        done: FloatArray = self.truth.floats[WORK, self.job] - self.floats[WORK, : self.count]
        progress: FloatArray = done * self.truth.seconds[self.ints[CURVE, : self.count], 1]
        return progress

    @property
    def keys(self) -> Sequence[JobKey]:  # type: ignore[override]
        if self._keys is None:
            self._keys = [JobKey("sim", self.names[n]) for n in self.job.tolist()]
        return self._keys

    @property
    def row(self) -> Mapping[JobKey, int]:  # type: ignore[override]
        return {key: row for row, key in enumerate(self.keys)}

    @property
    def sizes(self) -> Mapping[int, tuple[int, ...]]:  # type: ignore[override]
        if self._sizes is None:
            known = self.truth.sizes
            found = enumerate(self.job.tolist()) if known else iter(())
            self._sizes = {row: known[n] for row, n in found if n in known}
        return self._sizes
