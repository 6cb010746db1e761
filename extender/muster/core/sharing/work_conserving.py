"""No GPU idles for a job that can't take it: what finds no place is granted to nobody's loss (`Profile.conserving`).

1 A job whose least could not start on the empty cluster takes no part in sharing (`take_part`).
2 The policy's grants are carried out on the trial. Those that find no place, or only a part of it, are taken out: who
  waits leaves the table, who runs keeps what it has, who found a part may have no more; the trial is undone, and the
  policy is asked again for the rest (`share_out`). Each time at least one job is out, jobs that fail alike together,
  and after `ROUNDS` times the plan stands as it is. GPUs that a job in place can't take up where its pod is pass to
  one that can: all such jobs whose nodes have no room for their next step may have no more (`core.sharing.found`).
3 Who still waits, in the order of the queue, takes what nobody uses or is about to, with its least
  (`core.sharing.fill`), but for those that their policy has wait for more until a time (`Grants.until`).

The first job of the queue that is granted something and finds no place is its head: what `core.placement.backfill`
keeps for it is kept from all that come after it, as without shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.core.gang.admit import kind_of
from muster.core.placement.backfill import reserve
from muster.core.placement.cycle_state import CycleState, HeadReservation
from muster.core.placement.place import Need
from muster.core.placement.statement import Statement
from muster.core.reasons import refusals
from muster.core.sharing.apply import carry_out
from muster.core.sharing.found import got, hemmed_in
from muster.core.sharing.grants import ALONE, targets
from muster.core.sharing.job_table import narrowed
from muster.types import (
    HOLDS_NOBODY_UP,
    Grant,
    Grants,
    Job,
    JobKey,
    Move,
    SharingSnapshot,
    Status,
    Table,
    elastic_role,
)

ROUNDS = 4
"""How often the policy is asked in a cycle, at most."""

Ask = Callable[[SharingSnapshot, Sequence[JobKey]], Grants | None]
"""What the policy grants on the snapshot's table, where these running jobs keep what they have; None: it failed."""


def take_part(run: CycleState, members: Sequence[Job]) -> list[Job]:
    """Those whose least could start on the empty cluster, or that have a place already."""
    known: dict[tuple[object, ...], bool] = {}
    result, reservations = [], run.reservations
    for job in members:
        if not job.started and not (reservations and reservations.get(job.key)):
            # comparing shapes 10,000 times is what costs; they live as long as their jobs
            roles = job.roles
            kind: tuple[object, ...] = (id(roles[0].shape), roles[0].min, job.topology_required)
            if len(roles) > 1:
                kind = (*[(id(r.shape), r.min) for r in roles], job.topology_required)
            fits = known.get(kind)
            if fits is None:
                needs = least_needs(job)
                never = refusals.never_fits(run.snapshot.nodes, job, needs, run.profile, run.snapshot)
                fits = known[kind] = never is None
            if not fits:
                continue
        result.append(job)
    return result


def least_needs(job: Job, count: int = 0) -> list[Need]:
    """What a share needs at least, or with so many replicas of the elastic role."""
    shared = elastic_role(job)
    return [Need(r, max(1, count, r.min) if r is shared else r.min) for r in job.roles]


@dataclass
class _Limits:
    """What the policy may not grant any more. out: jobs that take no part; most: replicas at most; kept: running jobs
    that stay as they are; refused: why the jobs that were granted something found no place."""

    out: set[JobKey]
    most: dict[JobKey, int]
    kept: set[JobKey]
    refused: dict[JobKey, Status]

    def count(self) -> tuple[int, int, int]:
        return len(self.out), sum(self.most.values()), len(self.kept)


