"""Places for what shares grant, on the trial: for jobs that start or are placed again, and for those that grow.

The whole grant, else the largest legal part of it that fits. Places that are free now come before those that replicas
are still to leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from muster.core.placement.capacity import AnyCapacity, Capacity, CapacityPair
from muster.core.placement.place import Assignment, Need, place
from muster.core.placement.reservations import members_expected, own_rows, placed
from muster.core.reasons import waiting
from muster.core.sharing.grants import ALONE, targets
from muster.core.sharing.job_table import elastic_role
from muster.core.sharing.statement import Statement, take_up
from muster.types import PRODUCT, BoolArray, Grant, Job, Role


def start_granted(statement: Statement, job: Job, target: int, grant: Grant, whole: bool) -> bool:
    """A start, or a job that is placed again: the whole grant, else the largest legal part of it."""
    role = elastic_role(job)
    goal = targets(job, target, grant, statement.result.reservations.get(job.key, ()))
    others = [Need(r, goal[r.name]) for r in job.roles if r is not role]
    if whole or grant.roles or job.key in statement.result.leaving:
        steps = [goal[role.name]]
    else:
        steps = [s for s in role.sizes or range(max(1, role.min), role.max + 1) if s <= goal[role.name]]
    for step in _descending(steps, statement.later_room() if statement.after else statement.capacity, role):
        found = _spots(statement, job, [Need(role, step), *others], grant, {})
        if found is not None:
            assignments, later = found
            take_up(statement, job, assignments, later)
            if grant is not ALONE:
                statement.result.grants[job.key] = grant
            return step == goal[role.name]
    capacity = statement.after or statement.capacity
    if job.key not in statement.result.leaving:
        statement.result.statuses[job.key] = waiting.refusal(
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
        statement.result.grants[job.key] = grant
    done = True
    for role in job.roles:
        reservations = statement.result.reservations.get(job.key, ())
        goal = targets(job, target, grant, reservations)[role.name]
        have = placed(role, reservations) - sum(
            1 for r, _, _ in statement.result.leaving.get(job.key, ()) if r is role
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
            found = _spots(statement, job, [Need(role, step - have)], grant, own)
            if found is not None:
                take_up(statement, job, *found)
                done = done and step == goal
                break
        else:
            done = done and not steps
    return done


def _spots(
    statement: Statement, job: Job, needs: Sequence[Need], grant: Grant, own: Mapping[int, int]
) -> tuple[list[Assignment], bool] | None:
    """Spots, and whether some of them come free only later; taken from the rooms. None where there are none."""
    found = _found(statement, job, needs, grant, own)
    guard = statement.guard
    if found is not None and guard is not None and job.key in guard.ahead:
        shapes = {need.role.name: need.role.shape for need in needs}
        for role, row, count in found[0]:
            guard.ceiling.take(row, shapes[role], count)
    return found


def _found(
    statement: Statement, job: Job, needs: Sequence[Need], grant: Grant, own: Mapping[int, int]
) -> tuple[list[Assignment], bool] | None:
    if statement.after is None:
        assignments = _spots_in(statement, statement.capacity, job, needs, grant, own)
        return None if assignments is None else (assignments, False)
    moves = job.key in statement.result.leaving
    if not moves and not statement.settled:
        assignments = _spots_in(
            statement, CapacityPair(statement.capacity, statement.after), job, needs, grant, own
        )
        if assignments is not None:
            return assignments, False
    assignments = _spots_in(statement, statement.after, job, needs, grant, own)
    if assignments is None:
        return None
    return assignments, moves or not _free_now(statement.capacity, job, assignments)


def _free_now(capacity: Capacity, job: Job, assignments: Sequence[Assignment]) -> bool:
    """Takes the spots in the room as it is, or nothing where one of them comes free only later."""
    shapes = {role.name: role.shape for role in job.roles}
    mark = capacity.mark()
    for role, row, count in assignments:
        if int(capacity.fits(shapes[role])[row]) < count:
            capacity.undo(mark)
            return False
        capacity.take(row, shapes[role], count)
    return True


def _spots_in(
    statement: Statement,
    space: AnyCapacity,
    job: Job,
    needs: Sequence[Need],
    grant: Grant,
    own: Mapping[int, int],
) -> list[Assignment] | None:
    capacity = statement.guarded(space, job)
    allowed = _allowed(statement, capacity, needs, grant, own)
    return place(capacity, job, needs, statement.profile, statement.snapshot, allowed=allowed, own=own)


def _allowed(
    statement: Statement, capacity: AnyCapacity, needs: Sequence[Need], grant: Grant, own: Mapping[int, int]
) -> BoolArray | None:
    """Nodes of the product, and at most so many of them: those that the job is on, then those with most room
    (of one node: the one with the least to spare that takes it whole)."""
    if not grant.product and not grant.max_nodes:
        return None
    nodes = statement.snapshot.nodes
    mask = np.ones(len(nodes), dtype=np.bool_)
    if grant.product:
        ids, names = nodes.domains(PRODUCT)
        mask = ids == names.index(grant.product) if grant.product in names else np.zeros(len(nodes), np.bool_)
    if grant.max_nodes:
        need = needs[0]
        fits = np.where(mask, capacity.fits(need.role.shape), 0)
        left = grant.max_nodes - len(own)
        chosen = np.zeros(len(nodes), dtype=np.bool_)
        chosen[list(own)] = True
        count = need.count - int(fits[chosen].sum())
        enough = np.flatnonzero(~chosen & (fits >= count))
        if count > 0 and left > 0:
            if len(enough):
                chosen[enough[np.argmin(fits[enough])]] = True
            else:
                chosen[np.argsort(np.where(chosen, -1, fits), kind="stable")[::-1][:left]] = True
        mask = mask & chosen
    return mask
