"""What a share grants a job: replicas of each role, and whether those that do not exist yet are planned for."""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.placement.reservations import placed
from muster.types import Grant, Job, Reason, Reservation, State, Status, elastic_role

ALONE = Grant()


def targets(job: Job, target: int, grant: Grant, reservations: Sequence[Reservation]) -> dict[str, int]:
    """Replicas by role: the elastic role's share, and what is granted of the others (at least their minimum)."""
    elastic = elastic_role(job)
    result = {}
    for role in job.roles:
        if role is elastic:
            result[role.name] = grant.roles.get(role.name, target)
        else:
            result[role.name] = grant.roles.get(role.name, max(role.min, placed(role, reservations)))
        result[role.name] = max(role.min, min(role.max, result[role.name]))
    return result


def waits(why: str) -> Status:
    """A job whose share is 0."""
    return Status(
        State.WAITING, Reason.SHARE, why or "its share is 0: GPUs that would take it go to others first"
    )
