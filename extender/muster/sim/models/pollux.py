# Over 300 lines: the artifact's physics, tables and files of one paper belong together.
"""The six applications of Pollux's artifact (OSDI'21): how fast they train, and how far each epoch brings them.

Measured: seconds of a step (and of its gradient exchange) by placement and local batch size on nodes of four
GPUs; and one training run by batch size, with iterations, statistical progress and gradient noise after each
epoch. From both follows the *goodput* (Pollux, §3) at which a job truly advances:

    progress/s = (var + sqr) / (var / scale + sqr) / time of a step,   scale = batch size / the smallest measured

with the gradients' variance and squared norm of the epoch under way. Work is statistical progress: iterations that
the smallest batch size would have needed. An epoch's end is the least progress of all runs at that epoch; a job is
done when it has had the application's number of epochs (the artifact sets no target metric).

A placement is looked up by its counts a node, turned so that it reads smallest (a ring has no beginning). One that
was not measured is interpolated linearly in nodes, replicas and local batch size over all measurements (mean of
the placements of equal counts, and the scalability file); where those do not reach (the artifact stops with an
error there), the nearest measurement holds.
"""

from __future__ import annotations

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from muster.sim.physics import (
    CHANGE,
    HAND_OVER,
    IN_PLACE,
    RESTART,
    START,
    Cost,
    Running,
    Stage,
    Standard,
    by_options,
    report_of,
)
from muster.sim.submission import Model, Submission
from muster.sim.traces.source import UnreadableError, read_text
from muster.types import Config, FloatArray, Report

if TYPE_CHECKING:
    from muster.sim.options import Options

EPOCHS: Mapping[str, int] = {
    "bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50,
}  # fmt: skip
"""Epochs to the end (artifact, applications.py); any other application trains as long as it was measured."""
LARGEST_LOCAL: Mapping[str, int] = {"yolov3": 8}
"""The local batch size beyond which gradients are accumulated, where it is not the largest measured one."""
ONE_GPU = frozenset({"ncf"})
"""Applications that the artifact's elastic policies never give a second GPU."""
MOST_NODES = 16
"""The scalability measurements end here; more nodes count as so many."""
NODE = 4
"""GPUs of a node on which the step times were measured."""
COLUMNS = ("iteration", "progress", "metric", "grad_sqr", "grad_var")
TINY = 1e-8
"""So that 3.0000000001 replicas' worth rounds up to 3."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One training run: (E,) each, after epoch 1, 2, ... E. iteration: done by then at this batch size."""

    iteration: FloatArray
    progress: FloatArray
    metric: FloatArray
    grad_sqr: FloatArray
    grad_var: FloatArray


