"""Time-weighted means of a simulation, kept as sums that change only with the jobs that change.

Sources: papers/afs-coddl section 2.2 (queue length, cluster efficiency, blocking index); finish-time fairness as
Themis has it (time in the shared cluster over time alone on a 1/n of it, n = jobs there on average meanwhile).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from muster.types import FloatArray, IntArray


@dataclass
class Gauges:
    """Sums now, and their integrals since the first submission. Times in s.

    used: GPUs held; speed: sum of running jobs' speed relative to one replica; waiting: jobs; the blocking index
    is linear in time between events: (now * rate - offset) / waiting, with rate = sum of 1 / remaining and offset =
    sum of (since when it waits) / remaining over waiting jobs of known length.
    """

    start: float
    now: float
    used: float = 0.0
    speed: float = 0.0
    waiting: int = 0
    rate: float = 0.0
    offset: float = 0.0
    used_s: float = 0.0
    speed_s: float = 0.0
    waiting_s: float = 0.0
    blocking_s: float = 0.0
    alive_s: float = 0.0
    marks: list[tuple[float, float]] = field(
        default_factory=list
    )  # (time, alive_s), for finish-time fairness

    def advance(self, now: float, alive: int) -> None:
        """To `now`, with `alive` jobs there since the event before."""
        length = now - self.now
        if length <= 0.0:
            return
        self.used_s += self.used * length
        self.speed_s += self.speed * length
        if self.waiting:
            self.waiting_s += self.waiting * length
            middle = self.now + 0.5 * length
            self.blocking_s += (middle * self.rate - self.offset) / self.waiting * length
        else:
            self.rate = self.offset = 0.0  # and with them what additions and subtractions left behind
        self.alive_s += alive * length
        self.now = now
        self.marks.append((now, self.alive_s))

    def waits(self, since: float, remaining: float) -> None:
        """A job begins to wait with so much work left (s on one replica, nan = unknown)."""
        self.waiting += 1
        if remaining > 0.0:
            self.rate += 1.0 / remaining
            self.offset += since / remaining

    def runs(self, since: float, remaining: float) -> None:
        """A job that waited since then does so no more."""
        self.waiting -= 1
        if remaining > 0.0:
            self.rate -= 1.0 / remaining
            self.offset -= since / remaining

    def means(self, gpus: int) -> dict[str, float]:
        """The gauges by name (see `sim.result.Result`)."""
        span = self.now - self.start
        if span <= 0.0:
            return {}
        return {
            "queue": self.waiting_s / span,
            "utilisation": self.used_s / (gpus * span),
            "idle_gpus": gpus - self.used_s / span,
            "efficiency": self.speed_s / (gpus * span),
            "blocking": self.blocking_s / span,
            "jobs": self.alive_s / span,
        }

    def fairness(
        self,
        submitted: FloatArray,
        ended: FloatArray,
        remaining: FloatArray,
        curve: IntArray,
        relative: FloatArray,
        most: IntArray,
        gpus: int,
    ) -> float:
        """Mean of rho = (ended - submitted) / (time alone on gpus / n GPUs); below one GPU a job runs at that part of
        a GPU's speed, between two counts at the interpolated one. All arrays (J,); nan if no job has ended."""
        done = np.isfinite(ended) & (ended > submitted)
        if not done.any():
            return float("nan")
        times = np.array([self.start, *(t for t, _ in self.marks)])
        sums = np.array([0.0, *(s for _, s in self.marks)])
        crowd = np.interp(ended[done], times, sums) - np.interp(submitted[done], times, sums)
        crowd /= ended[done] - submitted[done]
        share = np.minimum(gpus / np.maximum(crowd, 1.0), most[done])
        low = np.floor(share).astype(np.int64)
        high = np.minimum(low + 1, relative.shape[1] - 1)
        below, above = relative[curve[done], low], relative[curve[done], high]
        alone = remaining[done] / np.maximum(below + (above - below) * (share - low), 1e-12)
        return float(np.mean((ended[done] - submitted[done]) / alone))
