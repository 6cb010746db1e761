"""Extension points, in kube-scheduler's words, and how a profile finds its plugins (design §4).

A plugin is a frozen dataclass whose fields are the policy's parameters and which implements any of the
protocols below. Plugins propose; the core enforces capacity, gang minimum, min and max and no double booking.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol, runtime_checkable

from muster.asking import Asking
from muster.errors import ConfigurationError
from muster.memory import hand_in, remembers_as
from muster.types import (
    DEVICES,
    BoolArray,
    Config,
    DeviceNames,
    FloatArray,
    Grants,
    IntArray,
    Job,
    Move,
    Namespaces,
    Nodes,
    Role,
    SharingSnapshot,
    Snapshot,
)

ENTRY_POINTS = "muster.plugins"


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes as they stand in the middle of a trial, for one role.

    fits: (N,) how many more replicas of the role each node takes (0 = infeasible); free: (N, R);
    own: (N,) pods of this job on each node, others: (N,) pods of other jobs of ours; count: replicas still
    to be placed.
    """

    nodes: Nodes
    free: IntArray
    fits: IntArray
    own: IntArray
    others: IntArray
    count: int


@runtime_checkable
class QueueSort(Protocol):
    """Which job is first. Smaller keys first; the core appends `Job.tie`, so ties never flip."""

    def sort_key(self, job: Job, snapshot: Snapshot) -> tuple[Any, ...]: ...


@runtime_checkable
class Filter(Protocol):
    """Which nodes may take a role: a mask (None = all) and, where it takes nodes away, why, for the owner."""

    def filter(
        self, job: Job, role: Role, candidates: Candidates, snapshot: Snapshot
    ) -> tuple[BoolArray | None, str]: ...


@runtime_checkable
class Score(Protocol):
    """(N,) floats from 0 to 100: the more, the better the node for the next replica of the role."""

    def score(self, job: Job, role: Role, candidates: Candidates, snapshot: Snapshot) -> FloatArray: ...


@runtime_checkable
class Share(Protocol):
    """Replicas for each job, on the snapshot's table, which says what jobs have now. The first of a profile's
    `shares`; the core clips what is illegal: to min, max and sizes, and to capacity in queue order.

    A class variable RULE, where there is one, says in a clause for owners what the policy goes by ("GPUs go round
    evenly"): `core.reasons.shares` ends a sentence with it where gain did not decide."""

    def share(self, snapshot: SharingSnapshot) -> Grants: ...


@runtime_checkable
class Adjust(Protocol):
    """Shares in place of those that the plugin before it in a profile's `shares` granted (where it is the first: of
    what jobs have). RULE as of Share."""

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants: ...


@runtime_checkable
class Rebalance(Protocol):
    """Running jobs to be placed again. The core drops a move that finds no place and undoes it in the trial."""

    def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]: ...


@dataclass(frozen=True, slots=True)
class Estimation:
    """What is believed of one job's speed and length.

    remaining: seconds of work on one replica, nan = unknown. speeds: speed relative to one replica at 0, 1, 2 ...
    replicas of the elastic role (empty: linear). speed: iterations/s (or relative, where nothing is measured) in
    any configuration, for policies that look at more than a number; None where the estimate says nothing of it.
    """

    remaining: float = math.nan
    speeds: tuple[float, ...] = ()
    speed: Callable[[Config], float] | None = None


@runtime_checkable
class Estimate(Protocol):
    """Speed and remaining work; without one, what owners declare (linear, unknown length)."""

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation: ...


@runtime_checkable
class Observe(Protocol):
    """A pure fold over a job's reports, kept in its Gang and read by the plugin's own `muster.memory.Memory`.

    Any plugin may implement it. The result is a mapping of plain values (JSON), or None to keep what there is.
    """

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None: ...


@runtime_checkable
class Fold(Protocol):
    """`Observe` for all jobs at once, on the snapshot's table: an engine without Job objects calls it instead.

    memory: (J,) columns by field, as the fold before returned them (empty at first; 0 for a new row). A plugin with
    a `fold` keeps plain numbers only, and reads them by `policylib.remembered.columns`, whoever keeps them.
    """

    def fold(
        self, snapshot: SharingSnapshot, memory: Mapping[str, FloatArray]
    ) -> Mapping[str, FloatArray]: ...


@runtime_checkable
class ReadsUse(Protocol):
    """A plugin whose class variable READS_USE is true looks at `Snapshot.use`: what nodes and pods really use. Only
    then does a cluster's driver read it; None is what a plugin finds where nobody tells, and it has to go on by
    requests."""

    READS_USE: ClassVar[bool]


@runtime_checkable
class Wake(Protocol):
    """When the next cycle is needed although nothing happens (a quantum, a lease, a round), None = never."""

    def wake(self, snapshot: SharingSnapshot) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Fifo:
    """QueueSort by default: priority, submission, then `Job.tie` (design §4)."""

    def sort_key(self, job: Job, snapshot: Snapshot) -> tuple[Any, ...]:  # noqa: ARG002
        return (-job.priority, job.submitted)


