"""A made-up history for the referee, told in the words of the API: nodes, owners and pods that come, change and
go."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from e2e.cluster import Json
from e2e.referee import Referee, Rules
from e2e.scenario import deployment, job, pod

GATES = [{"name": "muster.dev/queue"}]


@dataclass
class History:
    """`at`: seconds. Owners and pods are known by name; `faults` and `open` are the referee's."""

    rules: Rules = field(default_factory=lambda: Rules(start=100, planned=20, doubled=10, lost=200))
    announced: tuple[str, ...] = ()
    at: float = 0.0

    def __post_init__(self) -> None:
        self.referee = Referee(self.rules, self.announced)
        self._there: dict[str, Json] = {}

    @property
    def faults(self) -> list[str]:
        return self.referee.faults

    # ---- what comes ----

    def node(self, name: str, gpus: int = 8, **more: str) -> None:
        offered = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus), **more}
        self.referee.saw("Node", {"metadata": {"name": name}, "status": {"allocatable": offered}}, self.at)

    def owner(self, manifest: Json, parent: str = "") -> None:
        """A Job, Deployment, ... that is new, or as it is now."""
        name, kind = manifest["metadata"]["name"], manifest["kind"]
        plain = copy.deepcopy(manifest)
        plain["metadata"] |= {"uid": f"uid-{kind}-{name}", "namespace": "a"}
        if parent:
            plain["metadata"]["ownerReferences"] = [self._reference(parent)]
        self._there[name] = plain
        self.referee.saw(kind, plain, self.at)

    def group(self, name: str, least: object, native: bool = False, gone: bool = False) -> None:
        """A PodGroup, Kubernetes' own or another project's, that is new, or as it is now."""
        spec = {"schedulingPolicy": {"gang": {"minCount": least}}} if native else {"minMember": least}
        plain = {"metadata": {"name": name, "namespace": "a"}, "spec": spec}
        self.referee.saw("PodGroup", plain, self.at, gone=gone)

    def over(self, name: str, condition: str = "Complete") -> None:
        plain = self._there[name]
        plain.setdefault("status", {})["conditions"] = [{"type": condition, "status": "True"}]
        self.referee.saw(plain["kind"], plain, self.at)

    def pod(self, name: str, owner: str = "", gated: bool = True, **what: Any) -> None:
        """A pod that is new; `what` as for `template`."""
        plain = pod(name, **what)
        plain["metadata"] |= {"uid": f"uid-{name}", "namespace": "a"}
        if owner:
            plain["metadata"]["ownerReferences"] = [self._reference(owner)]
        if gated:
            plain["spec"]["schedulingGates"] = GATES
        self._there[name] = plain | {"status": {"phase": "Pending"}}
        self._tell(name)

    def pins(self, name: str, node: str) -> None:
        field_ = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field_]}]}
        spec = self._there[name]["spec"]
        spec.pop("schedulingGates", None)
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        self._tell(name)

    def binds(self, name: str, node: str) -> None:
        spec = self._there[name]["spec"]
        spec.pop("schedulingGates", None)
        spec["nodeName"] = node
        self._there[name]["status"]["phase"] = "Running"
        self._tell(name)

    def ends(self, name: str, phase: str = "Succeeded") -> None:
        self._there[name]["status"]["phase"] = phase
        self._tell(name)

    def deleted(self, name: str) -> None:
        self._there[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        plain = self._there[name]
        self.referee.saw(plain["kind"], plain, self.at)

    def evicted(self, name: str) -> None:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        self._there[name]["status"]["conditions"] = [condition]
        self.deleted(name)

    def gone(self, name: str) -> None:
        plain = self._there.pop(name)
        self.referee.saw(plain["kind"], plain, self.at, gone=True)

    def marked(self, name: str, reason: str) -> None:
        """Muster writes on the pod why it ends it."""
        self._there[name]["metadata"].setdefault("annotations", {})["muster.dev/leaving"] = reason
        self._tell(name)

    def passes(self, seconds: float) -> None:
        self.at += seconds
        self.referee.tick(self.at)

    # ---- in one word ----

    def gang(self, name: str, replicas: int, **what: Any) -> list[str]:
        """A Job and its gated pods, by name."""
        self.owner(job(name, replicas, **what))
        pods = [f"{name}-{index}" for index in range(replicas)]
        for index, one in enumerate(pods):
            labels = {"batch.kubernetes.io/job-completion-index": str(index)}
            self.pod(one, owner=name, labels=labels, **what)
        return pods

    def apps(self, name: str, replicas: int) -> None:
        """A Deployment and its ReplicaSet, as they are now."""
        self.owner(deployment(name, replicas))
        self.owner(deployment(f"{name}-rs", replicas) | {"kind": "ReplicaSet"}, parent=name)

    def _tell(self, name: str) -> None:
        self.referee.saw("Pod", self._there[name], self.at)

    def _reference(self, name: str) -> Json:
        above = self._there[name]
        uid, kind = above["metadata"]["uid"], above["kind"]
        return {"uid": uid, "kind": kind, "name": name, "apiVersion": above["apiVersion"], "controller": True}
