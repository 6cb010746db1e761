"""What a lab looks like: how many nodes of which kind, in which racks, with which options. Values only.

A lab keeps the shape it was made with; asking for the same name with another shape is an error that names
what differs, so every field counts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from e2e.lab import libyaml, operators
from e2e.lab.errors import BadRequestError
from e2e.lab.versions import DEFAULT_KUBERNETES, supported

NODES_A_RACK = 4  # where the number of racks is not given: what fits one rack's power in most halls
CPU, MEMORY, PODS = "96", "1Ti", "110"


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that are alike. `memory` is one GPU's, in MiB, as GPU feature discovery writes it."""

    count: int
    gpus: int = 8
    product: str = "NVIDIA-A100-SXM4-80GB"
    memory: int = 81920
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()  # key, value, effect


@dataclass(frozen=True)
class Shape:
    """All that `lab up` can be asked for. The defaults are `make lab`'s."""

    groups: tuple[NodeGroup, ...] = (NodeGroup(16),)
    racks: int | None = None  # None: one for each four nodes; 0: no rack labels
    zones: int = 1
    kubernetes: str = DEFAULT_KUBERNETES
    chart: bool = True
    scheduler: bool = True  # a stock kube-scheduler named default-scheduler besides Muster's
    replicas: int = 1  # pairs of kube-scheduler and muster
    values: tuple[str, ...] = ()  # absolute paths of values files for the chart
    set_values: tuple[str, ...] = ()  # key=value, as `helm --set` takes them
    feature_gates: tuple[str, ...] = ()  # Name=true, for apiserver, controller-manager and schedulers
    apiserver_args: tuple[str, ...] = ()
    controller_args: tuple[str, ...] = ()
    scheduler_args: tuple[str, ...] = ()
    real: int = 0  # nodes that really run containers, besides those of `groups`
    real_gpus: int = 4  # what each of them says it has; the CPU stands in for the device
    pod_network: bool = False  # their pods have addresses (podnet.py); without, they need hostNetwork: true
    dns: bool = False  # and find headless Services by their names (CoreDNS)
    operators: tuple[str, ...] = ()  # real controllers of jobs that run in it (operators.py)
    audit: bool = False  # kube-apiserver keeps who wrote what (lab/audit.py)
    helm_3: bool = False  # and not Helm 4 installs the chart

    def __post_init__(self) -> None:
        if self.nodes < 0 or any(group.count < 0 or group.gpus < 0 for group in self.groups):
            raise BadRequestError("shape: counts of nodes and GPUs cannot be negative")
        if self.kubernetes not in supported():
            raise BadRequestError(f"K8S={self.kubernetes}: this lab can run {', '.join(supported())}")
        if not 1 <= self.replicas <= 9:
            raise BadRequestError(f"REPLICAS={self.replicas}: from 1 to 9")
        operators.chosen(self.operators)
        if self.dns and not self.pod_network:
            raise BadRequestError("dns: names are those of pods with addresses, so it needs pod_network, too")
        if not 0 <= self.real <= 9 or self.real_gpus < 0:
            found = f"REAL={self.real} REAL_GPUS={self.real_gpus}"
            raise BadRequestError(f"{found}: 0 to 9 nodes, GPUs not negative")

    @property
    def nodes(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def binder(self) -> str:
        """Who binds: "own", the kube-scheduler of the chart, or "cluster", the lab's default-scheduler."""
        return str(self._value("binder", "own"))

    @property
    def own_scheduler(self) -> bool:
        """Whether a kube-scheduler of the chart's runs; else it is the lab's default-scheduler that binds."""
        enabled = self._value("scheduler.enabled", True) not in (False, "false")
        return self.binder == "own" and enabled

    def _value(self, wanted: str, found: object) -> object:
        """A value of the chart by its dotted name, as helm would take it; `found` where nobody gives one."""
        for file in self.values:
            given = libyaml.load(Path(file).read_text()) or {}
            for part in wanted.split("."):
                given = given.get(part, {}) if isinstance(given, dict) else {}
            found = found if given == {} else given
        for setting in self.set_values:
            name, _, value = setting.partition("=")
            found = value if name == wanted else found
        return found

    @property
    def rack_count(self) -> int:
        return -(-self.nodes // NODES_A_RACK) if self.racks is None else self.racks

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Shape:
        raw = json.loads(text)
        raw["groups"] = tuple(_group(group) for group in raw["groups"])
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()
        }
        return cls(**fields)

    def differences(self, other: Shape) -> list[str]:
        """Sentences such as "nodes: has 16, asked for 32", this shape being what is there."""
        found = []
        if self.nodes != other.nodes:
            found.append(f"nodes: has {self.nodes}, asked for {other.nodes}")
        for name in (item.name for item in dataclasses.fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and not (name == "groups" and found):
                found.append(f"{name}: has {_plain(mine)}, asked for {_plain(theirs)}")
        return found


@dataclass(frozen=True)
class NodeSpec:
    """One node to be created."""

    name: str
    group: NodeGroup
    labels: Mapping[str, str] = field(default_factory=dict)

    def differs(self, there: Mapping[str, Any]) -> bool:
        """Whether a Node of the API is not as it was made any more (labels that others added do no harm)."""
        made = self.manifest("")
        spec, status = there["spec"], there["status"]
        taints = [
            (taint["key"], taint.get("value", ""), taint["effect"]) for taint in spec.get("taints") or []
        ]
        ready = [item["status"] for item in status.get("conditions") or [] if item["type"] == "Ready"]
        return (
            bool(spec.get("unschedulable"))
            or sorted(taints) != sorted(self.group.taints)
            or ready != ["True"]
            or any(
                there["metadata"].get("labels", {}).get(key) != value for key, value in self.labels.items()
            )
            or {quantity: status["allocatable"].get(quantity) for quantity in made["status"]["allocatable"]}
            != made["status"]["allocatable"]
        )

    def manifest(self, now: str) -> dict[str, Any]:
        """A whole Node, Ready from birth (kwok has nothing to write then; 5,000 nodes come up in seconds)."""
        resources = {"cpu": CPU, "memory": MEMORY, "pods": PODS, "ephemeral-storage": "7Ti"}
        if self.group.gpus:
            resources["nvidia.com/gpu"] = str(self.group.gpus)
        conditions = [("Ready", "True", "KubeletReady")]
        conditions += [
            (kind, "False", "KubeletHas") for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
        ]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": dict(self.labels)},
            "spec": {
                "taints": [
                    {"key": key, "value": value, "effect": effect} for key, value, effect in self.group.taints
                ]
            },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "addresses": [{"type": "Hostname", "address": self.name}],
                "conditions": [
                    {
                        "type": kind,
                        "status": status,
                        "reason": reason,
                        "message": "a node of the lab",
                        "lastHeartbeatTime": now,
                        "lastTransitionTime": now,
                    }
                    for kind, status, reason in conditions
                ],
                "nodeInfo": {
                    "architecture": "amd64",
                    "bootID": "",
                    "containerRuntimeVersion": "kwok",
                    "kernelVersion": "kwok",
                    "kubeProxyVersion": "",
                    "kubeletVersion": "kwok",
                    "machineID": "",
                    "operatingSystem": "linux",
                    "osImage": "kwok",
                    "systemUUID": "",
                },
            },
        }


