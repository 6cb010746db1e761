"""Carrying out shares on nodes: shrink, then start and grow, on a statement: a trial that can be rolled back.

A place that is free now is taken at once (a hold); one that comes free only when replicas have left is named in
`later`: the live cluster plans it again when the capacity is there, the simulator, where leaving takes no time, takes
it in the same instant. What was shrunk for a job that then finds no place is given back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from muster.core.placement.capacity import AnyCapacity
from muster.core.placement.cycle_state import CycleState, HeadReservation
from muster.core.placement.place import Need, place
from muster.core.placement.reservations import placed
from muster.core.placement.statement import Statement, without_gpus
from muster.core.placement.take_up import take_up
from muster.core.reasons.shares import discreet
from muster.core.sharing.gpu_sharing import put_beside, too_slow_beside
from muster.core.sharing.grants import ALONE, waits
from muster.core.sharing.grow import grow_granted, start_granted
from muster.core.sharing.moving import can_change, on_shared_gpus
from muster.core.sharing.shrink import label, leave_all, leave_to_move, leave_whole, must_move, shrink
from muster.types import (
    PRODUCT,
    BoolArray,
    Grant,
    Grants,
    Job,
    JobKey,
    Move,
    Reservation,
    SharingSnapshot,
    elastic_role,
)


def carry_out(
    run: CycleState,
    snapshot: SharingSnapshot,
    order: Sequence[Job],
    shares: Grants,
    moves: Sequence[Move] = (),
    guard: HeadReservation | None = None,
) -> Statement:
    """Places for `shares` (rows of snapshot.table) of the jobs in `order`: a statement to be committed, with all that
    it takes taken from the cycle's capacity. guard: what is kept for the head of the queue."""
    statement = Statement.of_shares(run, snapshot, settled=shares.settled, guard=guard)
    reservations = statement.reservations
    held = {job.key: reservations[job.key] for job in order if reservations.get(job.key)}
    table = snapshot.table
    jobs = [(job, table.row[job.key]) for job in order if job.key in table.row]
    if shares.order:
        place_of = {row: place for place, row in enumerate(shares.order)}
        jobs.sort(key=lambda pair: place_of.get(pair[1], len(place_of)))
    granted = {job.key: int(shares.replicas[row]) for job, row in jobs}
    grants = {
        job.key: _within(shares.details.get(row, ALONE), granted[job.key] if job.started else 0)
        for job, row in jobs
    }
    _owners(statement, grants)
    parts = {job.key: shares.parts.get(row, ()) for job, row in jobs} if shares.parts else {}
    why = {job.key: discreet(shares.why.get(row, ""), job.key.namespace, table) for job, row in jobs}
    # shrink: whole jobs, jobs that are placed again, single replicas
    starts: list[Job] = []
    grows: list[Job] = []
    sharing: list[Job] = []
    for job, _ in sorted(jobs, key=lambda pair: grants[pair[0].key].beside is not None):
        grant = grants[job.key]
        running = job.started or bool(reservations.get(job.key))
        if not running:
            if granted[job.key]:
                (sharing if grant.beside else starts).append(job)
            else:
                statement.statuses[job.key] = waits(why[job.key])
        elif not granted[job.key]:
            leave_whole(statement, job, why[job.key] or "its share is 0")
        elif grant.beside is not None and statement.partner.get(job.key) == grant.beside:
            if slow := too_slow_beside(statement, job, snapshot.jobs[grant.beside]):
                leave_whole(statement, job, slow)
            elif grant.beside in statement.gone:
                leave_to_move(statement, job, "it is placed again, as is the job on its GPUs")
                sharing.append(job)
            else:
                statement.grants[job.key] = grant
        elif must_move(statement, job, grant, granted[job.key]):
            leave_to_move(statement, job, "it is placed again")
            (sharing if grant.beside else starts).append(job)
        elif _stays(job, reservations.get(job.key, ()), granted[job.key], grant):
            if grant is not ALONE:
                statement.grants[job.key] = grant
        else:
            shrink(statement, job, granted[job.key], grant, why[job.key])
            grows.append(job)
    # start, then grow, then those that share another's GPUs
    failed = [
        job
        for job in starts
        if not start_granted(
            statement, job, granted[job.key], grants[job.key], shares.whole, parts.get(job.key, ())
        )
    ]
    failed += [
        job
        for job in grows
        if not grow_granted(statement, job, granted[job.key], grants[job.key], parts.get(job.key, ()))
    ]
    failed += [job for job in sharing if not put_beside(statement, job, grants[job.key])]
    # rebalance: what a plugin moves, if it finds its place
    for move in moves:
        _place_elsewhere(statement, move)
    _give_back(statement, starts + sharing, failed=bool(failed))
    # what found no place again for all that it is granted takes what there is where it runs
    for job in failed if not shares.whole else ():
        grant = grants[job.key]
        back = job.started and job.key not in statement.leaving and job.key not in statement.whole
        if (
            back
            and job.key not in statement.found
            and grant.beside is None
            and not grant.restart
            and not job.resize
        ):
            grow_granted(statement, job, granted[job.key], grant, parts.get(job.key, ()))
    if run.profile.conserving:
        _stopped_for_nothing(statement, held)
    _keep_for_later(statement)
    return statement


def _owners(statement: Statement, grants: dict[JobKey, Grant]) -> None:
    """Who owns the GPUs of a pair, whichever is granted a place beside the other: of two that share GPUs the one that
    owns them; of two in place the one that has GPUs of its own where both are to be, else the one that is there. They
    are the same pair; the other way round who is there takes the GPUs of who comes, or they stay apart."""
    for key, grant in list(grants.items()):
        other = statement.snapshot.jobs.get(grant.beside) if grant.beside is not None else None
        if other is None or other.key not in grants:
            continue
        paired = other.grant is not None and other.grant.beside == key
        if paired or _has_there(statement, key, grant) > _has_there(statement, other.key, grant):
            alone = replace(grant, beside=None)
            grants[key] = ALONE if alone == ALONE else alone
            grants[other.key] = replace(grants[other.key], beside=key)


