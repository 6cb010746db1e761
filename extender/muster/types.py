"""The values that pass between modules: all frozen, none with behaviour beyond reading itself.

Units: times are Unix seconds, resources are whole numbers (cpu in millicores, memory and storage in bytes,
everything else in pieces), work is in seconds on one replica.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Mapping, Sequence
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
PRODUCT = "nvidia.com/gpu.product"
"""The node label that names the GPU product (gpu-feature-discovery's)."""
GPU_MEMORY = "nvidia.com/gpu.memory"
"""The node label that tells a GPU's memory in MiB (gpu-feature-discovery's)."""
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
    gpus: int = field(default=0, init=False, repr=False, compare=False)
    """GPUs of one replica: nvidia.com/gpu, else the sum of other extended resources that end in /gpu."""
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        own = self.request(GPU) or sum(n for name, n in self.requests if name.endswith("/gpu"))
        object.__setattr__(self, "gpus", own)
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
    image: str = ""  # of its first container
    applied: bool = False  # somebody applies it server-side, so who wrote which field must be kept
    claims: tuple[str, ...] = ()  # names of its persistent volume claims
    affinity_terms: bytes = b""  # required node affinity as sent by the API (JSON list), for the patch
    carries: tuple[Hold, ...] = ()  # the placement of the start that began with it, where its gate is off


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """A workload that owns pods: its declared size and its own controller.

    `size` is the number of pods that it wants to exist at once, None where it can't be known. A Job also ends:
    `completions` is how many must succeed (None: a work queue, `queue`), `succeeded` how many have.
    `roles` are the counts of an owner that declares several (a PyTorchJob, a JobSet); `least` is the minimum
    of an owner that may run with fewer than its size, by role ("" = its only one).
    `ordered` is true where it creates a pod only after the one before is ready (OrderedReady); `whole` where it
    ends only when every one of its replicas has run to its end (an Indexed Job without a successPolicy); `prefix` is
    how many of the lowest indexes its successPolicy needs. `fragile` says by role ("" = every one) in words what a
    replica that we end would do to the owner; `optional` are roles without which it can end well.
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
    prefix: int = 0
    fragile: tuple[tuple[str, str], ...] = ()
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """A place on a node kept for one replica, from the plan until the pod is bound.

    `uid` is empty while the member does not exist yet (design §3: declared and reserved like the others).
    """

    role: str
    node: str
    pod: str = ""
    uid: str = ""


class Bar(NamedTuple):
    """A node left out for a role after a refusal there: until when (Unix s), and for how long this time (s)."""

    role: str
    node: str
    until: float
    length: float


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
    asked: float = 0.0  # when nodes were asked for, 0 = no request is out
    barred: tuple[Bar, ...] = ()
    sizes: tuple[tuple[str, int, int], ...] = ()  # role, min, max as they were written
    keeps: str = ""  # why it can't become smaller, as it was written
    facts: Facts | None = None  # of an elastic profile: what was observed of the job
    track: Mapping[str, object] = field(default_factory=dict)  # core.reports.Track as plain values
    memory: Mapping[str, object] = field(default_factory=dict)  # by plugin: what its `observe` returned
    want: Want | None = None


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
class ClaimSeen:
    """A persistent volume claim was read; anywhere: it is bound to a volume that any node can use."""

    namespace: str
    name: str
    anywhere: bool


class Quota(NamedTuple):
    """One limit of a ResourceQuota: its object, the quota's word, the resource that pods request, and counts."""

    name: str
    counts: str
    resource: str
    hard: int
    used: int


@dataclass(frozen=True, slots=True)
class QuotasSeen:
    """The ResourceQuotas of a namespace were read."""

    namespace: str
    quotas: tuple[Quota, ...]


class Budget(NamedTuple):
    """A PodDisruptionBudget: how many of its pods must be healthy and are, and how many it expects in all.

    allowed: evictions that it allows now; number: minAvailable as a number, -1 where it is a percentage or
    maxUnavailable; failed: why its controller can't work it out, "" = it can.
    """

    name: str
    desired: int
    healthy: int
    expected: int
    allowed: int
    number: int = -1
    failed: str = ""


@dataclass(frozen=True, slots=True)
class BudgetsSeen:
    """The PodDisruptionBudgets of a namespace were read."""

    namespace: str
    budgets: tuple[Budget, ...]


@dataclass(frozen=True, slots=True)
class Reported:
    """A pod of ours, known by its token, told how training goes; `at` is the server's clock, never the pod's."""

    uid: str
    report: Report


@dataclass(frozen=True, slots=True)
class LearnedSeen:
    """What earlier jobs taught was read: JSON values as `core.learned.Lessons.plain` wrote them."""

    lessons: object


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
    | ClaimSeen
    | QuotasSeen
    | BudgetsSeen
    | Reported
    | LearnedSeen
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

    @property
    def ready(self) -> bool:
        """Gated by us only, or its gate was taken off by somebody else and it has no place yet."""
        return self.phase is Phase.GATED or (self.phase is Phase.UNGATED and not self.pinned)


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
    # How many members stand where, counted once: a cycle asks it of every job, and few jobs change between two.
    bound: int = field(default=0, init=False, repr=False, compare=False)
    ready: int = field(default=0, init=False, repr=False, compare=False)  # may be ungated, see Member.ready
    held: int = field(default=0, init=False, repr=False, compare=False)
    released: int = field(default=0, init=False, repr=False, compare=False)

    on: tuple[Member, ...] = field(default=(), init=False, repr=False, compare=False)
    """Members that use a node: bound, or ending there."""

    def __post_init__(self) -> None:
        bound = ready = held = released = 0
        on = []
        for member in self.members:
            phase = member.phase
            if phase is Phase.GATED:
                ready += 1
            elif phase is Phase.BOUND:
                bound += 1
                on.append(member)
            elif phase is Phase.ENDING:
                on.append(member)
            elif phase is Phase.UNGATED:
                ready += not member.pinned
            elif phase is Phase.HELD:
                held += 1
            elif phase is Phase.RELEASED:
                released += 1
        object.__setattr__(self, "bound", bound)
        object.__setattr__(self, "ready", ready)
        object.__setattr__(self, "held", held)
        object.__setattr__(self, "released", released)
        object.__setattr__(self, "on", tuple(on))


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


@dataclass(frozen=True, slots=True)
class Facts:
    """What the Ledger has observed of a job and what outlives a restart (design §4). Times are in s.

    first_start: its first replica ran, None = never. run_start: start of the present run (of the last one while
    it waits). gpu_seconds: attained service; run_gpu_seconds: of the present run, kept while waiting.
    executed: seconds with any GPU; progress: work done, in seconds on one replica; by_product: executed by
    GPU product. resizes and moves: how often its number of replicas or its nodes changed while it ran;
    last_resize: when, None = never. restarts: starts after the first and changes for which it had to be
    restarted. last_cost: seconds that a change costs it, by its last ones (median of three), 0 = none was measured;
    costs: those, oldest first.
    shares: the last changes of its elastic role, (time, replicas on nodes), oldest first, SHARES_KEPT at most.
    between: no run is under way: all of it has been off the nodes since the last one, or there was none.
    """

    first_start: float | None = None
    run_start: float | None = None
    gpu_seconds: Meter = NOTHING
    run_gpu_seconds: Meter = NOTHING
    executed: Meter = NOTHING
    progress: Meter = NOTHING
    by_product: Mapping[str, Meter] = field(default_factory=dict)
    last_resize: float | None = None
    resizes: int = 0
    moves: int = 0
    restarts: int = 0
    last_cost: float = 0.0
    costs: tuple[float, ...] = ()
    shares: tuple[tuple[float, int], ...] = ()
    between: bool = True


SHARES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Report:
    """The newest thing that a job's training reported: all of it optional, nothing of it trusted.

    at: when (s); step: iterations done; total: iterations that it will do, 0 = unknown; epoch: whole epochs
    done; steps_per_epoch; loss: the evaluation function's value (of a loss or an accuracy); speed: iterations/s
    measured in its present configuration, 0 = none yet; boundary: whether it stands at a boundary where a
    job with `resizeAt: boundary` may change. target: the evaluation's value at which training stops by itself.
    samples: training samples processed so far, 0 = not told (then speed counts iterations). workers: replicas that
    took part in the newest steps, 0 = not told: one that was bound a moment ago may still be starting.
    """

    at: float = 0.0
    step: float = 0.0
    total: float = 0.0
    epoch: int = 0
    steps_per_epoch: float = 0.0
    loss: float | None = None
    speed: float = 0.0
    boundary: bool = False
    target: float | None = None
    samples: float = 0.0
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Config:
    """How a job runs, or might: what its speed depends on.

    roles: replicas by role, sorted by name; nodes: replicas on each node, most first; product: GPU product;
    batch: global batch size, 0 = its own; beside: the model of the job on the same GPU, "" = alone.
    """

    roles: tuple[tuple[str, int], ...] = ()
    nodes: tuple[int, ...] = ()
    product: str = ""
    batch: int = 0
    beside: str = ""

    @property
    def replicas(self) -> int:
        return sum(count for _, count in self.roles)

    def count(self, role: str) -> int:
        return dict(self.roles).get(role, 0)


@dataclass(frozen=True, slots=True)
class Job:
    """One gang: what starts together.

    request: replicas that its owner asked for at submission, which rigid policies grant (0: its maximum).
    model: what is trained, as its owner labels it; policies that know models look it up. samples: measured
    speed (iterations/s) by configuration. want: what the last plan granted beside a number of replicas.
    """

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
    coming: bool = False  # an owner is about to make a pod again that was evicted
    not_before: float = 0.0  # back-off after a start that failed
    preempted: str = ""  # why it goes back whole, while some of it is still out
    quota: tuple[str, str, bool] = (
        "",
        "",
        False,
    )  # what keeps its missing pods out: words, numbers, for ever
    memory: Mapping[str, object] = field(default_factory=dict)  # by plugin: what its `observe` returned
    request: int = 0
    model: str = ""
    batch: int = 0  # global batch size, 0 = unknown
    gpu_memory: int = 0  # MiB of GPU memory that a replica uses on each GPU, 0 = unknown
    resize_at: str = ""  # "boundary": only when it reports one
    resize: str = ""  # "restart": a change of its size ends all of its replicas; else survivors go on
    image: str = ""  # of its pods: with the model, what a job that was seen before is known by
    keeps: str = ""  # why it can't become smaller now (a PodDisruptionBudget refuses), "" = it can
    rigid: str = (
        ""  # why it has one size only (its owner would fail, or wait for ever, with fewer), "" = it has not
    )
    silent: float = 0.0  # when its training was last heard (s), where a report is overdue; 0: none is
    facts: Facts = Facts()
    report: Report | None = None
    samples: Mapping[Config, float] = field(default_factory=dict)
    want: Want | None = None
    elastic: Role | None = field(default=None, init=False, repr=False, compare=False)
    """The role whose number of replicas is shared: the first whose max is above its min, else the first."""
    gpus: int = field(default=0, init=False, repr=False, compare=False)
    """GPUs of the replicas that the job needs to start."""
    # Counted once: a cycle asks it of every job, and few jobs change between two.
    bound: int = field(default=0, init=False, repr=False, compare=False)
    unbound: int = field(
        default=0, init=False, repr=False, compare=False
    )  # short of the minimum, by what is bound
    most: int = field(default=0, init=False, repr=False, compare=False)
    released: bool = field(default=False, init=False, repr=False, compare=False)
    running: int = field(default=0, init=False, repr=False, compare=False)  # replicas that use a node

    def __post_init__(self) -> None:
        roles = self.roles
        object.__setattr__(self, "running", sum([len(role.on) for role in roles]))
        object.__setattr__(self, "bound", sum([role.bound for role in roles]))
        object.__setattr__(self, "unbound", sum([max(0, role.min - role.bound) for role in roles]))
        object.__setattr__(self, "most", sum([role.max for role in roles]))
        object.__setattr__(self, "released", sum([role.released for role in roles]) > 0)
        if roles:
            first = roles[0] if len(roles) == 1 else next((r for r in roles if r.max > r.min), roles[0])
            object.__setattr__(self, "elastic", first)
        object.__setattr__(self, "gpus", sum([role.min * role.shape.gpus for role in roles]))


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
    QUOTA = "Quota"
    NOT_OURS_YET = "ForeignGate"
    RESOURCES = "Resources"
    NODES = "Nodes"
    TOPOLOGY = "Topology"
    NEVER_FITS = "NeverFits"
    BEHIND_HEAD = "BehindHead"
    RESERVED = "Reserved"
    SHARE = "Share"
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


class Table:
    """The jobs as columns: J rows by submission, then key. What Share plugins read; never written by them.

    keys: J job keys. Of each job's *elastic role* (the first whose max is above its min, else its first):
    least, most, request, have: (J,) int64 replicas: fewest and most it may have, what its owner asked for, and
    what it has now (held places count). unit: (J,) int64 GPUs of one replica; fixed: (J,) GPUs of its other
    roles together, taken as soon as it runs. priority: (J,) int64.
    submitted, first_start, run_start, last_resize: (J,) s; +inf (the starts) and -inf (last_resize) = never.
    gpu_seconds, run_gpu_seconds, executed, progress: (J,) s, as in `Facts`. remaining: (J,) seconds of work on one
    replica by the profile's Estimate, nan = unknown. speed of a job at n replicas, relative to one replica, is
    curves[curve[j], n]: curve (J,) int64, curves (C, K+1) float64 with column 0 = 0; beyond a job's `most` the
    entries are meaningless. sizes: by row, the allowed counts where not every count from least to most is.
    estimated: by row, speed in any configuration (`Estimation.speed`), None where the Estimate says nothing of it.
    gpus: GPUs that these jobs may use together; products: the same by GPU product; per_node: GPUs of the
    largest node. A job that can't run now (incomplete, invalid, backing off) or that is not ours to end has no row.
    """

    __slots__ = (
        "curve",
        "curves",
        "estimated",
        "executed",
        "first_start",
        "fixed",
        "gpu_seconds",
        "gpus",
        "have",
        "keys",
        "last_resize",
        "least",
        "most",
        "per_node",
        "priority",
        "products",
        "progress",
        "remaining",
        "request",
        "row",
        "run_gpu_seconds",
        "run_start",
        "sizes",
        "submitted",
        "unit",
    )

    keys: Sequence[JobKey]
    submitted: FloatArray
    first_start: FloatArray
    run_start: FloatArray
    last_resize: FloatArray
    gpu_seconds: FloatArray
    run_gpu_seconds: FloatArray
    executed: FloatArray
    progress: FloatArray
    remaining: FloatArray
    least: IntArray
    most: IntArray
    request: IntArray
    have: IntArray
    unit: IntArray
    fixed: IntArray
    priority: IntArray
    curve: IntArray
    curves: FloatArray
    sizes: Mapping[int, tuple[int, ...]]
    estimated: Sequence[Callable[[Config], float] | None]
    row: Mapping[JobKey, int]
    gpus: int
    per_node: int
    products: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.submitted)


