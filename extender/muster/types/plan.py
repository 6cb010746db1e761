"""What plugins answer and what a cycle decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from muster.types.grant import Grant
from muster.types.status import EndReason, Reason, Status
from muster.types.values import IntArray, JobKey, Reservation


@dataclass(frozen=True)
class Grants:
    """What jobs are granted, aligned with the rows of the snapshot's table.

    replicas: (J,) int64, 0 = it waits (of a job of several roles: of its elastic role, see `Table`).
    details: by row, for jobs that are granted more than a number; the max_nodes of one that waits holds where it
    starts on GPUs that nobody uses. why: by row, one sentence for the owner. whole: a grant that finds no place whole
    is not placed at all (rigid policies); else the largest part that does is.
    order: rows in the order in which places are given (jobs that start or are placed again); empty = the queue's.
    settled: places are chosen as if all that leaves were gone; else one that is free at once is preferred.
    until: by row, the time before which a job that waits starts with no less than it is granted, also on GPUs that
    nobody uses; its plugin wakes for it. With rounds it holds in a cycle that decides one.
    parts: by row, the sizes of which one is taken where the whole grant finds no place; of other rows any legal one.
    """

    replicas: IntArray
    details: Mapping[int, Grant] = field(default_factory=dict)
    why: Mapping[int, str] = field(default_factory=dict)
    whole: bool = False
    order: tuple[int, ...] = ()
    settled: bool = False
    until: Mapping[int, float] = field(default_factory=dict)
    parts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Move:
    """A running job (or a role of it) to be placed again: `to` are node names, one a replica; empty = the core
    chooses. replicas: so many of its elastic role are to find room there, 0: as many as run. gain and cost in
    seconds, for the words."""

    job: JobKey
    role: str = ""
    to: tuple[str, ...] = ()
    replicas: int = 0
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
    reason: EndReason = EndReason.SHARE


@dataclass(frozen=True, slots=True)
class Unpin:
    """Undo a pin on evidence: the pod goes back to the gate, its node is left out for a while.

    ends: false for a pod that nobody makes again: it stays, and only gives its place back.
    """

    job: JobKey
    role: str
    uid: str
    pod: str
    node: str
    why: str
    ends: bool = True


@dataclass(frozen=True)
class Plan:
    """What one cycle decided.

    order: waiting jobs, first first; holds: the whole placement (of replicas not bound yet) for each job
    that has one; statuses: one for each job; undo: pins to be undone; back: jobs that go back to the gate since
    their start did not complete or they lost replicas; preempted: jobs that go back whole for one of higher priority,
    or since their share is 0, with why; ends: the machine's word for each of both.
    """

    order: tuple[JobKey, ...] = ()
    reservations: Mapping[JobKey, tuple[Reservation, ...]] = field(default_factory=dict)
    statuses: Mapping[JobKey, Status] = field(default_factory=dict)
    unpins: tuple[Unpin, ...] = ()
    back: Mapping[JobKey, str] = field(default_factory=dict)
    preempted: Mapping[JobKey, str] = field(default_factory=dict)
    ends: Mapping[JobKey, EndReason] = field(default_factory=dict)
    requeue_at: float | None = None
    plugin_errors: tuple[str, ...] = ()
    failed: tuple[Exception, ...] = ()  # what Share plugins raised, that were left out
    shrinks: tuple[Shrink, ...] = ()
    later: Mapping[JobKey, tuple[Reservation, ...]] = field(default_factory=dict)
    grants: Mapping[JobKey, Grant] = field(default_factory=dict)
    shares: Mapping[JobKey, int] = field(default_factory=dict)
    whys: Mapping[JobKey, str] = field(default_factory=dict)  # why a job has this share, for its owner
    shared: bool = False  # shares were computed in this cycle, not only kept
    memory: Mapping[JobKey, Mapping[str, object]] = field(default_factory=dict)

    @cached_property
    def positions(self) -> Mapping[JobKey, int]:
        """Place in the queue of each job that waits, from 1; one that can never fit has none."""
        could = (key for key in self.order if self.statuses[key].reason is not Reason.NEVER_FITS)
        return {key: place for place, key in enumerate(could, start=1)}
