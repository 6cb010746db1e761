"""What drivers tell the Ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.types.actions import Action
from muster.types.job import Report
from muster.types.kube import Budget, NodeRecord, OwnerRecord, PodRecord, Quota, Use
from muster.types.records import GangRecord
from muster.types.status import Turn
from muster.types.values import JobKey


@dataclass(frozen=True, slots=True)
class NodeSeen:
    node: NodeRecord


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """new: the pod was created this moment, so what it has was not written by a leader of ours."""

    pod: PodRecord
    new: bool = False


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
class NamespaceSeen:
    """A namespace as it is now; watched only where labels decide which ones have opted in."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    name: str


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A persistent volume claim was read; anywhere: it is bound to a volume that any node can use; missing: there is
    none of that name."""

    namespace: str
    name: str
    anywhere: bool
    missing: bool = False


@dataclass(frozen=True, slots=True)
class QuotasSeen:
    """The ResourceQuotas of a namespace were read; refused: they may not be, and nobody knows what they say."""

    namespace: str
    quotas: tuple[Quota, ...]
    refused: bool = False


@dataclass(frozen=True, slots=True)
class BudgetsSeen:
    """The PodDisruptionBudgets of a namespace were read."""

    namespace: str
    budgets: tuple[Budget, ...]


@dataclass(frozen=True, slots=True)
class UseSeen:
    """What nodes and pods use was read. No reason for a cycle: whoever weighs nodes by it does so in the next one."""

    use: Use


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object as it is now can't be decoded, or what was read of it can't.

    what: its resource, namespace and name, in words; gone: the event that would tell its end, which names it (None:
    it is none that ends); pod: as much of a pod as says whose it is and where.
    """

    what: str
    namespace: str
    error: Exception
    gone: Gone | None = None
    pod: PodRecord | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """A pod of ours, known by its token, told how training goes; `at` is the server's clock, never the pod's."""

    uid: str
    report: Report


@dataclass(frozen=True, slots=True)
class LearnedSeen:
    """What earlier jobs taught was read: JSON values as `core.progress.learned.Lessons.plain` wrote them."""

    lessons: object


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action: status is the HTTP status, 0 for no answer, -1 for not sent. after: seconds that the
    server asks to wait before the next try."""

    action: Action
    status: int
    message: str = ""
    after: float = 0.0


Gone = NodeGone | PodGone | OwnerGone | GangGone | GroupSeen | NamespaceGone
"""What tells that an object is gone, and so names it (of a PodGroup: a minimum of 0)."""


@dataclass(frozen=True, slots=True)
class TurnsSeen:
    """The queue played forward for its first jobs: who has what each needs, and when it is expected to start. Their
    positions, and what fits, are the next plan's."""

    turns: Mapping[JobKey, Turn]


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
    | NamespaceSeen
    | NamespaceGone
    | ClaimSeen
    | QuotasSeen
    | BudgetsSeen
    | UseSeen
    | Unreadable
    | Reported
    | LearnedSeen
    | TurnsSeen
    | Outcome
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something raised that was to raise nothing: for the log and the counter of whoever drives the core.

    stage: what was done (core.state.quarantine); subject: the job or object, "" = none in particular; again: as last
    time.
    """

    stage: str
    subject: str
    error: Exception
    again: bool = False
