"""A plan in the making: what the steps of one cycle pass to each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from muster.core.placement.capacity import Capacity
from muster.points import Profile
from muster.types import EndReason, JobKey, Reservation, Snapshot, Status, Unpin


@dataclass
class CycleState:
    """What the steps of one cycle pass to each other."""

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
    requeue_at: list[float] = field(default_factory=list)
    refused: dict[tuple[object, ...], Status] = field(default_factory=dict)
    ceiling: Capacity | None = None  # capacity at the head's reserved start, less the head
    until: float = math.inf  # the head's reserved start
    head: JobKey | None = None  # the first job that does not fit: only it is reserved for
    blocked: bool = False  # strict order: the head waits, so does everybody
    plugin_errors: list[str] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)  # what Share plugins raised
    at: JobKey | None = None  # the job at hand, for whoever asks over which one a step raised


class StumbledError(Exception):
    """A cycle raised. cause: what; at: over which job, None where all were looked at."""

    def __init__(self, cause: Exception, at: JobKey | None) -> None:
        super().__init__(f"{cause!r} at {at or 'no job in particular'}")
        self.cause, self.at = cause, at