@dataclass(frozen=True)
class Snapshot:
    """Everything that a plan may depend on, frozen.

    free: (N, R) int64, what is left after bound, ending, ungated and held replicas and foreign pods.
    ports: host ports in use by node row. ours_on: (N,) int64 pods of ours on each node.
    barred: node names left out for (job, role) since a pin there was refused, with the time until.
    shared_at: when shares were last computed (a profile with rounds does so at whole multiples of its length).
    """

    now: float
    nodes: Nodes
    free: IntArray
    jobs: Mapping[JobKey, Job]
    ports: Mapping[int, frozenset[Port]] = field(default_factory=dict)
    barred: Mapping[tuple[JobKey, str], Mapping[str, float]] = field(default_factory=dict)
    ours_on: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    table: Table = None  # type: ignore[assignment]  # filled in by core.table before a plugin sees it
    seed: int = 0
    shared_at: float = 0.0

    def rng(self, plugin: str) -> np.random.Generator:
        """Random numbers that are the same for the same seed, plugin and time (design §3)."""
        return np.random.default_rng([self.seed, zlib.crc32(plugin.encode()), int(self.now * 1000.0)])


# ---- the plan and its actions ----


@dataclass(frozen=True, slots=True)
class Want:
    """What a Share plugin grants a job beside a number of replicas; an empty field asks for nothing.

    roles: replicas by role, where the job has several that change; product: the GPU product; max_nodes: at
    most so many nodes (0 = any); batch: the global batch size; beside: the job whose GPUs it shares.
    gpu_memory: MiB that a replica uses at that batch, where it is not the job's own (0 = as the job says).
    """

    roles: Mapping[str, int] = field(default_factory=dict)
    product: str = ""
    max_nodes: int = 0
    batch: int = 0
    beside: JobKey | None = None
    anew: bool = False
    gpu_memory: int = 0


