"""A job: its roles and their members, what it has lived through, and what is granted to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.types.grant import Grant
from muster.types.kube import Phase
from muster.types.status import EndReason
from muster.types.values import NOTHING, JobKey, Meter, Owner, Reservation, Shape


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
    revision: tuple[str, str] = ("", "")  # whose template it was made from, and which version, "" = unknown

    @property
    def ready(self) -> bool:
        """Gated by us only, or its gate was taken off by somebody else and it has no place yet."""
        return self.phase is Phase.GATED or (self.phase is Phase.UNGATED and not self.pinned)


@dataclass(frozen=True, slots=True)
class Role:
    """Replicas of one kind. min and max are for now: what has ended well is already taken off.

    `need` = replicas without which the job can't run; `members` are those that exist and have not ended,
    lowest index first (the running set of an indexed role is a prefix, design §1). `ordered`: its owner makes them
    one after another, or only when those of another role run or have ended. `grows` = what its owner declares as the
    minimum beyond that, since the job was whole with fewer (core.workload.whole): room to grow, never a need.
    `devices`: what it counts are no pods, but GPUs that pods of another role of the job use (core.devices.slots).
    """

    name: str
    min: int
    max: int
    shape: Shape
    sizes: tuple[int, ...] = ()
    members: tuple[Member, ...] = ()
    ended: int = 0
    ordered: bool = False
    grows: int = 0
    devices: bool = False
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


@dataclass(frozen=True, slots=True)
class Facts:
    """What the Ledger has observed of a job and what outlives a restart (design §4). Times are in s.

    first_start: its first replica ran, None = never. run_start: start of the present run (of the last one while
    it waits). gpu_seconds: attained service; run_gpu_seconds: of the present run, kept while waiting.
    executed: seconds with any GPU; progress: work done, in seconds on one replica; by_product: executed by
    GPU product. resizes and moves: how often its number of replicas or its nodes changed while it ran;
    last_resize: when, None = never. batch_ignored: see core.progress.batch. restarts: starts after the first and
    changes for which it had to be restarted. last_cost: seconds that a change costs it, by its last ones (median of
    three), 0 = none was measured; costs: those, oldest first.
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
    batch_ignored: bool = False


