"""Places for what shares grant, on the trial: for jobs that start or are placed anew, and for those that grow.

The whole grant, else the largest legal part of it that fits. Places that are free now come before those that replicas
are still to leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from muster.core import reasons
from muster.core.granted import ALONE, comes, targets
from muster.core.holds import own_rows, placed
from muster.core.place import Need, Spot, place
from muster.core.room import Both, Room
from muster.core.table import elastic_role
from muster.core.trial import Trial, take_up
from muster.types import PRODUCT, BoolArray, Job, Role, Want


def start(trial: Trial, job: Job, target: int, want: Want, whole: bool) -> bool:
    """A start, or a job that is placed anew: the whole grant, else the largest legal part of it."""
    role = elastic_role(job)
    goal = targets(job, target, want, trial.result.holds.get(job.key, ()))
    others = [Need(r, goal[r.name]) for r in job.roles if r is not role]
    if whole or want.roles or job.key in trial.result.leaving:
        steps = [goal[role.name]]
    else:
        steps = [s for s in role.sizes or range(max(1, role.min), role.max + 1) if s <= goal[role.name]]
    for step in _descending(steps, trial.later_room() if trial.after else trial.room, role):
        found = _spots(trial, job, [Need(role, step), *others], want, {})
        if found is not None:
            spots, later = found
            take_up(trial, job, spots, later)
            if want is not ALONE:
                trial.result.wants[job.key] = want
            return step == goal[role.name]
    room = trial.after or trial.room
    if job.key not in trial.result.leaving:
        trial.result.statuses[job.key] = reasons.refusal(
            room, job, [Need(role, steps[0] if steps else role.min), *others], trial.profile, trial.snapshot
        )
    return False


def _descending(steps: Sequence[int], room: Room, role: Role) -> list[int]:
    """Steps from the largest down, without those that can't fit by count."""
    fits = room.total_fits(role.shape)
    return [s for s in reversed(steps) if s <= fits]


def grow(trial: Trial, job: Job, target: int, want: Want) -> bool:
    """More replicas for a job that runs: the whole step, else the largest part of it."""
    nodes = trial.snapshot.nodes
    if want is not ALONE:
        trial.result.wants[job.key] = want
    done = True
    for role in job.roles:
        holds = trial.result.holds.get(job.key, ())
        goal = targets(job, target, want, holds)[role.name]
        have = placed(role, holds) - sum(1 for r, _, _ in trial.result.leaving.get(job.key, ()) if r is role)
        if goal <= have:
            continue
        if not comes(job, trial.snapshot.now, trial.profile):  # only replicas that exist can start
            taken = {h.uid for h in holds}
            goal = min(goal, have + sum(1 for m in role.members if m.ready and m.uid not in taken))
        steps = [s for s in role.sizes or range(have + 1, goal + 1) if have < s <= goal]
        own = own_rows(nodes, job, holds)
        room = trial.after or trial.room
        fits = room.total_fits(role.shape)
        for step in [s for s in reversed(steps) if s - have <= fits]:
            found = _spots(trial, job, [Need(role, step - have)], want, own)
            if found is not None:
                take_up(trial, job, *found)
                done = done and step == goal
                break
        else:
            done = done and not steps
    return done


def _spots(
    trial: Trial, job: Job, needs: Sequence[Need], want: Want, own: Mapping[int, int]
) -> tuple[list[Spot], bool] | None:
    """Spots, and whether some of them come free only later; taken from the rooms. None where there are none."""
    if trial.after is None:
        spots = _spots_in(trial, trial.room, job, needs, want, own)
        return None if spots is None else (spots, False)
    moves = job.key in trial.result.leaving
    if not moves and not trial.settled:
        spots = _spots_in(trial, Both(trial.room, trial.after), job, needs, want, own)
        if spots is not None:
            return spots, False
    spots = _spots_in(trial, trial.after, job, needs, want, own)
    if spots is None:
        return None
    return spots, moves or not _free_now(trial.room, job, spots)


def _free_now(room: Room, job: Job, spots: Sequence[Spot]) -> bool:
    """Takes the spots in the room as it is, or nothing where one of them comes free only later."""
    shapes = {role.name: role.shape for role in job.roles}
    mark = room.mark()
    for role, row, count in spots:
        if int(room.fits(shapes[role])[row]) < count:
            room.undo(mark)
            return False
        room.take(row, shapes[role], count)
    return True


def _spots_in(
    trial: Trial, room: Room | Both, job: Job, needs: Sequence[Need], want: Want, own: Mapping[int, int]
) -> list[Spot] | None:
    allowed = _allowed(trial, room, needs, want, own)
    return place(room, job, needs, trial.profile, trial.snapshot, allowed=allowed, own=own)


def _allowed(
    trial: Trial, room: Room | Both, needs: Sequence[Need], want: Want, own: Mapping[int, int]
) -> BoolArray | None:
    """Nodes of the product, and at most so many of them: those that the job is on, then those with most room
    (of one node: the one with the least to spare that takes it whole)."""
    if not want.product and not want.max_nodes:
        return None
    nodes = trial.snapshot.nodes
    mask = np.ones(len(nodes), dtype=np.bool_)
    if want.product:
        ids, names = nodes.domains(PRODUCT)
        mask = ids == names.index(want.product) if want.product in names else np.zeros(len(nodes), np.bool_)
    if want.max_nodes:
        need = needs[0]
        fits = np.where(mask, room.fits(need.role.shape), 0)
        left = want.max_nodes - len(own)
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
