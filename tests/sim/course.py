"""What scenarios of the simulator on nodes have in common: a course of grants, an engine that watches itself.

result = simulated([job("a", 100, min=1, max=4)], gpus=4, plan={0: {"a": 4}, 10: {"a": 2}})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from muster.points import Profile
from muster.sim.options import Options
from muster.sim.placed import Engine
from muster.sim.result import Result, Segment
from muster.sim.submission import Linear, Model, Submission
from muster.sim.truth import NODE
from muster.sim.workload import Cluster, Group, Workload
from muster.types import GPU, Grant, Grants, Move, SharingSnapshot
from muster_plugins.pack import Pack

FIFO = Profile(name="fifo", scores=((Pack(), 1.0),))


@dataclass(frozen=True)
class Course:
    """Share, Wake and Rebalance: what is granted from which time on, by the name of the submission."""

    grants: Mapping[float, Mapping[str, int | tuple[int, Grant]]]
    moves_at: Mapping[float, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """The newest grants; a job that they don't name gets nothing."""
        table = snapshot.table
        since = max(t for t in self.grants if t <= snapshot.now)
        replicas = np.zeros(len(table), dtype=np.int64)
        details = {}
        rows = {key.name.partition("-")[2]: row for key, row in table.row.items()}
        keys = {key.name.partition("-")[2]: key for key in table.row}
        for name, grant in self.grants[since].items():
            if name not in rows:
                continue
            if isinstance(grant, tuple):
                count, detail = grant
                if detail.beside is not None:
                    detail = replace(detail, beside=keys.get(detail.beside.name))
                details[rows[name]] = detail
            else:
                count = grant
            replicas[rows[name]] = count
        return Grants(replicas, details)

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next grants are due."""
        return min((t for t in (*self.grants, *self.moves_at) if t > snapshot.now), default=None)

    def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]:
        """A job to other nodes."""
        found = self.moves_at.get(snapshot.now)
        if found is None:
            return ()
        keys = {key.name.partition("-")[2]: key for key in snapshot.jobs}
        return [Move(keys[found[0]], to=found[1])]


@dataclass(frozen=True)
class Equal:
    """One GPU after the other, in turn, in the order of submission."""

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """As many each as can be."""
        table = snapshot.table
        replicas = np.zeros(len(table), dtype=np.int64)
        left, before = table.gpus, -1
        while left != before:
            before = left
            for row in range(len(table)):
                step = int(max(1, table.min[row]) if not replicas[row] else 1)
                if step * table.unit[row] <= left and replicas[row] + step <= table.max[row]:
                    replicas[row] += step
                    left -= int(step * table.unit[row])
        return Grants(replicas)


EQUAL = replace(FIFO, name="equal", shares=(Equal(),))


def course(
    grants: Mapping[float, Mapping[str, int | tuple[int, Grant]]],
    moves: Mapping[float, tuple[str, tuple[str, ...]]] | None = None,
    **fields: Any,
) -> Profile:
    """A profile that grants by the clock."""
    plugin = Course(grants, moves or {})
    return replace(
        FIFO,
        name="course",
        shares=(plugin,),
        rebalance=(plugin,) if moves else (),
        named=(("course", plugin),),
        **fields,
    )


class Watched(Engine):
    """Checks after every event, by counting again, that no GPU is used twice, really or as planned."""

    def _happen(self, now: float) -> None:
        super()._happen(now)
        self.look()

    def _plan(self, now: float) -> None:
        super()._plan(now)
        self.look()

    def look(self) -> None:
        """Really used, by node: a job that shares another's GPU adds nothing there."""
        really = dict.fromkeys(self.truth.busy, 0)
        planned = dict.fromkeys(self.truth.busy, 0)
        for training in self.truth.active.values():
            owner = self.truth.pairs.rides.get(training)
            theirs = {n for _, n in owner.spots} if owner else set()
            for role, node in training.spots:
                really[node] += 0 if node in theirs else training.shapes[role].gpus
            theirs = {n for _, n in owner.placed.values()} if owner else set()
            for role, node in training.placed.values():
                planned[node] += 0 if node in theirs else training.shapes[role].gpus
        for leaver in self.leaving.by_number.values():
            role, on = leaver.spot
            planned[on] += leaver.training.shapes[role].gpus
        for training in self.truth.active.values():
            for hold in training.holds:
                planned[hold.node] += training.shapes[hold.role].gpus
        for node in self.site.nodes.records:
            row = self.site.nodes.index[node.name]
            total = node.allocatable.get(GPU, 0)
            assert really[node.name] <= total, (node.name, really)
            assert really[node.name] == self.truth.busy[node.name]
            assert planned[node.name] <= total, (node.name, planned)
            if total:
                column = self.site.nodes.resource_index[GPU]
                assert planned[node.name] == total - self.site.free[row, column]
        assert sum(really.values()) == self.truth.tally.held
        assert self.truth.tally.waiting == sum(1 for t in self.truth.active.values() if t.config is None)


def job(name: str, work: float, at: float = 0.0, gpus: int = 1, **fields: Any) -> Submission:
    """`gpus` asked for; rigid unless `min` or `max` say otherwise."""
    fields.setdefault("min", gpus)
    fields.setdefault("max", gpus)
    return Submission(name, at, fields.pop("model", "linear"), work, gpus, **fields)


def simulated(
    jobs: Sequence[Submission],
    gpus: int = 4,
    *,
    nodes: int = 1,
    profile: Profile = FIFO,
    models: Mapping[str, Model] | None = None,
    groups: Sequence[Group] = (),
    physics: Any = None,
    fails: Sequence[tuple[float, int]] = (),
    progress: Any = None,
    **options: Any,
) -> Result:
    """The result of a watched engine. fails: (time, node) of failures."""
    cluster = Cluster(tuple(groups) or (Group(nodes, gpus),))
    workload = Workload(jobs, {"linear": Linear(), **(models or {})}, physics=physics)
    options.setdefault("record", True)
    if fails:
        options.setdefault("failures", 1e15)  # none by itself
    engine = Watched(workload, cluster, profile, Options(**options), progress)
    for time, node in fails:
        engine.truth.push(time, NODE, node)
    return engine.run()


def ends(result: Result) -> dict[str, float]:
    """Completion by job, in whole milliseconds."""
    return {n: round(float(t), 3) for n, t in zip(result.names, result.ended, strict=True)}


def starts(result: Result) -> dict[str, float]:
    """First start by job."""
    return {n: round(float(t), 3) for n, t in zip(result.names, result.started, strict=True)}


def history(result: Result, name: str) -> list[tuple[float, float, int, str]]:
    """Start, end, GPUs and note of each segment of a job."""
    index = list(result.names).index(name)
    found: list[Segment] = [s for s in result.segments if s.job == index]
    return [(round(s.start, 3), round(s.end, 3), s.gpus, s.note) for s in found]
