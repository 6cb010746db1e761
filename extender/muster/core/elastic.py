"""Carrying out shares on nodes: shrink, then start and grow, on a trial that can be given back (design §3).

A place that is free now is taken at once (a hold); one that comes free only when replicas have left is named in
`later`: the live cluster plans it anew when the capacity is there, the simulator, where leaving takes no time, takes
it in the same instant. What was shrunk for a job that then finds no place is given back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.core.beside import put_beside
from muster.core.granted import ALONE, waits
from muster.core.grow import grow, start
from muster.core.holds import placed
from muster.core.place import Need, place
from muster.core.room import Room
from muster.core.shrink import leave_all, leave_to_move, leave_whole, must_move, shrink
from muster.core.trial import Elastic, Trial, take_up, without_gpus
from muster.core.whys import discreet
from muster.points import Profile
from muster.types import Hold, Job, JobKey, Move, Phase, Shares, Snapshot, Want


def carry_out(
    snapshot: Snapshot,
    profile: Profile,
    room: Room,
    holds: dict[JobKey, tuple[Hold, ...]],
    order: Sequence[Job],
    shares: Shares,
    moves: Sequence[Move] = (),
) -> Elastic:
    """Places for `shares` (rows of snapshot.table) of the jobs in `order`; `room` is left with all holds taken."""
    result = Elastic(holds)
    trial = Trial(snapshot, profile, room, result, settled=shares.settled)
    table = snapshot.table
    jobs = [(job, table.row[job.key]) for job in order if job.key in table.row]
    if shares.order:
        place_of = {row: place for place, row in enumerate(shares.order)}
        jobs.sort(key=lambda pair: place_of.get(pair[1], len(place_of)))
    granted = {job.key: int(shares.replicas[row]) for job, row in jobs}
    wants = {job.key: shares.wants.get(row, ALONE) for job, row in jobs}
    why = {job.key: discreet(shares.why.get(row, ""), job.key.namespace, table) for job, row in jobs}
    # shrink: whole jobs, jobs that are placed anew, single replicas
    starts: list[Job] = []
    grows: list[Job] = []
    sharing: list[Job] = []
    for job, _ in jobs:
        want = wants[job.key]
        running = job.started or bool(holds.get(job.key))
        if not running:
            if granted[job.key]:
                (sharing if want.beside else starts).append(job)
            else:
                result.statuses[job.key] = waits(why[job.key])
        elif not granted[job.key]:
            leave_whole(trial, job, why[job.key] or "its share is 0")
        elif want.beside is not None and trial.partner.get(job.key) == want.beside:
            result.wants[job.key] = want
        elif must_move(trial, job, want, granted[job.key]):
            leave_to_move(trial, job, "it is placed anew")
            (sharing if want.beside else starts).append(job)
        elif _stays(job, holds.get(job.key, ()), granted[job.key], want):
            if want is not ALONE:
                result.wants[job.key] = want
        else:
            shrink(trial, job, granted[job.key], want, why[job.key])
            grows.append(job)
    # start, then grow, then those that share another's GPUs
    failed = [job for job in starts if not start(trial, job, granted[job.key], wants[job.key], shares.whole)]
    failed += [job for job in grows if not grow(trial, job, granted[job.key], wants[job.key])]
    failed += [job for job in sharing if not put_beside(trial, job, wants[job.key])]
    # rebalance: what a plugin moves, if it finds its place
    for move in moves:
        _place_elsewhere(trial, move)
    _give_back(trial, starts + sharing, failed=bool(failed))
    # what found no place anew for all that it is granted takes what there is where it runs
    for job in failed if not shares.whole else ():
        want = wants[job.key]
        back = job.started and job.key not in result.leaving and job.key not in result.whole
        if back and job.key not in trial.found and want.beside is None and not want.anew and not job.resize:
            grow(trial, job, granted[job.key], want)
    _keep_for_later(trial)
    return result


def _stays(job: Job, holds: Sequence[Hold], target: int, want: Want) -> bool:
    """Nothing to shrink or grow: what most running jobs are in most cycles."""
    return len(job.roles) == 1 and not want.roles and placed(job.roles[0], holds) == target


def _give_back(trial: Trial, anew: Sequence[Job], *, failed: bool) -> None:
    """What was shrunk for nothing stays, as far as its places are still free; a job that was to be placed anew, found
    no place and can't stay goes back whole. failed: some job did not get all that it is granted."""
    result = trial.result
    if failed:
        for key in list(result.leaving):
            if key not in result.later and key not in trial.found:
                trial.return_(trial.snapshot.jobs[key])
    for job in anew:
        if job.key not in result.leaving or job.key in result.later or job.key in trial.found:
            continue
        if not trial.return_(job):
            result.whole[job.key] = "no place for it as it is to run"


def _keep_for_later(trial: Trial) -> None:
    """What is free already of places that others leave is nobody else's in this cycle."""
    snapshot, result = trial.snapshot, trial.result
    for key, places in result.later.items():
        shapes = {role.name: role.shape for role in snapshot.jobs[key].roles}
        beside = result.wants.get(key, ALONE).beside is not None
        for hold in places:
            shape = shapes[hold.role]
            trial.room.take(snapshot.nodes.index[hold.node], without_gpus(shape) if beside else shape)


def _place_elsewhere(trial: Trial, move: Move) -> None:
    """A running job, or a role of it, somewhere else; nothing changes if it finds no place."""
    job = trial.snapshot.jobs.get(move.job)
    if job is None or not job.started or job.keeps or job.key in trial.result.leaving:
        return
    if job.key in trial.result.whole:
        return
    if not all(m.evictable for role in job.roles for m in role.members if m.phase is Phase.BOUND):
        return
    nodes = trial.snapshot.nodes
    after = trial.later_room()
    mark = after.mark()
    roles = [role for role in job.roles if not move.role or role.name == move.role]
    leave_all(trial, job, roles, move.why or "it is moved")
    needs = [Need(role, role.bound) for role in roles if role.bound]
    allowed = None
    if move.to:
        allowed = np.isin(np.arange(len(nodes)), [nodes.index[n] for n in move.to if n in nodes.index])
    spots = place(after, job, needs, trial.profile, trial.snapshot, allowed=allowed)
    if spots is None:
        after.undo(mark)
        trial.result.leaving.pop(job.key, None)
        return
    take_up(trial, job, spots, later=True)
