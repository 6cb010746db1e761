"""Who still waits starts on GPUs that nobody uses or is about to (`core.sharing.work_conserving`, step 3): with its
least, on no more nodes than its policy says, and not before it says (`Grants.until`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from muster.core.gang.admit import ends_in_time, fits_without_reservation, kind_of, start
from muster.core.placement.cycle_state import CycleState
from muster.core.placement.statement import Statement
from muster.core.reasons import refusals, waiting
from muster.core.sharing.found import got
from muster.core.sharing.grants import waits
from muster.core.sharing.work_conserving import least_needs
from muster.types import QUEUE_TOLD, Grant, Grants, Job, JobKey, Reason, State, Status, Table


def fill(
    run: CycleState,
    table: Table,
    members: Sequence[Job],
    shares: Grants,
    done: Statement,
    refused: Mapping[JobKey, Status],
) -> Grants:
    """Who waits starts where nobody uses the GPUs or is about to: the shares as they are then. Who was granted
    something and found no place is told why."""
    replicas, why = shares.replicas.copy(), dict(shares.why)
    need, idle = (table.min * table.unit + table.fixed).tolist(), _idle(run)
    granted, rows, reservations, statuses = (
        shares.replicas.tolist(),
        table.row,
        done.reservations,
        run.statuses,
    )
    smallest, until, now = min(need, default=0), shares.until, run.snapshot.now
    tried: dict[tuple[object, ...], Status | None] = {}
    for job in members:
        key = job.key
        if job.started or reservations.get(key) or key in done.later:
            row = rows[key]
            if not granted[row] and key not in done.whole:  # it stays: nobody needs its GPUs
                replicas[row] = got(job, done)
            continue
        if key in done.whole:
            continue
        told = statuses.get(key)
        status = (refused.get(key) if refused else None) or told or waits("")
        if idle >= smallest and need[row := rows[key]] <= idle and until.get(row, now) <= now:
            grant = shares.details.get(row)
            count, in_its_way = _try(run, job, _counts(run, table, row, shares), grant, tried)
            if count:
                replicas[row], idle = count, _idle(run)
                statuses.pop(key, None)
                why.pop(row, None)
                continue
            if in_its_way is not None and (in_its_way is waiting.RESERVED or not shares.why.get(row)):
                status = in_its_way
        if status is not told:
            statuses[key] = status
        if status.reason is not Reason.SHARE:
            why[rows[key]] = status.message
    return replace(shares, replicas=replicas, why=why)


def count_free(run: CycleState, queue: Sequence[Job]) -> None:
    """The first of the queue that wait for their share are told what fits now of what they need, as all others."""
    left = QUEUE_TOLD
    for job in queue:
        status = run.statuses.get(job.key)
        if status is None or status.state is not State.WAITING or status.reason is Reason.NEVER_FITS:
            continue
        if status.reason is Reason.SHARE and not status.detail:
            free = refusals.fits_now(run.capacity, job, least_needs(job))
            run.statuses[job.key] = status._replace(detail=free)
        left -= 1
        if not left:
            return


def _counts(run: CycleState, table: Table, row: int, shares: Grants) -> Sequence[int]:
    """Replicas to start with: the least; what it asked for comes first where the policy grants no less."""
    least, request = int(table.min[row]), int(table.request[row])
    return (request, least) if (shares.whole or run.profile.round) and request > least else (least,)


def _idle(run: CycleState) -> float:
    """GPUs that nobody uses or is about to, on cordoned nodes, too: some pods tolerate that."""
    nodes = run.snapshot.nodes
    if sum(map(nodes.devices.has, nodes.resources)) > 1:
        return np.inf  # of several kinds: the table counts those that its jobs ask for
    return float(np.maximum(nodes.gpus(run.capacity.free), 0).sum())


def _try(
    run: CycleState,
    job: Job,
    counts: Sequence[int],
    grant: Grant | None,
    tried: dict[tuple[object, ...], Status | None],
) -> tuple[int, Status | None]:
    """Replicas for which there are places now, taken, or 0; and what is in its way where that is only what is kept
    for the head, or only the nodes that its policy allows it. tried: by kind of job, what was found out before."""
    short = job.key == run.head or ends_in_time(run, job)
    few = Grant(max_nodes=grant.max_nodes) if grant is not None and grant.max_nodes else None
    kind = (*kind_of(run, job, short=short), 0 if few is None else few.max_nodes)
    if kind in tried:
        return 0, tried[kind]
    guard = None if short else run.reserved
    for count in counts:
        if start(run, job, least_needs(job, count), guard, few):
            return count, None
    least, why = least_needs(job), None
    if guard is not None and fits_without_reservation(run, job, least, few):
        why = waiting.RESERVED
    elif few is not None and fits_without_reservation(run, job, least):
        why = waiting.on_so_few(job, least, few.max_nodes)
    tried[kind] = why
    return 0, why
