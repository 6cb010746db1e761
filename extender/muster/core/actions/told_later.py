"""What a Gang tells later than it could: what may be over before it is told, and what is new each second."""

from __future__ import annotations

import math
import zlib

from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.types import Reason, State, Status

BRIEF = 5.0
"""Seconds after which a start that is recorded on its first pod, and a change of the GPUs that a job uses in place,
are told in the Gang, too, where they are not complete by then: nearly every Gang goes from Waiting to Running, and
from one number of GPUs to another, by one write."""

KEPT_EVERY, SPREAD = 60.0, 0.25
"""Seconds between two writes of a Gang of which only progress, speeds, a plugin's memory or its share's reason are
new, and by what part of that it is sooner for some: of a thousand jobs that started together, or whose reason changed
with one of them, the Gangs are not all written at once."""


TOGETHER = 5.0
"""Seconds of whose multiples one is when such a write makes a cycle: that has those of many Gangs, and there is not
one each second for a few of them."""


def starts_at_once(state: LedgerState, job_state: JobState, status: Status, now: float) -> bool:
    """Whether a start that its first pod carries is so young that it may be over before it could be told."""
    until = job_state.recorded.carried_at + BRIEF
    if not job_state.carried or status.reason is not Reason.BINDING or now >= until:
        return False
    state.requeue_at.add(until)
    return True


def changes_at_once(state: LedgerState, job_state: JobState, status: Status, now: float) -> bool:
    """Whether a job that runs in place is on its way to another number of GPUs for so short that it may be there
    before that could be told."""
    if not job_state.recorded.told[0] == status.state == State.RUNNING:
        return False
    changing = state.in_place.changing.get(job_state.key) if state.in_place is not None else None
    if changing is None or now >= changing + BRIEF:
        return False
    state.again(job_state.key, changing + BRIEF)
    return True


def kept_for(job_state: JobState) -> float:
    """KEPT_EVERY of this job, s."""
    key = job_state.key
    return KEPT_EVERY * (1.0 - SPREAD * zlib.crc32(f"{key.namespace}/{key.name}".encode()) / 2**32)


def kept_until(job_state: JobState) -> float:
    """When what was written of it last is looked at again, Unix s."""
    return math.ceil((job_state.recorded.observed_at + kept_for(job_state)) / TOGETHER) * TOGETHER
