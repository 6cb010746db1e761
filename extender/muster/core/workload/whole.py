"""What a gang was whole with, and what it still waits for.

*Once whole.* A start needs the minimum that its owner declared when it began, whatever is declared while it is under
way. A job is whole when every replica of its minimum is bound, in every role. From then on its minimum is the one
that it was whole with: replicas that its owner declares beyond it, and roles that come later, are room to grow
(`Role.grows`). When these are bound, too, it is whole with more. Where the owner declares less, that is the minimum;
a job that ends, or whose owner wants none of it any more, starts like a new one. What it was whole with stands in its
Gang, so neither a restart nor another leader forgets it.

*The clock.* A started job below its minimum goes back to the gate after `gang.timeout`, whole. That clock runs only
while a replica that exists waits for Muster or kube-scheduler, or while nobody will create the one that is missing.
It stands while what is missing is its owner's to create, and while its owner replaces the replicas of a gang that was
whole by those of another template. Nothing healthy is ended for that, however long it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from muster.types import Job, Phase, Role

Whole = Mapping[str, int]
"""By role, the minimum that a job was whole with."""

OPEN = (Phase.GATED, Phase.UNGATED)


def minimum(declared: int, role: str, whole: Whole | None) -> int:
    """The replicas that a role needs, of those that its owner declares as its minimum now."""
    return declared if whole is None else min(declared, whole.get(role, 0))


def whole_with(before: Whole | None, job: Job) -> Whole | None:
    """What the job was whole with, by what is bound now; `before` itself where that is the same."""
    if before is None and (job.unbound or not job.bound):
        return None  # nearly every job of a long queue
    declared = {role.name: role.min + role.grows for role in job.roles}
    if not any(declared.values()):
        return before
    if before is None:
        grown = all(role.bound >= declared[role.name] for role in job.roles)
        return declared if grown else {role.name: role.min for role in job.roles}
    if all(role.bound >= declared[role.name] for role in job.roles):
        now = declared
    else:
        now = {role: min(count, declared[role]) for role, count in before.items() if role in declared}
    if not job.expects:  # an owner that is not known at this moment has not scaled down
        now = {**before, **{role: count for role, count in now.items() if count > before.get(role, 0)}}
    return before if before == now else now


def awaited(job: Job) -> int:
    """Replicas of its minimum that are not bound and that are not its owner's affair."""
    return sum(
        0
        if job.once_whole and rolls_out(role)
        else min(_short(role), _open(role))
        if job.expects
        else _short(role)
        for role in job.roles
    )


def rolls_out(role: Role) -> bool:
    """Whether its owner is replacing its replicas by those of another template: it takes away what ran by itself."""
    versions: dict[str, str] = {}
    return any(
        versions.setdefault(of, version) != version
        for of, version in (member.revision for member in role.members)
        if version
    )


def to_come(job: Job) -> int:
    """Replicas of its minimum that its owner is to create."""
    return sum(max(0, _short(role) - _open(role) - role.held) for role in job.roles if not role.devices)


def _short(role: Role) -> int:
    return max(0, role.min - role.bound)


def _open(role: Role) -> int:
    return sum(1 for member in role.members if member.phase in OPEN)


class Clock(NamedTuple):
    """Of a job below its minimum: running since (Unix s, 0 = it stands), what it had run before that (s), and the
    most replicas of the minimum that existed meanwhile."""

    since: float = 0.0
    spent: float = 0.0
    members: int = 0


STILL = Clock()


def turned(clock: Clock, job: Job, now: float) -> Clock:
    """The clock of a job that is below its minimum. An owner that creates its pods one after another has its time for
    each: it begins again with a replica more than there ever were, and once all that there ever were are bound, but
    not with one that replaces another while it is still owed."""
    members = sum(min(role.min, len(role.members)) for role in job.roles)
    bound = sum(min(role.min, role.bound) for role in job.roles)
    runs = awaited(job) > 0
    if members > clock.members:
        return Clock(now if runs else 0.0, 0.0, members)
    if not runs and bound >= clock.members:
        return Clock(members=clock.members)
    if runs and not clock.since:
        return clock._replace(since=now - clock.spent)
    if not runs and clock.since:
        return clock._replace(since=0.0, spent=now - clock.since)
    return clock