def nodes(shape: Shape) -> Iterator[NodeSpec]:
    """The nodes of a shape, named node-00, node-01, ... so that the order of names is the order of numbers.

    Racks and zones are runs of neighbours: with 16 nodes and 4 racks, node-00 to node-03 are rack-0."""
    width = max(2, len(str(shape.nodes - 1)))
    number = 0
    for group in shape.groups:
        for _ in range(group.count):
            name = f"node-{number:0{width}d}"
            labels = {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "type": "kwok",
            }
            if shape.zones:
                labels["topology.kubernetes.io/zone"] = f"zone-{number * shape.zones // shape.nodes}"
            if shape.rack_count:
                labels["topology.kubernetes.io/rack"] = f"rack-{number * shape.rack_count // shape.nodes}"
            if group.gpus:
                labels["nvidia.com/gpu.product"] = group.product
                labels["nvidia.com/gpu.memory"] = str(group.memory)
                labels["nvidia.com/gpu.count"] = str(group.gpus)
            yield NodeSpec(name, group, labels | dict(group.labels))
            number += 1


def real_nodes(shape: Shape) -> Iterator[NodeSpec]:
    """The nodes that really run containers: real-0, real-1, ... in a rack of their own."""
    group = NodeGroup(1, shape.real_gpus, product="CPU-in-place-of-a-GPU", memory=1024)
    for number in range(shape.real):
        labels = {"type": "real", "nvidia.com/gpu.count": str(group.gpus)}
        labels |= {"nvidia.com/gpu.product": group.product, "nvidia.com/gpu.memory": str(group.memory)}
        if shape.zones:
            labels["topology.kubernetes.io/zone"] = "zone-0"
        if shape.rack_count:
            labels["topology.kubernetes.io/rack"] = "rack-real"
        yield NodeSpec(f"real-{number}", group, labels)


def groups_from_file(path: Path) -> tuple[NodeGroup, ...]:
    """Mixed groups from YAML: a list of {count, gpus, product, memory, labels: {}, taints: [{key, value,
    effect}]}."""
    try:
        raw = libyaml.load(path.read_text())
    except (OSError, yaml.YAMLError) as problem:
        raise BadRequestError(f"SHAPE={path}: {problem}") from problem
    if not isinstance(raw, list) or not raw:
        raise BadRequestError(f"SHAPE={path}: expected a list of groups such as `- {{count: 4, gpus: 8}}`")
    allowed = {item.name for item in dataclasses.fields(NodeGroup)}
    for number, group in enumerate(raw):
        if not isinstance(group, dict) or "count" not in group or set(group) - allowed:
            raise BadRequestError(
                f"SHAPE={path}: group {number} needs `count` and may have {', '.join(sorted(allowed))}"
            )
    try:
        return tuple(
            _group(
                group
                | {
                    "labels": sorted(
                        (str(key), str(value)) for key, value in (group.get("labels") or {}).items()
                    ),
                    "taints": [
                        (taint["key"], str(taint.get("value", "")), taint["effect"])
                        for taint in group.get("taints") or []
                    ],
                }
            )
            for group in raw
        )
    except (AttributeError, KeyError, TypeError) as problem:
        raise BadRequestError(
            f"SHAPE={path}: labels are a map, taints a list of {{key, value, effect}}"
        ) from problem


def _group(raw: Mapping[str, Any]) -> NodeGroup:
    pairs = {name: tuple(tuple(item) for item in raw.get(name, ())) for name in ("labels", "taints")}
    return NodeGroup(**{**raw, **pairs})


def _plain(value: object) -> str:
    """A value as a person writes it."""
    if isinstance(value, tuple) and value and isinstance(value[0], NodeGroup):
        return " + ".join(
            f"{group.count} x {group.gpus} {group.product}"
            + "".join(f" {key}={text}" for key, text in group.labels)
            + "".join(f" taint {key}:{effect}" for key, _, effect in group.taints)
            for group in value
        )
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "nothing"
    return str(value)
