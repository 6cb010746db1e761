"""The cluster while SideCar's policies think: who stands where, with which end (`reshape`, `termination`)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from muster.policylib.completion import Forecast, Overheads
from muster.types import Grant, Grants, IntArray, Job, Phase, Snapshot, elastic_role


@dataclass
class Standing:
    """One job while the policy thinks: `count` replicas on `node` ("" = it waits)."""

    row: int
    job: Job
    sizes: tuple[int, ...]
    unit: int
    believed: Forecast
    overheads: Overheads
    restart: bool  # with every change of its number
    count: int = 0
    node: str = ""
    fresh: bool = False  # granted in this cycle: not started yet
    movable: bool = True  # running, neither adjusting nor just initialized
    had: int = 0
    came_from: str = ""
    why: str = ""


@dataclass
class Scene:
    """The cluster while the policy thinks: idle GPUs and product by node, and all jobs by submission."""

    idle: dict[str, int]
    product: Mapping[str, str]
    jobs: list[Standing]
    latest: list[tuple[float, int]] | None = None  # of the jobs as they stand, the three that end last; row

    def finish(self, standing: Standing, count: int, node: str) -> float:
        """Predicted completion (s from now) with `count` replicas on `node`; nan = unknown."""
        o = standing.overheads
        before = 0.0
        if standing.fresh or not standing.count:
            before = o.beginning
        elif count != standing.had or node != standing.came_from:
            moved = node != standing.came_from
            before = o.change(grows=count > standing.had, restart=standing.restart or moved)
        return before + standing.believed.training(count, self.product[node]) + o.ending

    def makespan(self, changed: Mapping[int, float]) -> float:
        """MS_predict: the largest completion time over all jobs, of one or two rows as given."""
        if self.latest is None:
            times = [(self.finish(s, s.count, s.node), s.row) for s in self.jobs if s.count]
            self.latest = heapq.nlargest(3, [x for x in times if not math.isnan(x[0])])
        others = next((time for time, row in self.latest if row not in changed), 0.0)
        return max([others, *(time for time in changed.values() if not math.isnan(time))])

    def give(self, standing: Standing, count: int, node: str) -> None:
        """It has `count` replicas on `node` from now on."""
        if standing.count:
            self.idle[standing.node] += standing.count * standing.unit
        self.idle[node] -= count * standing.unit
        standing.count, standing.node = count, node
        self.latest = None

    def decided(self) -> Grants:
        """What each job has here: so many replicas, on one node of that product. One that is on several nodes, since
        no node takes it whole, stays on these. Jobs are in the order of rows."""
        return Grants(
            np.array([s.count for s in self.jobs], dtype=np.int64),
            {
                s.row: Grant(max_nodes=1, product=self.product.get(s.node, ""))
                for s in self.jobs
                if s.count and not (s.node == s.came_from and len(nodes_of(s.job)) > 1)
            },
            {s.row: s.why for s in self.jobs if s.why},
        )


def ending(snapshot: Snapshot) -> IntArray:
    """(N,) GPUs that come free without anything more being decided: of replicas on their way out. Whoever waits for
    them takes none of others meanwhile."""
    gpus = np.zeros(len(snapshot.nodes), dtype=np.int64)
    for job in snapshot.jobs.values():
        for member in (m for role in job.roles for m in role.on if m.phase is Phase.ENDING):
            if member.node in snapshot.nodes.index:
                gpus[snapshot.nodes.index[member.node]] += member.shape.gpus
    return gpus


def homes_of(scene: Scene, standing: Standing, count: int) -> list[str]:
    """Nodes with idle GPUs for `count`: where it ends first, then the fullest, then by name."""
    gpus = count * standing.unit
    fits = [node for node, idle in scene.idle.items() if idle >= gpus]

    def key(node: str) -> tuple[float, int, str]:
        time = standing.believed.training(count, scene.product[node])
        return (math.inf if math.isnan(time) else time, scene.idle[node], node)

    return sorted(fits, key=key)


def nodes_of(job: Job) -> set[str]:
    """The nodes of its replicas, and of those that have a place."""
    names = {m.node for m in elastic_role(job).members if m.node and (m.phase.on_node or m.pinned)}
    return names | {reservation.node for reservation in job.reservations}


def where(job: Job) -> str:
    """The node of its replicas (the first by name, should it be on several), or where they are to start again."""
    return min(nodes_of(job) or job.restart_on, default="")
