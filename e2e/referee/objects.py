"""What the referee reads of pods and nodes, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.cluster import GATE, Json
from e2e.quantities import measure, requests

OURS = "muster"
"""The schedulerName, and the value of the label that says so where another binds."""
EVICTED = "EvictionByEvictionAPI"
"""Reason of the condition DisruptionTarget of a pod that somebody ended by an Eviction; a DELETE leaves none."""

ROLE_LABELS = (
    "training.kubeflow.org/replica-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "ray.io/group",
    "volcano.sh/task-spec",
)
INDEX_LABELS = (
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
)
GROUP_LABELS = {
    "scheduling.x-k8s.io/pod-group": "scheduling.x-k8s.io",
    "scheduling.k8s.io/group-name": "scheduling.volcano.sh",
}
"""By which pods name a PodGroup, and whose; the native one stands in the pod's spec."""
NATIVE_GROUP = "scheduling.k8s.io"
NATIVE_APIS = frozenset(("batch", "apps"))
LWS, LWS_GROUP, LWS_SIZE = (f"leaderworkerset.sigs.k8s.io/{name}" for name in ("name", "group-index", "size"))


@dataclass(frozen=True)
class Reference:
    """A controlling owner, as its child names it."""

    uid: str
    kind: str
    name: str
    api_version: str

    @property
    def api(self) -> str:
        """Whose kind it is: Volcano has a Job, too."""
        return self.api_version.partition("/")[0]


@dataclass(frozen=True)
class PodSeen:
    """One pod at one moment. `pin`: the node that its affinity names by metadata.name, once its gate is off.
    group: the API group and the name of the PodGroup that it names, "" for none."""

    uid: str
    namespace: str
    name: str
    ours: bool
    node: str
    pin: str
    gated: bool
    phase: str
    deleted: bool
    evicted: bool
    requests: Mapping[str, int]
    controller: Reference | None
    group: tuple[str, str] = ("", "")
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def living(self) -> bool:
        return not self.ended and not self.deleted

    @property
    def runs(self) -> bool:
        """On a node, and nobody asked for its end."""
        return bool(self.node) and self.living

    @property
    def role(self) -> str:
        found = self.notes.get("muster.dev/role") or next(
            filter(None, map(self.labels.get, ROLE_LABELS)), None
        )
        return found.lower() if found and not self.notes.get("muster.dev/role") else found or "worker"

    @property
    def index(self) -> str:
        """Its index in its owner, "" where it has none."""
        found = (self.labels.get(key) or self.notes.get(key) for key in INDEX_LABELS)
        return next(filter(None, found), "")

    def __str__(self) -> str:
        stand = "gated" if self.gated else self.phase or "no phase"
        where = f" on {self.node}" if self.node else f" pinned to {self.pin}" if self.pin else ""
        return f"{self.name} {stand}{where}{' (ending)' if self.deleted else ''}"


@dataclass(frozen=True)
class NodeSeen:
    name: str
    allocatable: Mapping[str, int]


def pod(plain: Json) -> PodSeen:
    """Decode a pod."""
    meta, spec, status = plain["metadata"], plain["spec"], plain.get("status") or {}
    labels = meta.get("labels") or {}
    gates = [gate["name"] for gate in spec.get("schedulingGates") or []]
    node = str(spec.get("nodeName") or "")
    conditions = status.get("conditions") or []
    return PodSeen(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        ours=spec.get("schedulerName") == OURS or labels.get("muster.dev/scheduler") == OURS,
        node=node,
        pin="" if gates or node else _pin(spec),
        gated=GATE in gates,
        phase=str(status.get("phase") or ""),
        deleted="deletionTimestamp" in meta,
        evicted=any(c["type"] == "DisruptionTarget" and c.get("reason") == EVICTED for c in conditions),
        requests=requests(spec),
        controller=controller(meta),
        group=group(plain),
        labels=labels,
        notes=meta.get("annotations") or {},
    )


def node(plain: Json) -> NodeSeen:
    """Decode a node."""
    offered = (plain.get("status") or {}).get("allocatable") or {}
    return NodeSeen(
        plain["metadata"]["name"], {name: measure(name, value) for name, value in offered.items()}
    )


def group(plain: Json) -> tuple[str, str]:
    """The API group and the name of the PodGroup that a pod names; "" for none."""
    meta = plain["metadata"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    if native := (plain["spec"].get("schedulingGroup") or {}).get("podGroupName"):
        return NATIVE_GROUP, str(native)
    for key, api in GROUP_LABELS.items():
        if name := labels.get(key) or notes.get(key):
            return api, name
    return "", ""


def controller(meta: Mapping[str, Any]) -> Reference | None:
    """The controlling owner reference."""
    for one in meta.get("ownerReferences") or []:
        if one.get("controller"):
            return Reference(one["uid"], one["kind"], one["name"], one["apiVersion"])
    return None


def _pin(spec: Mapping[str, Any]) -> str:
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in affinity.get("nodeSelectorTerms") or []:
        for one in term.get("matchFields") or []:
            if one["key"] == "metadata.name" and one.get("values"):
                return str(one["values"][0])
    return ""
