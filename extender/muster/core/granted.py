"""What a share grants a job: replicas of each role, and whether those that do not exist yet are planned for."""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.holds import placed
from muster.core.table import elastic_role
from muster.points import Profile
from muster.types import Code, Hold, Job, State, Status, Want

ALONE = Want()


def targets(job: Job, target: int, want: Want, holds: Sequence[Hold]) -> dict[str, int]:
    """Replicas by role: the elastic role's share, and what is granted of the others (at least their minimum)."""
    elastic = elastic_role(job)
    result = {}
    for role in job.roles:
        if role is elastic:
            result[role.name] = want.roles.get(role.name, target)
        else:
            result[role.name] = want.roles.get(role.name, max(role.min, placed(role, holds)))
        result[role.name] = max(role.min, min(role.max, result[role.name]))
    return result


def comes(job: Job, now: float, profile: Profile) -> bool:
    """Whether replicas that do not exist yet may be planned for: their owner makes them, and has not stopped to."""
    return job.expects and (job.coming or now - job.newest_pod < profile.owner_pause)


def waits(why: str) -> Status:
    """A job whose share is 0."""
    return Status(State.WAITING, Code.SHARE, why or "its share is 0: others gain more from the GPUs")