def share_out(
    run: CycleState,
    snapshot: SharingSnapshot,
    members: Sequence[Job],
    ask: Ask,
    moves: Sequence[Move],
    *,
    once: bool,
    granted: Grants | None = None,
) -> tuple[Grants, Statement, Mapping[JobKey, Status]] | None:
    """Shares of the snapshot's table that find their places, committed to the run, and why some found none; None
    where the policy failed. once: the policy is not asked again; granted: what it has said already."""
    table, limits = snapshot.table, _Limits(set(), {}, set(), {})
    guard: HeadReservation | None = None
    until: dict[int, float] = {}
    turn = 0
    while True:
        turn += 1
        part = table
        if limits.out or limits.most:
            part = narrowed(table, limits.out, limits.most)
        shown = snapshot if part is table else replace(snapshot, table=part)
        shares = granted if turn == 1 and granted is not None else ask(shown, tuple(limits.kept))
        if shares is None:
            return None
        if part is table:  # holds also for those that find no place, and are not asked about again
            until = dict(shares.until)
        mark = run.capacity.mark()
        over = run.reserved.ceiling.mark() if run.reserved is not None else 0
        those = [job for job in members if job.key in part.row] if limits.out else members
        done = carry_out(run, shown, those, shares, moves, guard)
        if once or turn == ROUNDS:
            break
        before = limits.count()
        first = _unplaced(run, part, those, shares, done, limits)
        if limits.count() == before:
            break
        run.capacity.undo(mark)
        if run.reserved is not None:
            run.reserved.ceiling.undo(over)
        if run.head is None and first is not None:
            run.head = first.key
            reserve(run, first, least_needs(first))
            if run.reserved is not None:
                at = members.index(first)
                guard = replace(run.reserved, ahead=frozenset(job.key for job in members[: at + 1]))
    done.commit(run)
    return replace(_widened(shares, part, table), until=until), done, limits.refused


def _widened(shares: Grants, part: Table, table: Table) -> Grants:
    """Shares of a part of a table, by the rows of all of it."""
    if part is table or len(part) == len(table):
        return shares
    rows = [table.row[key] for key in part.keys]
    replicas = np.zeros(len(table), dtype=np.int64)
    replicas[rows] = shares.replicas
    return replace(
        shares,
        replicas=replicas,
        details={rows[row]: grant for row, grant in shares.details.items()},
        why={rows[row]: words for row, words in shares.why.items()},
        parts={rows[row]: sizes for row, sizes in shares.parts.items()},
        order=tuple([rows[row] for row in shares.order]),
    )


def _unplaced(
    run: CycleState, table: Table, members: Sequence[Job], shares: Grants, done: Statement, limits: _Limits
) -> Job | None:
    """Takes out what found no place; the first such job that waits and that capacity which comes free would start."""
    first: Job | None = None
    pinned = False
    kinds: set[tuple[object, ...]] = set()
    replicas, rows = shares.replicas.tolist(), table.row
    for job in members:
        granted = replicas[row := rows[job.key]]
        if not granted:  # nearly all of a long queue
            continue
        grant = shares.details.get(row, ALONE)
        if job.key in limits.kept or _stands(run, job, granted, done, grant):
            continue
        role, found = elastic_role(job), got(job, done)
        goal = targets(job, granted, grant, done.reservations.get(job.key, ()))[role.name]
        if found >= goal or (found and grant.beside is not None):
            continue
        have = int(table.have[row])
        least = min(table.sizes.get(row, ()), default=int(table.min[row]))
        if have and (found < have or found < least):
            limits.kept.add(job.key)
        elif found:
            limits.most[job.key] = max(found, have)
            pinned = pinned or role.devices
        else:
            limits.out.add(job.key)
            status = done.statuses.get(job.key)
            if status is None or job.started:
                continue
            limits.refused[job.key] = status
            if not shares.whole and grant is ALONE:
                kinds.add(kind_of(run, job, short=False))
            if first is None and status.reason not in HOLDS_NOBODY_UP:
                first = job
    if pinned:
        limits.most |= hemmed_in(table, members, done, {*limits.most, *limits.kept})
    if kinds:
        limits.out |= {
            job.key
            for job in members
            if not job.started and not done.reservations.get(job.key) and job.key not in done.later
            if kind_of(run, job, short=False) in kinds
        }
    return first


def _stands(run: CycleState, job: Job, granted: int, done: Statement, grant: Grant) -> bool:
    """Whether it has what it is granted and had it before: what most running jobs are in most cycles."""
    return (
        len(job.roles) == 1
        and grant is ALONE
        and job.bound == granted
        and not run.reservations.get(job.key)
        and job.key not in done.leaving
        and job.key not in done.whole
    )
