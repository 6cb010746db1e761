"""Objects of the API as the core reads them: nodes, pods, owners, quotas and budgets."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.types.holders import HolderRecord
from muster.types.values import NO_SHAPE, Owner, Reservation, Shape, Taint


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

    `pin` is the node named by a metadata.name matchField, as Muster adds it; `claimed` the node of one that Muster
    has not recorded (core.state.trust: the shape has it as any other wish); `refused_at` is the transition time of a
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
    claimed: str = ""
    nominated: str = ""
    shape: Shape = NO_SHAPE
    priority: int = 0
    controller: Owner | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    refused_at: float = 0.0
    refusal: str = ""
    deleting: bool = False
    foreign: bool = False  # HELD by other gates only, not by ours
    tracked: bool = False  # carries the Job controller's finalizer
    image: str = ""  # of its first container
    applied: bool = False  # somebody applies it server-side, so who wrote which field must be kept
    claims: tuple[str, ...] = ()  # names of its persistent volume claims
    affinity_terms: bytes = b""  # required node affinity as sent by the API (JSON list), for the patch
    carries: tuple[
        Reservation, ...
    ] = ()  # the placement of the start that began with it, where its gate is off
    holder: HolderRecord | None = None  # of a pod of Muster's own that holds a device
    beyond: str = (
        ""  # which of its requests is beyond what is believed (core.bounds), in words; cut to the bound
    )


@dataclass(frozen=True, slots=True)
class DeclaredRole:
    """What an owner declares of one of its roles.

    count: replicas that it wants to exist, those that have ended included; least: as few as it may run with, None =
    it does not say; done: how many have ended well, by its status. shape and notes (our annotations) are those of its
    pod template, for a role that has no pod yet. ours: the template's pods are Muster's to start; ordered: the owner
    makes them one after another, or only when those of another role run, are ready or have ended.
    """

    name: str
    count: int
    min: int | None = None
    done: int = 0
    ours: bool = True
    ordered: bool = False
    shape: Shape = NO_SHAPE
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """A workload that owns pods: its declared size and its own controller.

    `size` is the number of pods that it wants to exist at once, None where it can't be known. A Job also ends:
    `completions` is how many must succeed (None: a work queue, `queue`), `succeeded` how many have.
    `roles` are those of an owner that declares several (a PyTorchJob, a JobSet); of one that makes several gangs (a
    LeaderWorkerSet) they are one gang's, and `gangs` is how many it wants.
    `ordered` is true where it creates a pod only after the one before is ready (OrderedReady); `whole` where it
    ends only when every one of its replicas has run to its end (an Indexed Job without a successPolicy); `prefix` is
    how many of the lowest indexes its successPolicy needs. `fragile` says by role ("" = every one) in words what a
    replica that we end would do to the owner; `remade`, in words too, that it would make all of the job again, which
    hurts it no more than when all of it is ended; `optional` are roles without which it can end well.
    `suspended`: it wants no pods for now; `over`: how it has ended, in its own word. `named_after`: whom its job is
    named after, and belongs to, while the roles are its own (a JobSet's TrainJob); None: itself.
    """

    owner: Owner
    namespace: str
    size: int | None = None
    roles: tuple[DeclaredRole, ...] = ()
    gangs: int | None = None
    parent: Owner | None = None
    named_after: Owner | None = None
    created: float = 0.0  # Unix s, 0 = unknown
    ordered: bool = False
    completions: int | None = None
    queue: bool = False
    succeeded: int = 0
    whole: bool = False
    prefix: int = 0
    fragile: tuple[tuple[str, str], ...] = ()
    remade: str = ""
    optional: tuple[str, ...] = ()
    suspended: bool = False
    over: str = ""


class Quota(NamedTuple):
    """One limit of a ResourceQuota: its object, the quota's word, the resource that pods request, and counts."""

    name: str
    counts: str
    resource: str
    hard: int
    used: int


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
class Use:
    """What is really used, as metrics.k8s.io told it at `at` (s): cpu (millicores) and memory (bytes).

    nodes: by name, all that runs there; pods: by namespace and name. Whoever is not there was not measured.
    """

    at: float
    nodes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    pods: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
