"""What changes cost trainings that only count (by direction, and a pod's start), and the same in the simulator.

Pure. Seconds are the SideCar paper's (Fig. 3). Of a restart's 204 or 242 s the lab's pods really take 91 s to end;
the rest is counted. In place no pod ends, and training stands still for 27 or 37 s; who gets the GPUs is told at
once, where the paper's job has to wait these 27 s.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from e2e.bench.trainings import STARTS, Training, Trainings
from muster.sim.physics import (
    CHANGE,
    GROW,
    HAND_OVER,
    MOVE,
    RESUME,
    SHRINK,
    START,
    Change,
    Cost,
    Running,
    Stage,
)
from muster.sim.presets import sidecar
from muster.sim.result import Result
from muster.types import Report


@dataclass(frozen=True)
class Costs:
    """Trace s for which a training stands still: from its pods' first bind (start), from the last bind or order of a
    change with fewer GPUs (down), with more (up)."""

    start: float
    down: float
    up: float

    def compressed(self, speed: float) -> Costs:
        return Costs(self.start / speed, self.down / speed, self.up / speed)


IN_PLACE = Costs(0.0, sidecar.DOWN, sidecar.UP)
"""A pod's start (83 s) is played before its agent is ready."""
BY_RESTART = Costs(
    sidecar.POD, sidecar.DOWN_BY_RESTART - sidecar.ENDING, sidecar.UP_BY_RESTART - sidecar.ENDING
)


class Counted(Trainings):
    """Trainings with such costs (s of this machine). A change goes from its first pod or device that comes or leaves
    until training goes on; changing: the sum of these, s: what Table VIII calls removing and adding GPUs."""

    def __init__(self, costs: Costs) -> None:
        super().__init__(costs.up)
        self.costs = costs
        self.changing = 0.0
        self._before: dict[str, int] = {}

    def _count(self, training: Training, now: float) -> None:
        before, training.replicas = training.replicas, len(training.on)
        if training.replicas == before:
            return
        name, least = training.job.name, training.job.least
        if training.started is None:
            if training.replicas >= least:
                training.started, training.paused_until = now, now + self.costs.start
            return
        trained = now >= training.paused_until and before >= least
        if trained:
            if now <= training.started + STARTS and training.replicas > before and name not in self._before:
                return  # in place a start costs nothing: its devices are seen one by one
            self._before[name] = before
            training.changes += 1
        had = self._before.get(name)
        if had is None:
            training.paused_until = now + self.costs.start
            return
        since = now if trained else training.paused_until
        training.paused_until = now + (self.costs.up if training.replicas > had else self.costs.down)
        self.changing += training.paused_until - since

    def makespan(self) -> float:
        """From the first submission to the last end, s."""
        ended = [t.ended for t in self.jobs.values() if t.ended is not None]
        return max(ended) - min(t.submitted for t in self.jobs.values())

    def overhead(self) -> float:
        """Table VIII's, as a fraction: the time of all changes by the time that all jobs ran."""
        ran = sum(
            t.ended - t.started for t in self.jobs.values() if t.ended is not None and t.started is not None
        )
        return self.changing / ran if ran else 0.0


@dataclass(frozen=True)
class AsPlayed(sidecar.FigureThree):
    """Costs of a live run, trace s. costs: as played; pod: from a job's submission to its training, in place. By
    restarts GPUs are nobody's until they can be used again (`Options.release`): a policy plans without them."""

    costs: Costs = BY_RESTART
    pod: float = sidecar.POD

    def cost(self, change: Change) -> Cost:
        if change.mechanism == HAND_OVER:
            if change.kind in (START, RESUME):
                return Cost(prepare=self.pod)
            return Cost(pause=self.costs.down if change.kind == SHRINK else self.costs.up)
        if change.ran is None:
            return Cost(pause=self.costs.start)
        grows = change.after.config.replicas > change.ran.replicas
        return Cost(pause=self.costs.up if grows else self.costs.down)

    def report(self, running: Running, stage: Stage, *, boundary: bool) -> Report:
        """Without a speed: in the lab nothing reports."""
        return replace(super().report(running, stage, boundary=boundary), speed=0.0)


@dataclass(frozen=True)
class Figures:
    """Of a run, live or simulated: trace s, Table VIII's overhead as a fraction, and how many changes there were."""

    makespan: float
    jct: float
    overhead: float
    changes: int

    @staticmethod
    def mean(several: Sequence[Figures]) -> Figures:
        return Figures(
            statistics.fmean(one.makespan for one in several),
            statistics.fmean(one.jct for one in several),
            statistics.fmean(one.overhead for one in several),
            round(statistics.fmean(one.changes for one in several)),
        )


CHANGES = (RESUME, GROW, SHRINK, MOVE, CHANGE)


def simulated(result: Result) -> Figures:
    """Of a simulation that kept its segments. A change goes, as live, from when a job gives its GPUs up."""
    ran = [s for s in result.segments if s.start >= result.started[s.job]]
    changing = [s for s in ran if s.note in CHANGES or not s.gpus]
    return Figures(
        float(result.ended.max() - result.submitted.min()),
        float((result.ended - result.submitted).mean()),
        sum(s.end - s.start for s in changing) / float((result.ended - result.started).sum()),
        sum(s.note in CHANGES for s in changing),
    )
