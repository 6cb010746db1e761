"""`termination`: the termination-based scheduler that SideCar is compared with (after Optimus).

Source: papers/adaptive-gpu-scheduler-sidecar, V-B: "when there are idle GPUs in the cluster, the approach first
allocates one GPU (the minimal number of required GPUs) to an incoming job. It then adds idle GPUs to the job one by
one based on job termination. When there are no idle GPUs in the cluster, the incoming job is queued." It never
makes a job smaller, and each addition restarts the whole job: a profile with it has resize "restart".

Choices: "one by one" is to the next allowed count; the job is the one whose predicted completion falls most for each
GPU added (Optimus's marginal gain, its section 4.1), by submission among equals, and only if it falls; a job that
restarts is left alone until it trains (`settling`); GPUs are added while no job waits. The
prediction is `reshape`'s, with a restart in every change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.memory import Memory, hand_in, remembers
from muster.points import Estimation
from muster.policylib.completion import Terms
from muster.types import Grants, Job, SharingSnapshot, Snapshot
from muster_plugins.reshape import Points, Reshape, added, kept_points
from muster_plugins.reshape_scene import Scene, Standing, homes_of


@dataclass(frozen=True, slots=True)
class Termination(Terms):
    """settling: seconds after a start or an addition in which a job that reports nothing gets nothing more (Fig.
    3(b): 242). All others as `reshape` has them."""

    settling: float = 242.0
    period: float = 10.0
    measured: bool = False
    accuracy: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    memory: Memory[Points] = remembers(kept_points)

    def __post_init__(self) -> None:
        self._beliefs()  # which says what is wrong with a number

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """The fewest GPUs for each job that waits, by submission; then additions while none waits."""
        scene = self._beliefs().scene(snapshot, takes=False)
        for standing in scene.jobs:
            if not standing.count:
                arrive(scene, standing)
        if all(s.count for s in scene.jobs):
            while add_one(scene):
                pass
        return scene.decided()

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:
        """As `reshape` predicts, with a restart in every change."""
        return self._beliefs().estimate(job, snapshot)

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """The points of the accuracy curve of a job of unknown length."""
        return self._beliefs().observe(job, snapshot)

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """Soon, while a job restarts that could get more."""
        return self._beliefs().wake(snapshot)

    def _beliefs(self) -> Reshape:
        made = Reshape(
            *self.terms,
            settling=self.settling,
            period=self.period,
            restart=True,
            measured=self.measured,
            accuracy=self.accuracy,
        )
        hand_in(made, self.memory.name)
        return made


def arrive(scene: Scene, new: Standing) -> None:
    """The minimal count, on the node where it ends first."""
    count = min(new.sizes, default=0)
    homes = homes_of(scene, new, count) if count else []
    if not homes:
        new.why = "no node has idle GPUs for it"
        return
    new.fresh, new.movable = True, False
    scene.give(new, count, homes[0])


def add_one(scene: Scene) -> bool:
    """One step for the job that gains most for each GPU; False if no job gains."""
    best: tuple[float, int] | None = None
    chosen: tuple[Standing, int, str] | None = None
    for standing in scene.jobs:
        count = min((n for n in standing.sizes if n > standing.count), default=0)
        if not standing.movable or not count:
            continue
        add = (count - standing.count) * standing.unit
        node = standing.node
        if scene.idle[node] < add:
            others = [n for n in homes_of(scene, standing, count) if n != node]
            if not others:
                continue
            node = others[0]
        gain = (
            scene.finish(standing, standing.count, standing.node) - scene.finish(standing, count, node)
        ) / add
        if math.isnan(gain) or gain <= 0.0:
            continue
        if best is None or (-gain, standing.row) < best:
            best, chosen = (-gain, standing.row), (standing, count, node)
    if chosen is None:
        return False
    standing, count, node = chosen
    scene.give(standing, count, node)
    standing.movable = False
    standing.why = f"{added(standing, count)} by a restart"
    return True