@dataclass(frozen=True, slots=True)
class Profile:
    """Plugins with their weights, and the core's own settings.

    order: "backfill" or "strict". patience: seconds that a head of unknown run time waits before freed
    capacity is kept for it. timeout: seconds between a gang's first and last bind before it goes back to
    the gate. evidence: age in seconds of a refusal before it undoes a pin. owner_pause: seconds without a new
    pod after which an owner counts as waiting for its first pods. placement: "pinned" or "scored".
    binder: "own", or "cluster" where the cluster's scheduler binds and nobody calls our verbs.
    preemption: whether the head of the queue may send whole gangs of lower priority back to the gate.
    conserving: whether GPUs that a Share plugin leaves, or grants to who finds no place there, go to others
    (`core.sharing.work_conserving`); the papers' own profiles leave them idle.
    named: every plugin of the profile once, with the name of its entry point (for observe and wake).
    resize: how a running job changes: "restart" (ended and started again from its checkpoint), "in-place"
    (survivors go on), "hand-over" (the new replicas are made ready first). round: seconds; shares are computed
    again only at whole multiples of it (0 = at every cycle). planner: "cycle", or "pods": what the plain default
    scheduler would do, for comparison in simulations only (sim/stock.py). asking: for whom an autoscaler is asked
    for nodes. carried: replicas up to which a start is recorded on its first pod, by the PATCH that starts that one,
    and not in the Gang, which costs a request more. shared_lessons: whether namespaces learn from each
    other how fast an image and model trains. incomplete: seconds for which a job that is not whole through its own
    doing keeps its place in the queue. namespaces: those whose pods are queued. devices: the resources that count in
    GPUs; a Ledger goes on with those that it began with.
    """

    name: str = "fifo"
    sort: QueueSort = field(default_factory=Fifo)
    filters: tuple[Filter, ...] = ()
    scores: tuple[tuple[Score, float], ...] = ()
    shares: tuple[Share | Adjust, ...] = ()
    rebalance: tuple[Rebalance, ...] = ()
    estimate: Estimate | None = None
    named: tuple[tuple[str, object], ...] = ()
    round: float = 0.0
    resize: str = "restart"
    planner: str = "cycle"
    order: str = "backfill"
    placement: str = "pinned"
    binder: str = "own"
    preemption: bool = False
    conserving: bool = False
    patience: float = 300.0
    timeout: float = 120.0
    evidence: float = 5.0
    owner_pause: float = 10.0
    incomplete: float = 600.0
    ttl_after_finished: float = 3600.0
    carried: int = 16
    shared_lessons: bool = False
    topology_levels: tuple[str, ...] = ()
    namespaces: Namespaces = field(default_factory=Namespaces)
    devices: DeviceNames = DEVICES
    asking: Asking = field(default_factory=Asking)
    observers: tuple[tuple[str, Observe], ...] = field(default=(), init=False, repr=False, compare=False)
    wakers: tuple[Wake, ...] = field(default=(), init=False, repr=False, compare=False)
    reads_use: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Which plugins fold and wake, found out once: asking a protocol is slow."""
        for name, plugin in self.named:
            if not remembers_as(plugin, name):
                raise ValueError(
                    f"named: {name!r} was not handed its memory of jobs; expected what points.load made"
                )
        observers = tuple((name, plugin) for name, plugin in self.named if isinstance(plugin, Observe))
        object.__setattr__(self, "observers", observers)
        object.__setattr__(self, "wakers", tuple(p for _, p in self.named if isinstance(p, Wake)))
        reads_use = any(isinstance(p, ReadsUse) and p.READS_USE for _, p in self.named)
        object.__setattr__(self, "reads_use", reads_use)


def installed() -> dict[str, Any]:
    """Plugin classes by the name of their entry point, without loading the others' modules twice."""
    return {e.name: e for e in entry_points(group=ENTRY_POINTS)}


TAKEN: tuple[tuple[tuple[object, ...], tuple[type, ...], str], ...] = (
    (("float", "int", float, int), (int, float), "a number"),
    (("bool", bool), (bool,), "true or false"),
    (("str", str), (str,), "text"),
)
"""Types of plugins' fields, as written or as they are, what they take, and how that is said."""


def load(name: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """The plugin `name` with `arguments` as its fields, and its memory of jobs.

    Raises ConfigurationError naming the plugin or the field that is not known.
    """
    found = installed()
    if name not in found:
        raise ConfigurationError(f"plugin {name!r} is not installed; installed: {', '.join(sorted(found))}")
    plugin = found[name].load()
    arguments = dict(arguments or {})
    if dataclasses.is_dataclass(plugin):
        known = {f.name: f.type for f in dataclasses.fields(plugin) if f.init}
        for argument, value in arguments.items():
            if argument not in known:
                raise ConfigurationError(
                    f"pluginArgs.{name}.{argument}: not a parameter of {name}; "
                    f"it has: {', '.join(sorted(known)) or 'none'}"
                )
            if wrong := _unlike(known[argument], value):
                raise ConfigurationError(f"pluginArgs.{name}.{argument}: {wrong}")
    try:
        made = plugin(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"pluginArgs.{name}: {error}") from error
    hand_in(made, name)
    return made


def _unlike(field: object, value: object) -> str:
    """What is wrong with a value for a field of this type: "" where nothing is."""
    for kinds, taken, said in TAKEN:
        if field in kinds:
            right = isinstance(value, taken) and (bool in taken or not isinstance(value, bool))
            return "" if right else f"expected {said}, found {value!r}"
    return ""
