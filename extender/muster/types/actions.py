"""What is to be done, as a closed union."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.types.status import EndReason, Turn
from muster.types.values import JobKey, NodeBackoff, Owner, Reservation, Shape


@dataclass(frozen=True, slots=True)
class Ungate:
    """Take the gate off, and pin to `node` where `pin` is true (one PATCH).

    `carries`: the placement of the whole start, written on this pod with the same PATCH; it is the start's first.
    `batch`: the global batch size that the job is told, written on the pod, 0 = none.
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
    carries: tuple[Reservation, ...] = ()
    batch: int = 0


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

    reason: for machines, written on the pod before it is evicted; cause: in words.
    tracked: it carries the Job controller's finalizer, which goes off first. by_job: a Job counts it, so that
    finalizer must be on where the pod stays after all.
    """

    job: JobKey
    uid: str
    pod: str
    version: str
    tracked: bool
    reason: EndReason
    cause: str
    by_job: bool = False


@dataclass(frozen=True, slots=True)
class RestoreFinalizer:
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
    declared_by: Owner | None = None  # who declares its roles, where that is not its owner
    reservations: tuple[Reservation, ...] = ()
    sizes: tuple[tuple[str, int, int], ...] = ()  # role, min, max, as the status has them
    node_backoffs: frozenset[NodeBackoff] = frozenset()  # likewise
    asked: float = 0.0  # likewise
    silent: float = 0.0  # likewise
    granted: int | None = None  # likewise, of a job in place: GPUs
    turn: Turn | None = None  # likewise
    observed: tuple[object, ...] = ()  # likewise: facts, track, memory, want, restart_on
    leaves_whole: frozenset[str] = frozenset()  # uids of all of it, which is about to be ended to start again
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
class CreateProvisioningRequest:
    """Ask an autoscaler for nodes for a job's minimum: sets are role, replicas and what one asks for."""

    job: JobKey
    name: str
    gang: str
    gang_uid: str
    provisioning_class: str
    sets: tuple[tuple[str, int, Shape], ...]
    cause: str


@dataclass(frozen=True, slots=True)
class DeleteProvisioningRequest:
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
class RecordEvent:
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
    | RestoreFinalizer
    | WriteGang
    | DeleteGang
    | CreateProvisioningRequest
    | DeleteProvisioningRequest
    | Expose
    | RecordEvent
    | WriteLearned
)
