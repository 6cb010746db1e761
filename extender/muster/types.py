"""The values that pass between modules: all frozen, none with behaviour beyond reading itself.

Units: times are Unix seconds, resources are whole numbers (cpu in millicores, memory and storage in bytes,
everything else in pieces), work is in seconds on one replica.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
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
GATE = "muster.dev/queue"
PODS = "pods"


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


# ---- what a replica asks of a node ----


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
    any takes the *scored* way (design §2).
    """

    requests: tuple[tuple[str, int], ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[Port, ...] = ()
    unmodelled: tuple[str, ...] = ()
    node_name: str = ""
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "_hash",
            hash(
                (self.requests, self.selector, self.affinity, self.tolerations, self.ports, self.unmodelled)
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

    @property
    def gpus(self) -> int:
        """GPUs of one replica: nvidia.com/gpu, else the sum of other extended resources that end in /gpu."""
        own = self.request(GPU)
        return own or sum(amount for name, amount in self.requests if name.endswith("/gpu"))


# ---- nodes and pods as they were observed ----


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node, as far as the planner reads it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)


class Phase(enum.Enum):
    """Where a pod of ours stands. Only ENDED frees its capacity (design §3)."""

    HELD = "held"  # another gate than ours keeps it out of our queue
    GATED = "gated"
    UNGATED = "ungated"  # gate off, not bound
    RELEASED = "released"  # `muster release`: kube-scheduler places it without a plan
    BOUND = "bound"
    ENDING = "ending"  # bound, deletionTimestamp set: still uses its node
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def on_node(self) -> bool:
        return self in (Phase.BOUND, Phase.ENDING)


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod, as far as the core reads it. Foreign pods carry node, shape and priority only.

    `pin` is the node named by a metadata.name matchField; `refused_at` is the transition time of a
    PodScheduled=False/Unschedulable condition (0 without one) and `refusal` its message.
    """

    uid: str
    namespace: str
    name: str
    version: str = ""
    ours: bool = True
    created: float = 0.0
    phase: Phase = Phase.GATED
    node: str = ""
    pin: str = ""
    nominated: str = ""
    shape: Shape = Shape()
    priority: int = 0
    controller: Owner | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    refused_at: float = 0.0
    refusal: str = ""
    deleting: bool = False
    tracked: bool = False  # carries the Job controller's finalizer
    affinity_terms: bytes = b""  # required node affinity as sent by the API (JSON list), for the patch


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """A workload that owns pods: its declared size and its own controller.

    `size` is the number of pods that it wants to exist at once, None where it can't be known. A Job also ends:
    `completions` is how many must succeed (None: a work queue, `queue`), `succeeded` how many have.
    `roles` are the counts of an owner that declares several (a PyTorchJob, a JobSet); `least` is the minimum
    of an owner that may run with fewer than its size, by role ("" = its only one).
    `ordered` is true where it creates a pod only after the one before is ready (OrderedReady); `whole` where it
    ends only when every one of its replicas has run to its end (an Indexed Job without a successPolicy).
    """

    owner: Owner
    namespace: str
    size: int | None = None
    roles: tuple[tuple[str, int], ...] = ()
    least: tuple[tuple[str, int], ...] = ()
    parent: Owner | None = None
    ordered: bool = False
    completions: int | None = None
    queue: bool = False
    succeeded: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """A place on a node kept for one replica, from the plan until the pod is bound.

    `uid` is empty while the member does not exist yet (design §3: declared and reserved like the others).
    """

    role: str
    node: str
    pod: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class GangRecord:
    """What a Gang object told: the Ledger's memory across restarts. Times are Unix seconds, 0 = none."""

    key: JobKey
    name: str
    object_uid: str = ""
    version: str = ""
    state: str = ""
    code: str = ""
    reason: str = ""
    since: float = 0.0
    submitted: float = 0.0
    started: float = 0.0
    placement: tuple[Hold, ...] = ()
    replicas: str = ""
    backoff: int = 0
    not_before: float = 0.0
    ended: float = 0.0


# ---- events: everything the Ledger ever learns ----


@dataclass(frozen=True, slots=True)
class NodeSeen:
    node: NodeRecord


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    pod: PodRecord


@dataclass(frozen=True, slots=True)
class PodGone:
    uid: str


@dataclass(frozen=True, slots=True)
class OwnerSeen:
    owner: OwnerRecord


@dataclass(frozen=True, slots=True)
class OwnerGone:
    uid: str


@dataclass(frozen=True, slots=True)
class GangSeen:
    gang: GangRecord


@dataclass(frozen=True, slots=True)
class GangGone:
    namespace: str
    name: str
    object_uid: str


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A native PodGroup (scheduling.k8s.io) or scheduler-plugins/Volcano one: its declared minimum."""

    namespace: str
    name: str
    min_count: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action: status is the HTTP status, 0 for no answer, -1 for not sent."""

    action: Action
    status: int
    message: str = ""


Event = (
    NodeSeen
    | NodeGone
    | PodSeen
    | PodGone
    | OwnerSeen
    | OwnerGone
    | GangSeen
    | GangGone
    | GroupSeen
    | Outcome
)


# ---- jobs, as plugins and the planner see them ----


@dataclass(frozen=True, slots=True)
class Member:
    """One existing replica that has not ended."""

    uid: str
    pod: str
    phase: Phase
    shape: Shape
    index: int = -1
    node: str = ""  # bound to, or pinned to
    created: float = 0.0
    refused_at: float = 0.0
    refusal: str = ""
    evictable: bool = True  # an owner re-creates it, or its own owner allows it (muster.dev/evictable)
    pinned: bool = False  # its own node affinity names the node: it can go nowhere else
    nominated: str = ""


@dataclass(frozen=True, slots=True)
class Role:
    """Replicas of one kind. min and max are for now: what has ended well is already taken off.

    `need` = replicas without which the job can't run; `members` are those that exist and have not ended,
    lowest index first (the running set of an indexed role is a prefix, design §1).
    """

    name: str
    min: int
    max: int
    shape: Shape
    sizes: tuple[int, ...] = ()
    members: tuple[Member, ...] = ()
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """One gang: what starts together."""

    key: JobKey
    priority: int = 0
    submitted: float = 0.0
    roles: tuple[Role, ...] = ()
    owner: Owner | None = None
    holds: tuple[Hold, ...] = ()
    started: bool = False  # a gate is off by our hand, or a replica is on a node
    started_at: float = 0.0
    below_since: float = 0.0  # when it last fell below its minimum while started, 0 when it is not below
    since: float = 0.0  # when it entered its state
    topology_required: str = ""
    topology_preferred: str = ""
    placement_mode: str = ""  # "", pinned or scored, as the owner asked
    scored: tuple[str, ...] = ()  # why it is placed the scored way; empty = pinned
    remaining_work: float | None = None  # s on one replica
    speed: tuple[tuple[int, float], ...] = ()  # (replicas, relative speed)
    invalid: str = ""
    expects: bool = False  # an owner is known to create the members that do not exist yet
    ordered: bool = False  # that owner waits for the first pods before it creates the next
    newest_pod: float = 0.0
    not_before: float = 0.0  # back-off after a start that failed
    preempted: str = ""  # why it goes back whole, while some of it is still out
    memory: object = None

    @property
    def gpus(self) -> int:
        """GPUs of the replicas that the job needs to start."""
        return sum(role.min * role.shape.gpus for role in self.roles)

    @property
    def running(self) -> int:
        return sum(1 for role in self.roles for m in role.members if m.phase.on_node)


class State(enum.StrEnum):
    """status.state of a Gang (design §8)."""

    INCOMPLETE = "Incomplete"
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    RESIZING = "Resizing"
    FINISHED = "Finished"
    INVALID = "Invalid"


class Code(enum.StrEnum):
    """status.code: why a job is where it is, for machines."""

    OK = "Ok"
    PODS_MISSING = "PodsMissing"
    NOT_OURS_YET = "ForeignGate"
    RESOURCES = "Resources"
    NODES = "Nodes"
    TOPOLOGY = "Topology"
    NEVER_FITS = "NeverFits"
    BEHIND_HEAD = "BehindHead"
    RESERVED = "Reserved"
    BACKING_OFF = "BackingOff"
    BINDING = "Binding"
    RELEASED = "Released"
    PREEMPTED = "Preempted"
    STUCK = "Stuck"
    INVALID = "Invalid"
    PLUGIN = "Plugin"


class Status(NamedTuple):
    """Why a job is where it is. `waits` is stable while the job waits for the same thing (it is written to
    the Gang and to Events); `detail` is what stands in its way at this moment (computed when it is read)."""

    state: State
    code: Code
    waits: str
    detail: str = ""


# ---- the snapshot ----


class Nodes:
    """The nodes as columns, sorted by name. Static: rebuilt when a node's labels, taints, allocatable or
    schedulability change, and shared by snapshots until then.

    names: N strings; resources: R names; total: (N, R) int64; open: (N,) bool, false for cordoned nodes.
    """

    __slots__ = (
        "_domains",
        "index",
        "masks",
        "names",
        "open",
        "records",
        "resource_index",
        "resources",
        "total",
    )

    def __init__(self, records: Sequence[NodeRecord]) -> None:
        self.records: tuple[NodeRecord, ...] = tuple(sorted(records, key=lambda n: n.name))
        self.names: tuple[str, ...] = tuple(n.name for n in self.records)
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        names = {resource for node in self.records for resource in node.allocatable}
        self.resources: tuple[str, ...] = tuple(sorted(names | {"cpu", "memory", PODS}))
        self.resource_index: dict[str, int] = {name: i for i, name in enumerate(self.resources)}
        self.total: IntArray = np.zeros((len(self.records), len(self.resources)), dtype=np.int64)
        for i, node in enumerate(self.records):
            for resource, amount in node.allocatable.items():
                self.total[i, self.resource_index[resource]] = amount
        self.open: BoolArray = np.array([not n.unschedulable for n in self.records], dtype=np.bool_)
        self.masks: dict[object, BoolArray] = {}  # written by core.constraints: static masks by constraint
        self._domains: dict[str, tuple[IntArray, tuple[str, ...]]] = {}

    def __len__(self) -> int:
        return len(self.names)

    def domains(self, label: str) -> tuple[IntArray, tuple[str, ...]]:
        """(N,) domain id of each node by a label key (-1 without the label), and the domains' names."""
        if label not in self._domains:
            values = [n.labels.get(label) for n in self.records]
            names = tuple(sorted({v for v in values if v is not None}))
            position = {name: i for i, name in enumerate(names)}
            ids = np.array([-1 if v is None else position[v] for v in values], dtype=np.int64)
            self._domains[label] = (ids, names)
        return self._domains[label]


@dataclass(frozen=True)
class Snapshot:
    """Everything that a plan may depend on, frozen.

    free: (N, R) int64, what is left after bound, ending, ungated and held replicas and foreign pods.
    ports: host ports in use by node row. ours_on: (N,) int64 pods of ours on each node.
    barred: node names left out for (job, role) since a pin there was refused, with the time until.
    """

    now: float
    nodes: Nodes
    free: IntArray
    jobs: Mapping[JobKey, Job]
    ports: Mapping[int, frozenset[Port]] = field(default_factory=dict)
    barred: Mapping[tuple[JobKey, str], Mapping[str, float]] = field(default_factory=dict)
    ours_on: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


# ---- the plan and its actions ----


@dataclass(frozen=True, slots=True)
class Want:
    """Replicas by role that a Share plugin grants a job."""

    job: JobKey
    replicas: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Undo:
    """Undo a pin on evidence: the pod goes back to the gate, its node is left out for a while."""

    job: JobKey
    role: str
    uid: str
    pod: str
    node: str
    why: str


@dataclass(frozen=True)
class Plan:
    """What one cycle decided.

    order: waiting jobs, first first; holds: the whole placement (of replicas not bound yet) for each job
    that has one; statuses: one for each job; undo: pins to be undone; back: jobs that go back to the gate since
    their start did not complete; preempted: jobs that go back whole for one of higher priority, with why.
    """

    order: tuple[JobKey, ...] = ()
    holds: Mapping[JobKey, tuple[Hold, ...]] = field(default_factory=dict)
    statuses: Mapping[JobKey, Status] = field(default_factory=dict)
    undo: tuple[Undo, ...] = ()
    back: Mapping[JobKey, str] = field(default_factory=dict)
    preempted: Mapping[JobKey, str] = field(default_factory=dict)
    wake: float | None = None
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ungate:
    """Take the gate off, and pin to `node` where `pin` is true (one PATCH)."""

    job: JobKey
    uid: str
    pod: str
    version: str
    node: str
    pin: bool
    cause: str
    affinity_terms: bytes = b""


@dataclass(frozen=True, slots=True)
class Nominate:
    """Set status.nominatedNodeName before the gate comes off: the scheduler keeps that space (design §2)."""

    job: JobKey
    uid: str
    pod: str
    node: str
    cause: str


@dataclass(frozen=True, slots=True)
class Evict:
    """The one action that ends a pod of ours (design §1)."""

    job: JobKey
    uid: str
    pod: str
    version: str
    tracked: bool
    cause: str


@dataclass(frozen=True, slots=True)
class WriteGang:
    """Create the Gang where it is missing, and write its status (and so its placement)."""

    job: JobKey
    gang: str
    owner: Owner | None
    status: Mapping[str, object]
    exists: bool
    holds: tuple[Hold, ...] = ()
    replaces: str = ""  # object uid of a Gang of the same name that belonged to an earlier job
    cause: str = ""


@dataclass(frozen=True, slots=True)
class DeleteGang:
    """Remove the Gang of a job that ended a set time ago."""

    job: JobKey
    gang: str
    object_uid: str
    cause: str


@dataclass(frozen=True, slots=True)
class Say:
    """An Event for the job's owner: on its first pod and on its owner."""

    job: JobKey
    reason: str
    message: str
    warning: bool = False
    pod: str = ""
    uid: str = ""
    owner: Owner | None = None


Action = Ungate | Nominate | Evict | WriteGang | DeleteGang | Say
