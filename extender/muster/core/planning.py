"""A plan in the making: what the steps of one cycle pass to each other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from muster.core.room import Room
from muster.points import Profile
from muster.types import Hold, JobKey, Snapshot, Status, Undo


@dataclass
class Planning:
    """What the steps of one cycle pass to each other."""

    snapshot: Snapshot
    profile: Profile
    room: Room
    holds: dict[JobKey, tuple[Hold, ...]] = field(default_factory=dict)
    statuses: dict[JobKey, Status] = field(default_factory=dict)
    undo: list[Undo] = field(default_factory=list)
    stuck: dict[JobKey, Status] = field(default_factory=dict)  # pinned where they can't run, not ours to end
    back: dict[JobKey, str] = field(default_factory=dict)
    preempted: dict[JobKey, str] = field(default_factory=dict)
    wakes: list[float] = field(default_factory=list)
    refused: dict[tuple[object, ...], Status] = field(default_factory=dict)
    ceiling: Room | None = None  # capacity at the head's reserved start, less the head
    until: float = math.inf  # the head's reserved start
    head: JobKey | None = None  # the first job that does not fit: only it is reserved for
    blocked: bool = False  # strict order: the head waits, so does everybody
    complaints: list[str] = field(default_factory=list)