SHARES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Report:
    """The newest thing that a job's training reported: all of it optional, nothing of it trusted.

    at: when (s); step: iterations done; total: iterations that it will do, 0 = unknown; epoch: whole epochs
    done; steps_per_epoch; loss: the evaluation function's value (of a loss or an accuracy); speed: iterations/s
    measured in its present configuration, 0 = none yet; boundary: whether it stands at a boundary where a
    job with `resizeAt: boundary` may change. target: the evaluation's value at which training stops by itself.
    samples: training samples processed so far, 0 = not told (then speed counts iterations). workers: replicas that
    took part in the newest steps, 0 = not told: one that was bound a moment ago may still be starting. batch: samples
    of an iteration of all replicas together, 0 = not told. noise: gradient noise scale (samples), 0 = not told.
    loss_at: when `loss` was told (s), 0 = by this report: steps are told more often than evaluations.
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
    batch: int = 0
    noise: float = 0.0
    loss_at: float = 0.0


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
    reservations: tuple[Reservation, ...] = ()
    started: bool = False  # a gate is off by our hand, or a replica is on a node
    started_at: float = 0.0
    once_whole: bool = False  # all of its minimum was bound at some time
    below_since: float = 0.0  # since when it is below its minimum by what exists, unbound; 0: it is not
    since: float = 0.0  # when it entered its state
    topology_required: str = ""
    topology_preferred: str = ""
    placement_mode: str = ""  # "", pinned or scored, as the owner asked
    scored: tuple[str, ...] = ()  # why it is placed the scored way; empty = pinned
    remaining_work: float | None = None  # s on one replica
    speed: tuple[tuple[int, float], ...] = ()  # (replicas, relative speed)
    invalid: str = ""
    quarantined: bool = False  # invalid by an error of ours (core.state.quarantine), not by what it declares
    stuck: tuple[str, str, str] = ("", "", "")  # uid and name of a pod whose place did not work, and why
    expects: bool = False  # an owner is known to create the members that do not exist yet
    ordered: bool = (
        False  # that owner waits for the first pods before it creates the next: a role of it is ordered
    )
    suspended: bool = False  # its owner wants no pods for now
    over: str = ""  # its owner has ended, in words
    restarting: bool = (
        False  # its owner took all of it back a moment ago, and makes it again: it is in the queue meanwhile
    )
    newest_pod: float = 0.0
    returning: bool = False  # an owner is about to make a pod again that was evicted
    restart_on: tuple[str, ...] = ()  # places that others are to leave: a node for each of its elastic role
    not_before: float = 0.0  # back-off after a start that failed
    preempted: str = ""  # why it goes back whole, while some of it is still out
    ends: EndReason | None = None  # the machine's word for that, or for why its last start was given up
    quota: tuple[str, str, bool] = ("", "", False)  # what keeps missing pods out: words, numbers, for ever
    memory: Mapping[str, object] = field(default_factory=dict)  # by plugin: what its `observe` returned
    request: int = 0
    model: str = ""
    batch: int = 0  # global batch size, as submitted or last reported, 0 = unknown
    batch_sizes: tuple[int, ...] = ()  # global ones that it can train with, rising; empty: its own only
    gpu_memory: int = 0  # MiB of GPU memory that a replica uses on each GPU, 0 = unknown
    shareable: bool = True  # another job may be placed on the same GPUs
    resize_at: str = ""  # "boundary": only when it reports one
    resize: str = ""  # "restart": a change of its size ends all of its replicas; else survivors go on
    image: str = ""  # of its pods: with the model, what a job that was seen before is known by
    shrink_blocked_by: str = (
        ""  # why it can't become smaller now (a PodDisruptionBudget refuses), "" = it can
    )
    rigid: str = (
        ""  # why it has one size only (its owner would fail, or wait for ever, with fewer), "" = it has not
    )
    silent: float = 0.0  # when its training was last heard (s), where a report is overdue; 0: none is
    facts: Facts = Facts()
    report: Report | None = None
    samples: Mapping[Config, float] = field(default_factory=dict)
    grant: Grant | None = None
    beside: str = ""  # who trains on the same GPUs now, by its model (core.progress.pairs), "" = nobody
    elastic: Role | None = field(default=None, init=False, repr=False, compare=False)
    """The role whose number of replicas is shared: the first whose max is above its min, else the first with GPUs."""
    gpus: int = field(default=0, init=False, repr=False, compare=False)
    """GPUs of the replicas that the job needs to start."""
    # Counted once: a cycle asks it of every job, and few jobs change between two.
    bound: int = field(default=0, init=False, repr=False, compare=False)
    unbound: int = field(
        default=0, init=False, repr=False, compare=False
    )  # short of the minimum, by what is bound
    max: int = field(default=0, init=False, repr=False, compare=False)
    released: bool = field(default=False, init=False, repr=False, compare=False)
    running: int = field(default=0, init=False, repr=False, compare=False)  # replicas that use a node

    def __post_init__(self) -> None:
        roles = self.roles
        object.__setattr__(self, "running", sum([len(role.on) for role in roles]))
        object.__setattr__(self, "bound", sum([role.bound for role in roles]))
        object.__setattr__(self, "unbound", sum([max(0, role.min - role.bound) for role in roles]))
        object.__setattr__(self, "max", sum([role.max for role in roles]))
        object.__setattr__(self, "released", sum([role.released for role in roles]) > 0)
        if roles:
            object.__setattr__(self, "elastic", elastic_of(roles))
        object.__setattr__(self, "gpus", sum([role.min * role.shape.gpus for role in roles]))

    @property
    def tie(self) -> tuple[bool, JobKey]:
        """Which of two jobs is first that were submitted in the same second, as far as the API tells: the one that
        ran and that its owner makes again, then the one with the smaller key."""
        return not self.restarting, self.key


def elastic_of(roles: Sequence[Role]) -> Role:
    """Of one role or more that whose number of replicas is shared: see `Job.elastic`."""
    if len(roles) == 1:
        return roles[0]
    ranges = [role for role in roles if role.max > role.min]
    return next((role for role in ranges or roles if role.shape.gpus), (ranges or roles)[0])


def elastic_role(job: Job) -> Role:
    """The role whose number of replicas is shared."""
    if job.elastic is None:
        raise ValueError(f"job {job.key} has no role")
    return job.elastic


def between_runs(job: Job) -> bool:
    """Whether no run of it is under way: it waits, or what it needs to run is not on its nodes yet."""
    return job.facts.between and (not job.bound or job.unbound > 0)
