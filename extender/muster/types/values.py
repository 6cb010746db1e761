"""What identifies and describes: keys, owners, shapes, and constraints of pods."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

import numpy as np
import numpy.typing as npt

Seconds = NewType("Seconds", float)
"""A point in time (Unix) or a length of time, as the name of the field says."""


GpuSeconds = NewType("GpuSeconds", float)


IntArray = npt.NDArray[np.int64]


BoolArray = npt.NDArray[np.bool_]


FloatArray = npt.NDArray[np.float64]


GPU = "nvidia.com/gpu"


MIG = "nvidia.com/mig-"
"""Resources of MIG devices by profile, as NVIDIA's device plugin names them with the strategy mixed: mig-1g.10gb."""


PRODUCT = "nvidia.com/gpu.product"
"""The node label that names the GPU product (gpu-feature-discovery's)."""
HOSTNAME = "kubernetes.io/hostname"
"""The node label that names the node."""


GPU_MEMORY = "nvidia.com/gpu.memory"
"""The node label that tells a GPU's memory in MiB (gpu-feature-discovery's)."""


GATE = "muster.dev/queue"
"""Scheduling gate by Muster: the pod is in the queue. Only Muster removes it."""


PODS = "pods"


WHOLE = "/gpu"
"""How the names of whole GPUs end, of any maker."""


class DeviceNames(NamedTuple):
    """Which resources Muster counts in GPUs: these names, and what begins or ends so. Unless a configuration says
    other ones (deviceResources), any maker's `MAKER/gpu`, and MIG devices of any profile."""

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = (MIG,)
    suffixes: tuple[str, ...] = (WHOLE,)

    def has(self, resource: str) -> bool:
        return (
            resource.endswith(self.suffixes) or resource.startswith(self.prefixes) or resource in self.names
        )

    def gpus(self, requests: tuple[tuple[str, int], ...]) -> int:
        """GPUs of one replica: nvidia.com/gpu, else the sum of the others that end in /gpu (one device may be offered
        by both); and all else that counts, each as one."""
        found = [(name, amount) for name, amount in requests if self.has(name)]
        own = sum([amount for name, amount in found if name == GPU])
        own = own or sum([amount for name, amount in found if name.endswith(WHOLE)])
        return own + sum([amount for name, amount in found if not name.endswith(WHOLE)])


DEVICES = DeviceNames()


def mig_slices(resource: str) -> int:
    """Compute slices of a MIG device by its profile, 3 of nvidia.com/mig-3g.20gb; 0 of anything else."""
    found = _PROFILE.match(resource)
    return int(found[1]) if found else 0


_PROFILE = re.compile(rf"{re.escape(MIG)}(?:\d+c\.)?(\d)g\.")


def device_names(patterns: Iterable[str]) -> DeviceNames:
    """Of names such as `google.com/tpu`, or with a * at one end: `nvidia.com/mig-*`, `*/gpu`."""
    names, prefixes, suffixes = [], [], []
    for pattern in patterns:
        if pattern.startswith("*"):
            suffixes.append(pattern[1:])
        elif pattern.endswith("*"):
            prefixes.append(pattern[:-1])
        else:
            names.append(pattern)
    return DeviceNames(tuple(names), tuple(prefixes), tuple(suffixes))


class JobKey(NamedTuple):
    """Namespace, name and the topmost owner's uid: the same name again is a new job."""

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Owner(NamedTuple):
    """A controlling owner as ownerReferences name it."""

    api_version: str
    kind: str
    name: str
    uid: str


class Requirement(NamedTuple):
    """One matchExpression or matchField: key, operator (In, NotIn, Exists, DoesNotExist, Gt, Lt), values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(NamedTuple):
    """A nodeSelectorTerm: all of its requirements hold. Terms of an affinity are ORed."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class Toleration(NamedTuple):
    """As in a pod: an empty key with Exists tolerates every taint, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label of a Namespace that is its name, written by the API server."""


class Namespaces(NamedTuple):
    """Which namespaces have opted in: a label selector on Namespaces, and names that never do."""

    selector: tuple[Requirement, ...] = ()
    left_out: frozenset[str] = frozenset()

    @property
    def by_labels(self) -> bool:
        """Whether labels of namespaces must be known, not their names alone."""
        return any(requirement.key != NAMESPACE_NAME for requirement in self.selector)


class Taint(NamedTuple):
    """As on a node; NoSchedule and NoExecute keep pods off, PreferNoSchedule does not."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Port(NamedTuple):
    """A host port."""

    protocol: str
    address: str
    number: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What one replica asks of a node: pods of one shape are interchangeable for the planner.

    `requests` is sorted by resource name and counts as kube-scheduler counts (containers, the largest init
    container, sidecars, overhead). `unmodelled` says in words what the planner does not model; a shape with
    any takes the *scored* way (design §2). `missing` says in words what it needs and no node can give, since it does
    not exist. `devices`: what counts in its GPUs, the same for all shapes of a process.
    """

    requests: tuple[tuple[str, int], ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[Port, ...] = ()
    unmodelled: tuple[str, ...] = ()
    node_name: str = ""
    missing: tuple[str, ...] = ()
    devices: DeviceNames = field(default=DEVICES, repr=False, compare=False)
    gpus: int = field(default=0, init=False, repr=False, compare=False)
    """GPUs of one replica (`DeviceNames.gpus`)."""
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpus", self.devices.gpus(self.requests))
        object.__setattr__(
            self,
            "_hash",
            hash(
                (
                    *(self.requests, self.selector, self.affinity, self.tolerations, self.ports),
                    *(self.unmodelled, self.missing),
                )
            ),
        )

    def __hash__(self) -> int:
        return self._hash

    def request(self, resource: str) -> int:
        """The amount of `resource` asked for, 0 where it is not named."""
        for name, amount in self.requests:
            if name == resource:
                return amount
        return 0


NO_SHAPE = Shape()
"""Of a pod that asks for nothing."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place on a node kept for one replica, from the plan until the pod is bound.

    `uid` is empty while the member does not exist yet (design §3: declared and reserved like the others).
    """

    role: str
    node: str
    pod: str = ""
    uid: str = ""


class NodeBackoff(NamedTuple):
    """A node left out for a role after a refusal there: until when (Unix s), and for how long this time (s)."""

    role: str
    node: str
    until: float
    length: float


class Meter(NamedTuple):
    """A sum of closed intervals and the open one: it stays the same value while nothing changes (design §3).

    total: what had been counted at `since` (s); rate: what is added a second from then on.
    """

    total: float = 0.0
    rate: float = 0.0
    since: float = 0.0

    def at(self, now: float) -> float:
        return self.total + self.rate * (now - self.since) if self.rate else self.total

    def turned(self, now: float, rate: float) -> Meter:
        """The meter with another rate from `now` on."""
        return Meter(self.at(now), rate, now)


NOTHING = Meter()