def _has_there(statement: Statement, key: JobKey, grant: Grant) -> int:
    """What a job in place has on the product that this grants: 2: GPUs, 1: a part of another one's, 0: nothing."""
    job, index = statement.snapshot.jobs[key], statement.snapshot.nodes.index
    role = elastic_role(job)
    products = {label(statement, member.node, PRODUCT) for member in role.on if member.node in index}
    if not (role.devices and products and products <= {grant.product or min(products)}):
        return 0
    return 1 if job.grant is not None and job.grant.beside is not None else 2


def _within(grant: Grant, count: int) -> Grant:
    """What is granted beside a number: without a size to be measured at where that is of another number."""
    grant = grant.within(count)
    return ALONE if grant == ALONE else grant


def _stays(job: Job, reservations: Sequence[Reservation], target: int, grant: Grant) -> bool:
    """Nothing to shrink or grow: what most running jobs are in most cycles."""
    return len(job.roles) == 1 and not grant.roles and placed(job.roles[0], reservations) == target


def _give_back(statement: Statement, moved: Sequence[Job], *, failed: bool) -> None:
    """What was shrunk for nothing stays, as far as its places are still free; a job that was to be placed again,
    found no place and can't stay goes back whole. failed: some job did not get all that it is granted."""
    if failed:
        for key in list(statement.leaving):
            if key not in statement.later and key not in statement.found:
                _returns(statement, statement.snapshot.jobs[key])
    for job in moved:
        if job.key not in statement.leaving or job.key in statement.later or job.key in statement.found:
            continue
        if not _returns(statement, job):
            statement.whole[job.key] = "no place for it as it is to run"


def _returns(statement: Statement, job: Job) -> bool:
    """Whether it stays as it was, beside whom it was."""
    if not statement.return_(job):
        return False
    if (
        job.grant is not None
        and job.grant.beside is not None
        and statement.partner.get(job.key) == job.grant.beside
    ):
        statement.grants[job.key] = job.grant
    return True


def _stopped_for_nothing(statement: Statement, held: Mapping[JobKey, Sequence[Reservation]]) -> None:
    """Who is granted nothing and whose places nobody takes up stays as it is, also in the middle of its start. held:
    the places that jobs had."""
    jobs = statement.snapshot.jobs
    for key in list(statement.whole):
        job, before = jobs[key], held.get(key, ())
        beside = job.grant.beside if job.grant is not None and elastic_role(job).devices else None
        if beside is not None and statement.partner.get(key) is not None:
            continue  # in place: whose GPUs it shares has them alone
        if job.started:
            if not statement.return_(job):
                continue
            if job.grant is not None:
                statement.grants[key] = job.grant
            kept = statement.reservations.get(key, ())
            if before and statement.hold(
                job, [reservation for reservation in before if reservation not in kept]
            ):
                statement.reservations[key] = tuple(before)
        elif before and statement.hold(job, before):
            statement.reservations[key] = tuple(before)
            del statement.whole[key]


def _keep_for_later(statement: Statement) -> None:
    """What is free already of places that others leave is nobody else's in this cycle."""
    snapshot = statement.snapshot
    for key, places in statement.later.items():
        shapes = {role.name: role.shape for role in snapshot.jobs[key].roles}
        beside = statement.grants.get(key, ALONE).beside is not None
        for reservation in places:
            shape = shapes[reservation.role]
            statement.capacity.take(
                snapshot.nodes.index[reservation.node], without_gpus(shape) if beside else shape
            )


def _place_elsewhere(statement: Statement, move: Move) -> None:
    """A running job, or a role of it, somewhere else; nothing changes if it finds no place, or is rigid and its owner
    never said that it can be restarted."""
    job = statement.snapshot.jobs.get(move.job)
    if job is None or not job.started or job.key in statement.leaving or job.key in statement.whole:
        return
    if not can_change(job, on_shared_gpus(statement.snapshot)):
        return
    nodes = statement.snapshot.nodes
    after = statement.later_room()
    mark = statement.mark()
    roles = [role for role in job.roles if not move.role or role.name == move.role]
    leave_all(statement, job, roles, move.why or "it is moved")
    needs = [Need(role, role.bound) for role in roles if role.bound]
    allowed = None
    if move.to:
        allowed = np.isin(np.arange(len(nodes)), [nodes.index[n] for n in move.to if n in nodes.index])
    room = statement.guarded(after, job)
    assignments = None
    if not move.replicas or _takes(room, statement, job, needs, move.replicas, allowed):
        assignments = place(room, job, needs, statement.profile, statement.snapshot, allowed=allowed)
    if assignments is None:
        statement.undo(mark)
        statement.leaving.pop(job.key, None)
        return
    take_up(statement, job, assignments, later=True)


def _takes(
    room: AnyCapacity,
    statement: Statement,
    job: Job,
    needs: Sequence[Need],
    replicas: int,
    allowed: BoolArray | None,
) -> bool:
    """Whether so many replicas of its elastic role, beside the others, find room there; the room is as before."""
    more = [Need(need.role, replicas) if need.role is job.elastic else need for need in needs]
    mark = room.mark()
    found = place(room, job, more, statement.profile, statement.snapshot, allowed=allowed)
    if found is not None:
        room.undo(mark)
    return found is not None
