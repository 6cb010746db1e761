"""A plan in the making: what the steps of one cycle pass to each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.core.placement.capacity import Capacity
from muster.core.progress.eta import length
from muster.core.progress.runtime import left
from muster.points import Estimation, Profile
from muster.types import (
    EndReason,
    Grant,
    Job,
    JobKey,
    Plan,
    Reservation,
    Shrink,
    Snapshot,
    State,
    Status,
    Unpin,
)


@dataclass(frozen=True)
class HeadReservation:
    """What is kept for the head of the queue (`core.placement.backfill`). ceiling: capacity at its reserved start
    (`until`), less the head; ahead: jobs that come before it in the queue, which it does not keep from anything;
    estimate: what is believed of a job, where a time is known."""

    ceiling: Capacity
    until: float = math.inf
    ahead: frozenset[JobKey] = frozenset()
    estimate: Callable[[Job], Estimation] | None = None

    def passes(self, job: Job, now: float) -> bool:
        """Whether it ends before the head starts. Only one that has reported is estimated: nearly none that wait."""
        if self.estimate is not None and job.report is not None:
            after = length(job, self.estimate(job), now)
        else:
            after = left(job, now)
        return after is not None and now + after <= self.until


@dataclass
class CycleState:
    """What the steps of one cycle pass to each other: each writes what it decides here, once."""

    snapshot: Snapshot
    profile: Profile
    capacity: Capacity
    reservations: dict[JobKey, tuple[Reservation, ...]] = field(default_factory=dict)
    statuses: dict[JobKey, Status] = field(default_factory=dict)
    unpins: list[Unpin] = field(default_factory=list)
    stuck: dict[JobKey, Status] = field(default_factory=dict)  # pinned where they can't run, not ours to end
    back: dict[JobKey, str] = field(default_factory=dict)
    preempted: dict[JobKey, str] = field(default_factory=dict)
    ends: dict[JobKey, EndReason] = field(default_factory=dict)  # of both
    short: list[Job] = field(default_factory=list)  # started, miss more than is free
    requeue_at: list[float] = field(default_factory=list)
    refused: dict[tuple[object, ...], Status] = field(default_factory=dict)
    shrinks: tuple[Shrink, ...] = ()
    later: Mapping[JobKey, tuple[Reservation, ...]] = field(default_factory=dict)
    grants: Mapping[JobKey, Grant] = field(default_factory=dict)
    shares: Mapping[JobKey, int] = field(default_factory=dict)  # of the jobs whose size a policy decides
    whys: Mapping[JobKey, str] = field(default_factory=dict)
    shared: bool = False  # shares were computed in this cycle, not only kept
    head: JobKey | None = None  # the first job that does not fit: only it is reserved for
    reserved: HeadReservation | None = None  # what is kept for it
    blocked: bool = False  # strict order: the head waits, so does everybody
    plugin_errors: list[str] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)  # what Share plugins raised
    at: JobKey | None = None  # the job at hand, for whoever asks over which one a step raised

    def plan(self, queue: Sequence[Job], memory: Mapping[JobKey, Mapping[str, object]]) -> Plan:
        """What the cycle decided, frozen. queue: jobs that waited, first first; memory: what plugins observed."""
        now = self.snapshot.now
        return Plan(
            order=tuple([job.key for job in queue if self.statuses[job.key].state is State.WAITING]),
            reservations=self.reservations,
            statuses=self.statuses,
            unpins=tuple(self.unpins),
            back=self.back,
            preempted=self.preempted,
            ends=self.ends,
            requeue_at=min((w for w in self.requeue_at if w > now), default=None),
            plugin_errors=(*self.plugin_errors, *sorted(self.capacity.plugin_errors)),
            failed=tuple(self.failed),
            shrinks=self.shrinks,
            later=self.later,
            grants=self.grants,
            shares=self.shares,
            whys=self.whys,
            shared=self.shared,
            memory=memory,
        )


class StumbledError(Exception):
    """A cycle raised. cause: what; at: over which job, None where all were looked at."""

    def __init__(self, cause: Exception, at: JobKey | None) -> None:
        super().__init__(f"{cause!r} at {at or 'no job in particular'}")
        self.cause, self.at = cause, at