class Application:
    """One application: a `Model` with epochs (see muster.sim.physics.stage_of)."""

    def __init__(
        self,
        name: str,
        runs: Mapping[int, Curve],
        placements: Mapping[tuple[int, ...], Sequence[tuple[int, float, float]]],
        scalability: Sequence[tuple[int, int, int, float, float]],
    ) -> None:
        """runs by batch size; placements: by counts a node, (local batch, step s, sync s) by rising local batch;
        scalability: (nodes, replicas, local batch, step s, sync s)."""
        self.name = name
        self.runs = dict(sorted(runs.items()))
        self.smallest, self.largest = min(runs), max(runs)
        self.epochs = EPOCHS.get(name, min(len(run.progress) for run in runs.values()))
        local = [batch for rows in placements.values() for batch, _, _ in rows]
        self.least_local = min(local)
        self.most_local = LARGEST_LOCAL.get(name, max(local))
        ends = [min(float(run.progress[e]) for run in runs.values()) for e in range(self.epochs)]
        self.ends = (0.0, *ends)
        """Progress at which epoch 0, 1, ... has ended; the last is the work of a job."""
        self.max = 1 if name in ONE_GPU else self.largest // self.least_local
        self._placements = {
            counts: tuple(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
            for counts, rows in placements.items()
        }
        self._scalability = scalability
        self._surface: Any = None
        self._points: FloatArray = np.zeros((0, 5))
        self._times: dict[tuple[tuple[int, ...], int], tuple[float, float]] = {}
        self._columns: dict[tuple[int, str], FloatArray] = {}
        self._speeds: dict[tuple[tuple[int, ...], int], tuple[float, ...]] = {}
        self._declared: dict[tuple[int, int], tuple[float, tuple[tuple[int, float], ...]]] = {}

    # ---- the Model ----

    def speed(self, config: Config) -> float:
        """Progress/s in the first epoch."""
        return self.speed_at(config, 0.0)

    def speed_at(self, config: Config, step: float) -> float:
        """Progress/s in the epoch that holds `step`; config.nodes are counts a node, config.batch the job's own."""
        key = (config.nodes or packed(config.replicas, NODE), config.batch)
        speeds = self._speeds.get(key)
        if speeds is None:
            speeds = self._speeds[key] = self._goodput(*key)
        return speeds[min(self.epoch(step), self.epochs - 1)]

    def mean_speed(self, config: Config) -> float:
        """Progress/s over a whole job that keeps its configuration: its work over the time of all epochs."""
        seconds = [
            (end - start) / self.speed_at(config, start)
            for start, end in zip(self.ends, self.ends[1:], strict=False)
        ]
        return self.ends[-1] / sum(seconds)

    def epoch(self, step: float) -> int:
        """Whole epochs done."""
        return bisect_right(self.ends, step) - 1

    def epoch_end(self, step: float) -> float:
        """Progress at which the epoch under way ends; inf after the last."""
        epoch = self.epoch(step)
        return self.ends[epoch + 1] if epoch < self.epochs else math.inf

    def declared(self, submission: Submission, per_node: int) -> tuple[float, tuple[tuple[int, float], ...]]:
        """What its owner tells policies: seconds on one replica of the whole job, and speeds by replicas.

        Speeds are of *steps* at its batch size, packed on as few nodes as possible: the artifact's Optimus knows
        this table. On one replica it always counts two accumulation steps or more (`predict_step_time`).
        """
        key = (submission.batch, per_node)
        if key not in self._declared:
            most = min(max(submission.max, submission.request, 1), MOST_NODES * per_node)
            asked = [
                (packed(n, per_node), *self.local(submission.batch, n, accumulate=True))
                for n in range(1, most + 1)
            ]
            self._measure((nodes, local) for nodes, local, _ in asked)
            times = [self._seconds(*config) for config in asked]
            total = self.iterations(submission.batch, self.epochs - 1) * times[0]
            self._declared[key] = (total, tuple((n + 1, times[0] / t) for n, t in enumerate(times)))
        return self._declared[key]

    # ---- batch sizes, steps and epochs ----

    def local(self, batch: int, replicas: int, *, accumulate: bool = False) -> tuple[int, int]:
        """Local batch size of one pass, and passes beyond the first before gradients are exchanged.

        A single replica accumulates at least once where the batch is larger than the smallest measured one
        (`accumulate`: always): the artifact needs two passes to measure gradient noise.
        """
        share = math.ceil(batch / replicas - TINY)
        extra = math.ceil(share / self.most_local - TINY) - 1
        if replicas == 1 and (accumulate or batch > self.smallest):
            extra = max(1, extra)
        one = math.ceil(share / (extra + 1) - TINY)
        return min(one, int(self.largest / (replicas * (extra + 1)))), extra

    def iterations(self, batch: int, epoch: int) -> float:
        """Iterations done at this batch size when epoch number `epoch` (from 0) has ended; linear between runs."""
        return float(self._between(batch, "iteration")[epoch])

    def noise(self, batch: int, epoch: int) -> float:
        """Gradient noise scale (samples) at this batch size in epoch number `epoch` (from 0)."""
        sqr, var = self._between(batch, "grad_sqr")[epoch], self._between(batch, "grad_var")[epoch]
        return float(var / sqr) * self.smallest

    def _goodput(self, nodes: tuple[int, ...], batch: int) -> tuple[float, ...]:
        """Progress/s of each epoch."""
        replicas = sum(nodes)
        local, extra = self.local(batch or self.smallest, replicas)
        whole = replicas * local * (extra + 1)
        sqr, var = self._between(whole, "grad_sqr"), self._between(whole, "grad_var")
        gain = (var + sqr) / (var / (whole / self.smallest) + sqr)
        speeds: list[float] = (gain / self._seconds(nodes, local, extra)).tolist()
        return tuple(speeds)

    def _between(self, batch: int, column: str) -> FloatArray:
        """(E,) linear in the batch size between the runs around it; the nearest run outside of them."""
        key = (batch, column)
        if key not in self._columns:
            inside = min(max(batch, self.smallest), self.largest)
            low = max(size for size in self.runs if size <= inside)
            high = min(size for size in self.runs if size >= inside)
            below: FloatArray = getattr(self.runs[low], column)[: self.epochs]
            above: FloatArray = getattr(self.runs[high], column)[: self.epochs]
            if low != high:
                below = ((inside - low) * above + (high - inside) * below) / (high - low)
            self._columns[key] = below
        return self._columns[key]

    # ---- times of a step ----

    def _seconds(self, nodes: tuple[int, ...], local: int, extra: int) -> float:
        """One step of the whole batch: `extra` passes without gradient exchange, then one with it."""
        step, sync = self.step_time(nodes, local)
        return step + (step - sync) * extra

    def step_time(self, nodes: tuple[int, ...], local: int) -> tuple[float, float]:
        """Seconds of a pass and of the gradient exchange in it."""
        key = (ring(nodes), local)
        if key not in self._times:
            self._measure([key])
        return self._times[key]

    def _measure(self, asked: Iterable[tuple[tuple[int, ...], int]]) -> None:
        """Looks up step times that are not known yet; those of placements that were not measured all at once."""
        wide = []
        for nodes, local in {(ring(nodes), local) for nodes, local in asked} - self._times.keys():
            rows = self._placements.get(nodes)
            if rows is None:
                wide.append((nodes, local))
                continue
            batches, steps, syncs = rows
            self._times[nodes, local] = (
                float(np.interp(local, batches, steps)),
                float(np.interp(local, batches, syncs)),
            )
        if not wide:
            return
        if self._surface is None:
            from scipy.interpolate import LinearNDInterpolator  # a third of a second: only where it is needed

            self._points = self._measured()
            self._surface = LinearNDInterpolator(self._points[:, :3], self._points[:, 3:])
        at = np.array([[min(len(n), MOST_NODES), sum(n), b] for n, b in wide], dtype=np.float64)
        found = self._surface(at)
        for row in np.flatnonzero(np.isnan(found[:, 0])):
            away = np.abs(np.log(self._points[:, :3] / at[row])).sum(axis=1)
            found[row] = self._points[int(np.argmin(away)), 3:]
        self._times.update(zip(wide, ((float(step), float(sync)) for step, sync in found), strict=True))

    def _measured(self) -> FloatArray:
        """(P, 5) nodes, replicas, local batch, step s, sync s: means of equal placements, then the scalability
        runs. The order decides how Qhull cuts the space where points lie on a grid: it is the artifact's."""
        groups: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
        for counts, (batches, steps, syncs) in self._placements.items():
            for batch, step, sync in zip(batches, steps, syncs, strict=True):
                groups.setdefault((len(counts), sum(counts), int(batch)), []).append((step, sync))
        means = [(*key, *np.mean(groups[key], axis=0)) for key in sorted(groups)]
        return np.array([*means, *self._scalability], dtype=np.float64)


def ring(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """The counts turned so that they read smallest, as placements were written down."""
    return min(nodes[i:] + nodes[:i] for i in range(len(nodes)))


def packed(replicas: int, per_node: int) -> tuple[int, ...]:
    """Counts a node on as few nodes as possible, most first."""
    full, rest = divmod(replicas, per_node)
    return (per_node,) * full + ((rest,) if rest else ())


# ---- the physics of the artifact's simulator ----


@dataclass(frozen=True)
class Epochs(Standard):
    """Epochs end on whole seconds, the first start costs what a restart costs, and reports are of iterations.

    A report counts the iterations that the job will have done when the epoch under way is over, and 1 is left in
    the last one: what the artifact's Optimus takes as remaining.
    """

    def report(self, running: Running, stage: Stage, *, boundary: bool) -> Report:
        """Iterations at the job's batch size, from the measured run."""
        model, batch = running.model, running.submission.batch
        if not isinstance(model, Application):
            return report_of(running, stage, boundary=boundary)
        epoch, last = model.epoch(running.step), model.epochs - 1
        total = model.iterations(batch, last)
        return Report(
            at=running.now,
            step=model.iterations(batch, epoch) if epoch < last else total - 1.0,
            total=total if running.submission.known else 0.0,
            epoch=epoch,
            speed=stage.speed,
            boundary=boundary,
        )


def physics(options: Options) -> Epochs:
    """The user's costs, with the artifact's rules on top: another batch size costs nothing."""
    standard = by_options(options)
    start = {("", START): Cost(pause=options.restart)}
    told = {(mechanism, CHANGE): Cost() for mechanism in (RESTART, IN_PLACE, HAND_OVER)}
    costs = {**standard.costs, **start, **told}
    return Epochs(costs, standard.checkpoint, whole_epochs=True, talkative=True, steady=True)


# ---- reading ----


def submission(
    name: str, time: float, application: str, replicas: int, batch: int, models: Mapping[str, Model]
) -> Submission:
    """One row of a workload. ValueError where its batch size was not measured."""
    model = models[application]
    if not isinstance(model, Application):
        raise ValueError(f"model {application!r} has no measured placements")
    if not model.smallest <= batch <= model.largest:
        raise ValueError(
            f"batch_size of {application} must be from {model.smallest} to {model.largest}; found {batch}"
        )
    most = 1 if application in ONE_GPU else max(1, batch // model.least_local)
    return Submission(
        name=name,
        submitted=time,
        model=application,
        work=model.ends[-1],
        request=replicas,
        max=max(most, replicas) if application not in ONE_GPU else most,
        batch=batch,
    )


def read(path: Path) -> Mapping[str, Model]:
    """The applications of a folder. Raises UnreadableError with file, line and reason."""
    folder = path if path.is_dir() else path.parent
    names = sorted(p.name.removesuffix("-placements.csv") for p in folder.glob("*-placements.csv"))
    if not names:
        raise UnreadableError(path, 0, "holds no <model>-placements.csv")
    return {name: _application(folder, name) for name in names}


def _application(folder: Path, name: str) -> Application:
    runs = {}
    for file in sorted((folder / name).glob("validation-*.csv")):
        rows = _rows(file, COLUMNS)
        if rows:
            runs[int(file.stem.removeprefix("validation-"))] = Curve(*np.array(rows, dtype=np.float64).T)
    if not runs:
        raise UnreadableError(folder / name, 0, "holds no validation-<batch>.csv")
    short = min(len(run.progress) for run in runs.values())
    if short < EPOCHS.get(name, 1):
        raise UnreadableError(folder / name, 0, f"holds {short} epochs, {EPOCHS[name]} are needed")
    placements: dict[tuple[int, ...], list[tuple[int, float, float]]] = {}
    measured = _rows(folder / f"{name}-placements.csv", ("placement", "local_bsz", "step_time", "sync_time"))
    for place, local, step, sync in measured:
        counts = tuple(int(digit) for digit in str(int(place)))
        placements.setdefault(counts, []).append((int(local), step, sync))
    scalability = folder / f"{name}-scalability.csv"
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    wide = [
        (int(n), int(k), int(b), step, sync)
        for n, k, b, step, sync in (_rows(scalability, columns) if scalability.exists() else [])
    ]
    return Application(name, runs, {k: sorted(rows) for k, rows in placements.items()}, wide)


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[float, ...]]:
    reader = csv.DictReader(io.StringIO(read_text(path)))
    rows = []
    for row in reader:
        try:
            rows.append(tuple(float(row[column]) for column in columns))
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableError(path, reader.line_num, f"needs numbers in {', '.join(columns)}") from error
    return rows
