"""Places for what shares grant, on the trial: for jobs that start or are placed again, and for those that grow.

The whole grant, else the largest legal part of it that fits. Places that are free now come before those that replicas
are still to leave.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Need
from muster.core.placement.reservations import members_expected, own_rows, placed
from muster.core.placement.statement import Statement
from muster.core.placement.take_up import find, take_up
from muster.core.reasons import waiting
from muster.core.sharing.grants import ALONE, targets
from muster.types import Grant, Job, Role, elastic_role


def start_granted(statement: Statement, job: Job, target: int, grant: Grant, whole: bool) -> bool:
    """A start, or a job that is placed again: the whole grant, else the largest legal part of it."""
    role = elastic_role(job)
    goal = targets(job, target, grant, statement.reservations.get(job.key, ()))
    others = [Need(r, goal[r.name]) for r in job.roles if r is not role]
    if whole or grant.roles or job.key in statement.leaving:
        steps = [goal[role.name]]
    else:
        steps = [s for s in role.sizes or range(max(1, role.min), role.max + 1) if s <= goal[role.name]]
    for step in _descending(steps, statement.later_room() if statement.after else statement.capacity, role):
        found = find(statement, job, [Need(role, step), *others], grant, {})
        if found is not None:
            assignments, later = found
            take_up(statement, job, assignments, later)
            if grant is not ALONE:
                statement.grants[job.key] = grant
            return step == goal[role.name]
    capacity = statement.after or statement.capacity
    if job.key not in statement.leaving:
        statement.statuses[job.key] = waiting.refusal(
            capacity,
            job,
            [Need(role, steps[0] if steps else role.min), *others],
            statement.profile,
            statement.snapshot,
        )
    return False


def _descending(steps: Sequence[int], capacity: Capacity, role: Role) -> list[int]:
    """Steps from the largest down, without those that can't fit by count."""
    fits = capacity.total_fits(role.shape)
    return [s for s in reversed(steps) if s <= fits]


def grow_granted(statement: Statement, job: Job, target: int, grant: Grant) -> bool:
    """More replicas for a job that runs: the whole step, else the largest part of it."""
    nodes = statement.snapshot.nodes
    if grant is not ALONE:
        statement.grants[job.key] = grant
    done = True
    for role in job.roles:
        reservations = statement.reservations.get(job.key, ())
        goal = targets(job, target, grant, reservations)[role.name]
        have = placed(role, reservations) - sum(
            1 for r, _, _ in statement.leaving.get(job.key, ()) if r is role
        )
        if goal <= have:
            continue
        if not members_expected(
            job, statement.snapshot.now, statement.profile
        ):  # only replicas that exist can start
            taken = {h.uid for h in reservations}
            goal = min(goal, have + sum(1 for m in role.members if m.ready and m.uid not in taken))
        steps = [s for s in role.sizes or range(have + 1, goal + 1) if have < s <= goal]
        own = own_rows(nodes, job, reservations)
        capacity = statement.after or statement.capacity
        fits = capacity.total_fits(role.shape)
        for step in [s for s in reversed(steps) if s - have <= fits]:
            found = find(statement, job, [Need(role, step - have)], grant, own)
            if found is not None:
                take_up(statement, job, *found)
                done = done and step == goal
                break
        else:
            done = done and not steps
    return done
