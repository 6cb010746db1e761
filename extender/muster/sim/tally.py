"""What a simulation on nodes counts: the gauges that both engines have (sim/gauges.py), its own, and the history.

What is summed by job (speed relative to one replica) is added when a stretch of constant speed ends, so nothing of it
depends on how many events lie between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.core.progress.curves import interpolated
from muster.core.sharing.job_table import curves
from muster.sim.gauges import Gauges
from muster.sim.result import Segment
from muster.sim.running_job import Training


@dataclass(slots=True)
class Tally:
    """record: keep segments and queue. Times in s; `begin` sets the clock."""

    record: bool
    gauges: Gauges = field(default_factory=lambda: Gauges(0.0, 0.0))
    alive: int = 0
    held: int = 0  # GPUs in use (two jobs that share one: once)
    lost: int = 0  # of them, GPUs whose job makes no progress
    held_s: float = 0.0
    lost_s: float = 0.0
    relative: float = 0.0  # sum over time of speed / speed on one replica
    stragglers: int = 0  # epochs (runs of jobs without) with fewer replicas than there are
    changes: dict[str, int] = field(default_factory=dict)  # by kind
    segments: list[Segment] = field(default_factory=list)
    queue: list[tuple[float, int]] = field(default_factory=list)
    open: dict[int, tuple[float, int, tuple[str, ...], str]] = field(default_factory=dict)
    _entered: dict[int, tuple[float, float]] = field(
        default_factory=dict
    )  # since when a job waits, and its length

    def begin(self, now: float) -> None:
        """The first submission."""
        self.gauges = Gauges(now, now)

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return self.gauges.waiting

    def to(self, now: float) -> None:
        """Time passes."""
        length = now - self.gauges.now
        if length <= 0.0:
            return
        self.held_s += self.held * length
        self.lost_s += self.lost * length
        self.gauges.used = float(self.held)
        self.gauges.advance(now, self.alive)

    def waits(self, training: Training, now: float) -> None:
        """A job begins to wait: it is submitted, or has lost too many of its places to run."""
        left = training.work_left() / training.one if training.one > 0.0 else math.nan
        self._entered[training.index] = (now, left)
        self.gauges.waits(now, left)
        self._note(now)

    def waits_no_more(self, training: Training, now: float) -> None:
        """It has what it needs to run."""
        self.gauges.runs(*self._entered.pop(training.index))
        self._note(now)

    def _note(self, now: float) -> None:
        if self.record:
            if self.queue and self.queue[-1][0] == now:
                self.queue.pop()
            self.queue.append((now, self.waiting))

    def segment(self, training: Training, now: float, gpus: int, nodes: tuple[str, ...], note: str) -> None:
        """The job is in another configuration from now on."""
        if not self.record:
            return
        before = self.open.get(training.index)
        if before is not None and before[1:] == (gpus, nodes, note):
            return
        self.close(training, now)
        self.open[training.index] = (now, gpus, nodes, note)

    def close(self, training: Training, now: float) -> None:
        """Its segment ends."""
        before = self.open.pop(training.index, None)
        if before is not None and now > before[0]:
            self.segments.append(Segment(training.index, before[0], now, before[1], before[2], before[3]))

    def means(self, trainings: Sequence[Training], end: float, gpus: int) -> Mapping[str, float]:
        """Every gauge by name, from the first submission to `end`."""
        self.to(end)
        span = end - self.gauges.start
        if span <= 0.0:
            return {}
        return {
            **self.gauges.means(max(1, gpus)),
            "idle_gpus": gpus - self.held_s / span,
            "efficiency": self.relative / (max(1, gpus) * span),
            "overhead": self.lost_s / self.held_s if self.held_s else 0.0,
            "finish_time_fairness": self._fairness(trainings, gpus),
            "stragglers": float(self.stragglers),
            **{f"{kind}s": float(count) for kind, count in sorted(self.changes.items())},
        }

    def _fairness(self, trainings: Sequence[Training], gpus: int) -> float:
        """As sim/gauges.py has it; speeds by number of replicas are those on as few nodes as can be."""
        known = [t for t in trainings if t.submission.work > 1e-6 * t.alone.one > 0.0]
        if not known:
            return math.nan
        most = np.array([t.alone.most for t in known], dtype=np.int64)
        most = np.minimum(most, max(1, gpus))
        index, relative = curves([interpolated(t.alone.curve) for t in known], int(most.max()))
        return self.gauges.fairness(
            np.array([t.arrival for t in known]),
            np.array([t.ended for t in known]),
            np.array([t.submission.work / t.alone.one for t in known]),
            index,
            relative,
            most,
            max(1, gpus),
        )
