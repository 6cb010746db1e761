"""A cluster of all kinds of jobs, some of which wait, and all that is told of them, wherever it can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from muster import live_recipes, profiles
from muster.cluster import action_bodies
from muster.core.views.view import View
from muster.points import Profile
from muster.types import (
    GPU,
    Action,
    DeleteGang,
    Event,
    Owner,
    Phase,
    WriteGang,
)
from tests.cluster_fake import FakeCluster, Muster

SPEED = "1=1,2=1.8,4=3,8=4.5"


def live(name: str) -> Profile:
    """The profile as a cluster runs it, without devices in place where it can."""
    recipe = profiles.NAMED[name]
    devices = bool(live_recipes.not_on_a_cluster(name, recipe, {}))
    return profiles.build(
        name, own={name: live_recipes.on_a_cluster(recipe, True, "reported", devices=devices)}
    )


def merged(before: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(before) if isinstance(before, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@dataclass
class Work:
    """A job as its owner knows it: replicas at least, GPUs of each, and the work that is left (s of one replica)."""

    owner: Owner
    least: int
    gpus: int
    left: float


class ToldCluster(FakeCluster):
    """`gang_objects`: Gangs as the API has them; `works`: jobs by "namespace/name"."""

    def __init__(self, nodes: int, gpus: int) -> None:
        super().__init__(nodes, gpus)
        self.gang_objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.works: dict[str, Work] = {}

    def submit(
        self,
        name: str,
        least: int,
        gpus: int,
        *,
        most: int,
        work: float,
        declared: bool,
        namespace: str,
        priority: int,
    ) -> None:
        """A Job. most: replicas at most, where it is elastic; else 0."""
        notes = {"remaining_work": str(work)} if declared else {}
        if most:
            notes |= {"min_replicas": str(least), "max_replicas": str(most), "speed": SPEED}
        first, *_ = self.job(name, max(most, least), gpus, namespace=namespace, priority=priority, **notes)
        assert first.controller is not None
        self.works[f"{namespace}/job-{name}"] = Work(first.controller, least, gpus, work)

    def finish(self, work: Work) -> None:
        """Its work is done: what ran has succeeded, and its owner takes the rest away and has ended."""
        for pod in [p for p in self.pods.values() if p.controller == work.owner]:
            if pod.phase is Phase.BOUND:
                self.update(pod, phase=Phase.SUCCEEDED)
            else:
                del self.pods[pod.uid]
        self.owners[work.owner.uid] = replace(self.owners[work.owner.uid], over="Complete", size=0)

    def left(self, name: str) -> int:
        """GPUs of a node that no pod on it has."""
        used = sum(p.shape.gpus for p in self.pods.values() if not p.phase.ended and p.node == name)
        return self.nodes[name].allocatable[GPU] - used

    def run(self, seconds: float) -> None:
        """Time goes by for what is bound: a replica does a second of work in a second."""
        for work in list(self.works.values()):
            pods = [p for p in self.pods.values() if p.controller == work.owner]
            bound = [p for p in pods if p.phase is Phase.BOUND]
            if bound and len(bound) >= work.least:
                work.left -= len(bound) * seconds
                if work.left <= 0:
                    self.finish(work)

    def carry_out(self, action: Action) -> list[Event]:
        if isinstance(action, WriteGang):
            key = (action.job.namespace, action.gang)
            before = self.gang_objects.get(key)
            if before is None or action.replaces:
                before = action_bodies.gang_object(action)
                before["metadata"]["creationTimestamp"] = action.status["submitted"]
            self.gang_objects[key] = merged(before, {"status": action.status})
        if isinstance(action, DeleteGang):
            self.gang_objects.pop((action.job.namespace, action.gang), None)
        return super().carry_out(action)


class Played:
    """Muster over it, with the thread that plays the queue forward; `rest` lets all that is due be told."""

    def __init__(self, cluster: ToldCluster, profile: Profile) -> None:
        self.cluster, self.muster = cluster, Muster(cluster, profile)
        self.view: View | None = None

    def rest(self) -> None:
        """Until everybody knows everything."""
        for _ in range(4):  # a position may be half a minute old
            self.muster.settle(turns=8, seconds=0.5)
            self.view = self.muster.look()
            self.cluster.now += 10.0
        self.muster.settle(turns=8, seconds=0.1)
        self.view = self.muster.look()