@dataclass(frozen=True)
class Shares:
    """What jobs are granted, aligned with the rows of the snapshot's table.

    replicas: (J,) int64, 0 = it waits (of a job of several roles: of its elastic role, see `Table`).
    wants: by row, for jobs that are granted more than a number. why: by row, one sentence for the owner. whole: a
    grant that finds no place whole is not placed at all (rigid policies); else the largest part that does is.
    order: rows in the order in which places are given (jobs that start or are placed anew); empty = the queue's.
    settled: places are chosen as if all that leaves were gone; else one that is free at once is preferred.
    """

    replicas: IntArray
    wants: Mapping[int, Want] = field(default_factory=dict)
    why: Mapping[int, str] = field(default_factory=dict)
    whole: bool = False
    order: tuple[int, ...] = ()
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """A running job (or a role of it) to be placed anew: `to` are node names, one a replica; empty = the core
    chooses. gain and cost in seconds, for the words."""

    job: JobKey
    role: str = ""
    to: tuple[str, ...] = ()
    gain: float = 0.0
    cost: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Shrink:
    """One replica that leaves while its job goes on (or moves): carried out by `evict`."""

    job: JobKey
    role: str
    uid: str
    pod: str
    node: str
    cause: str


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
    shrinks: tuple[Shrink, ...] = ()
    later: Mapping[JobKey, tuple[Hold, ...]] = field(default_factory=dict)
    wants: Mapping[JobKey, Want] = field(default_factory=dict)
    shares: Mapping[JobKey, int] = field(default_factory=dict)
    whys: Mapping[JobKey, str] = field(default_factory=dict)  # why a job has this share, for its owner
    shared: bool = False  # shares were computed in this cycle, not only kept
    memory: Mapping[JobKey, Mapping[str, object]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ungate:
    """Take the gate off, and pin to `node` where `pin` is true (one PATCH).

    `carries`: the placement of the whole start, written on this pod with the same PATCH; it is the start's first.
    """

    job: JobKey
    uid: str
    pod: str
    version: str
    node: str
    pin: bool
    cause: str
    affinity_terms: bytes = b""
    within: tuple[str, str] = ("", "")  # node label and value that are required, too
    applied: bool = True  # as the pod's; unknown is yes
    carries: tuple[Hold, ...] = ()


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
    """The one action that ends a pod of ours (design §1).

    tracked: it carries the Job controller's finalizer, which goes off first. by_job: a Job owns it, so that finalizer
    must be on where the pod stays after all.
    """

    job: JobKey
    uid: str
    pod: str
    version: str
    tracked: bool
    cause: str
    by_job: bool = False


@dataclass(frozen=True, slots=True)
class Retrack:
    """Put the Job controller's finalizer back on a pod of which an eviction was begun and not done (design §1)."""

    job: JobKey
    uid: str
    pod: str
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
    sizes: tuple[tuple[str, int, int], ...] = ()  # role, min, max, as the status has them
    barred: frozenset[Bar] = frozenset()  # likewise
    asked: float = 0.0  # likewise
    silent: float = 0.0  # likewise
    kept: tuple[object, ...] = ()  # likewise: facts, track, memory, want
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
class AskNodes:
    """Ask an autoscaler for nodes for a job's minimum: sets are role, replicas and what one asks for."""

    job: JobKey
    name: str
    gang: str
    gang_uid: str
    provisioning_class: str
    sets: tuple[tuple[str, int, Shape], ...]
    cause: str


@dataclass(frozen=True, slots=True)
class DropNodes:
    """The request is not wanted any more: the job starts, is over, or others are before it now."""

    job: JobKey
    name: str
    templates: tuple[str, ...]
    cause: str


@dataclass(frozen=True, slots=True)
class Expose:
    """Take the gate off without a place, so that an autoscaler sees the pod (asking: ungate)."""

    job: JobKey
    uid: str
    pod: str
    version: str
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


@dataclass(frozen=True, slots=True)
class WriteLearned:
    """Keep what jobs taught for those that come after them: one ConfigMap of the release. job: the last of them."""

    job: JobKey
    lessons: Mapping[str, object]
    cause: str


Action = (
    Ungate
    | Nominate
    | Evict
    | Retrack
    | WriteGang
    | DeleteGang
    | AskNodes
    | DropNodes
    | Expose
    | Say
    | WriteLearned
)
