"""A cluster of all kinds of jobs, some of which wait, and all that is told of them, wherever it can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from muster import live_recipes, profiles
from muster.cluster import action_bodies
from muster.core.views.job_status import turns
from muster.core.views.view import View
from muster.points import Profile
from muster.types import (
    Action,
    DeclaredRole,
    DeleteGang,
    Event,
    NodeRecord,
    Owner,
    OwnerRecord,
    Phase,
    PodRecord,
    Shape,
    TurnsSeen,
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
    """A job as its owner knows it: how many replicas, with how much, and the work that is left (s of one replica)."""

    owner: Owner
    namespace: str
    roles: Mapping[str, tuple[int, Shape]]  # least replicas and what each asks
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
        roles: Mapping[str, tuple[int, Shape]],
        *,
        most: int = 0,
        work: float = 600.0,
        declared: bool = True,
        namespace: str = "team",
        priority: int = 0,
        exist: int | None = None,
        suspended: bool = False,
        **notes: str,
    ) -> Work:
        """A Job, or with several roles a JobSet. most: replicas at most, where it is elastic."""
        several = len(roles) > 1
        api, kind = ("jobset.x-k8s.io/v1alpha2", "JobSet") if several else ("batch/v1", "Job")
        owner = Owner(api, kind, name, f"{kind}-{namespace}-{name}-{self.tick()}")
        of_roles = tuple(DeclaredRole(role, count, shape=shape) for role, (count, shape) in roles.items())
        ((_, (least, _)), *_) = roles.items()
        size = max(most, least)
        self.owners[owner.uid] = OwnerRecord(
            owner,
            namespace,
            size=sum(count for count, _ in roles.values()) if several else size,
            completions=None if several else size,
            roles=of_roles if several else (),
            suspended=suspended,
            created=self.now,
        )
        made = self.works[f"{namespace}/{kind.lower()}-{name}"] = Work(owner, namespace, roles, work)
        if declared:
            notes["remaining_work"] = str(work)
        if most:
            notes |= {"min_replicas": str(least), "max_replicas": str(most), "speed": SPEED}
        for role, (count, shape) in roles.items() if not suspended else ():
            own = {**notes, "role": role} if several else notes
            there = (size if not several else count) if exist is None else exist
            for index in range(there):
                pod = self.pod(owner, index, 0, namespace, priority, own)
                self.update(pod, shape=shape)
        return made

    def recreate(self, pod: PodRecord) -> None:
        super().recreate(pod)
        made = next(reversed(self.pods.values()))
        self.update(made, shape=pod.shape, annotations=pod.annotations)

    def finish(self, work: Work) -> None:
        """Its work is done: what ran has succeeded, and its owner takes the rest away and has ended."""
        for pod in [p for p in self.pods.values() if p.controller == work.owner]:
            if pod.phase is Phase.BOUND:
                self.update(pod, phase=Phase.SUCCEEDED)
            else:
                del self.pods[pod.uid]
        self.owners[work.owner.uid] = replace(self.owners[work.owner.uid], over="Complete", size=0)

    def bind(self) -> int:
        bound = 0
        for pod in list(self.pods.values()):
            where = pod.pin or pod.nominated
            if pod.phase is not Phase.UNGATED or not where:
                continue
            room = self.left(self.nodes[where])
            if any(room.get(resource, 0) < asked for resource, asked in pod.shape.requests):
                self.update(pod, refusal="0/1 nodes are available")
                continue
            self.update(pod, phase=Phase.BOUND, node=where, refusal="")
            bound += 1
        return bound

    def left(self, node: NodeRecord) -> dict[str, int]:
        """What is free of a node."""
        room = dict(node.allocatable)
        for pod in self.pods.values():
            if not pod.phase.ended and node.name == pod.node:
                for resource, asked in pod.shape.requests:
                    room[resource] = room.get(resource, 0) - asked
        return room

    def run(self, seconds: float) -> None:
        """Time goes by for what is bound: a replica does a second of work in a second."""
        for work in list(self.works.values()):
            pods = [p for p in self.pods.values() if p.controller == work.owner]
            bound = [p for p in pods if p.phase is Phase.BOUND]
            if bound and len(bound) >= sum(least for least, _ in work.roles.values()):
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

    def check(self) -> None:
        for node in self.nodes.values():
            assert min(self.left(node).values()) >= 0, node.name


class Played:
    """Muster over it, with the thread that plays the queue forward; `rest` lets all that is due be told."""

    def __init__(self, cluster: ToldCluster, profile: Profile) -> None:
        self.cluster, self.muster = cluster, Muster(cluster, profile)
        self.view: View | None = None

    def rest(self) -> None:
        """Until everybody knows everything."""
        for _ in range(4):  # a position may be half a minute old
            self.muster.settle(turns=8, seconds=0.5)
            self.look()
            self.cluster.now += 10.0
        self.muster.settle(turns=8, seconds=0.1)
        self.look()

    def look(self) -> None:
        ledger, now = self.muster.ledger, self.cluster.now
        self.view = ledger.view(ledger.snapshot(now), self.muster.plan, leading=True, synced=True)
        ledger.apply(TurnsSeen(turns(self.view)), now)
