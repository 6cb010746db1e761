"""Places for what shares grant, on the trial: for jobs that start or are placed again, and for those that grow.

The whole grant, else the largest legal part of it that fits. Places that are free now come before those that replicas
are still to leave.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.placement.place import Need
from muster.core.placement.reservations import members_expected, placed
from muster.core.placement.statement import Statement
from muster.core.placement.take_up import find_largest, grow, sizes_between, take_up
from muster.core.reasons import refusals
from muster.core.sharing.grants import ALONE, targets
from muster.types import Grant, Job, elastic_role


def start_granted(
    statement: Statement, job: Job, target: int, grant: Grant, whole: bool, parts: Sequence[int] = ()
) -> bool:
    """A start, or a job that is placed again: the whole grant, else the largest legal part of it, of `parts` where
    there are any."""
    role = elastic_role(job)
    goal = targets(job, target, grant, statement.reservations.get(job.key, ()))
    others = [Need(r, goal[r.name]) for r in job.roles if r is not role]
    if whole or grant.roles or job.key in statement.leaving:
        steps = [goal[role.name]]
    else:
        sizes = role.sizes or range(max(1, role.min), role.max + 1)
        steps = _of([s for s in sizes if s <= goal[role.name]], parts, goal[role.name])
    capacity = statement.after or statement.capacity
    fits = capacity.total_fits(role.shape)
    found = find_largest(
        statement, job, [[Need(role, step), *others] for step in steps if step <= fits], grant, {}
    )
    if found is not None:
        if grant is not ALONE:
            statement.grants[job.key] = grant
        take_up(statement, job, *found[1])
        return steps[found[0]] == goal[role.name]
    if job.key not in statement.leaving:
        statement.statuses[job.key] = refusals.refusal(
            capacity,
            job,
            [Need(role, steps[0] if steps else role.min), *others],
            statement.profile,
            statement.snapshot,
        )
    return False


def grow_granted(
    statement: Statement, job: Job, target: int, grant: Grant, parts: Sequence[int] = ()
) -> bool:
    """More replicas for a job that runs: the whole step, else the largest part of it, of `parts` where there are any.
    Asked again in the same cycle, what it was given in places that come free later counts."""
    if grant is not ALONE:
        statement.grants[job.key] = grant
    done = True
    for role in job.roles:
        reservations = statement.reservations.get(job.key, ())
        goal = targets(job, target, grant, reservations)[role.name]
        coming = sum(1 for hold in statement.later.get(job.key, ()) if hold.role == role.name)
        leaving = sum(1 for r, _, _ in statement.leaving.get(job.key, ()) if r is role)
        have = placed(role, reservations) - leaving + coming
        if goal <= have:
            continue
        granted = goal
        if not members_expected(
            job, statement.snapshot.now, statement.profile
        ):  # only replicas that exist can start
            taken = {h.uid for h in reservations}
            ready = sum(1 for m in role.members if m.ready and m.uid not in taken)
            goal = min(goal, have - coming + ready)
        sizes = sizes_between(role, have, goal)
        if role is job.elastic:
            sizes = _of(sizes, parts, granted)
        if sizes:
            done = grow(statement, job, role, have, sizes, grant) == goal and done
    return done


def _of(sizes: list[int], parts: Sequence[int], granted: int) -> list[int]:
    """Those of the sizes that may be had: the whole of what is granted, or one of `parts` where there are any."""
    return [size for size in sizes if size in parts or size == granted] if parts else sizes
