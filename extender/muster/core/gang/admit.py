"""All or nothing, in order: the default Share (design §4), for every job whose size no policy decides.

A job's minimum starts whole or not at all; replicas above it start as they fit. An incomplete, invalid or impossible
job never blocks others; the first that does not fit is the head, for which `core.placement.backfill` keeps capacity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from muster.core.placement.backfill import first_needs, preempt, reserve
from muster.core.placement.cycle_state import CycleState, HeadReservation
from muster.core.placement.place import Need
from muster.core.placement.reservations import placed
from muster.core.placement.statement import Statement
from muster.core.placement.take_up import find, grow, sizes_between, take_up
from muster.core.reasons import refusals, waiting
from muster.types import HOLDS_NOBODY_UP, Grant, Job, Reason, State, Status


def is_ready(run: CycleState, job: Job) -> bool:
    """Whether a job that has not started is in the queue; if not, its status says why."""
    snapshot, profile = run.snapshot, run.profile
    if job.key in run.statuses:
        return False
    least = most = ready = 0
    short = False
    if (
        len(job.roles) == 1 and job.not_before <= snapshot.now
    ):  # nearly every job, and this is asked 10,000 times
        role = job.roles[0]
        if role.ready >= role.min > 0 and not role.released:
            return True
    if job.over or job.suspended:
        run.statuses[job.key] = waiting.over(job)
        return False
    in_order = True
    for role in job.roles:
        least, most, ready = least + role.min, most + role.max, ready + role.ready
        if role.released:
            run.statuses[job.key] = waiting.RELEASED
            return False
        if role.ready < role.min:
            short, in_order = True, in_order and role.ordered
    if job.quota[0] and all(role.devices or role.ready >= role.min for role in job.roles):
        run.statuses[job.key] = Status(State.WAITING, Reason.QUOTA, job.quota[0])  # of its GPUs in place
        return False
    if short:
        held_back = sum([r.held for r in job.roles])
        waits_for_us = job.expects and not held_back and (ready or job.restarting)
        paused = snapshot.now - job.newest_pod >= profile.owner_pause
        if job.quota[0] or not (waits_for_us and (in_order or paused or job.restarting)):
            if waits_for_us and math.isfinite(job.newest_pod):
                run.requeue_at.append(job.newest_pod + profile.owner_pause)
            run.statuses[job.key] = waiting.incomplete(job, {r.name: r.ready for r in job.roles}, held_back)
            return False
    if job.not_before > snapshot.now:
        run.requeue_at.append(job.not_before)
        run.statuses[job.key] = waiting.backing_off(job, snapshot)
        return False
    if not most or not (ready or least):
        run.statuses[job.key] = Status(State.FINISHED, Reason.OK, "all replicas have ended")
        return False
    return True


def admit(run: CycleState, job: Job) -> None:
    """All or nothing: every replica of the minimum gets a place, or none does."""
    if run.blocked:
        nodes, needs = run.snapshot.nodes, first_needs(job)
        never = refusals.never_fits(nodes, job, needs, run.profile, run.snapshot)
        run.statuses[job.key] = never or waiting.BEHIND_HEAD
        return
    short = ends_in_time(run, job)
    kind = kind_of(run, job, short=short)
    status = run.refused.get(kind)
    if status is None:
        needs = first_needs(job)
        guard = None if short else run.reserved
        if start(run, job, needs, guard):
            return
        status = refusals.refusal(run.capacity, job, needs, run.profile, run.snapshot)
        if (
            guard is not None
            and status.reason is not Reason.NEVER_FITS
            and fits_without_reservation(run, job, needs)
        ):
            status = waiting.RESERVED
        run.refused[kind] = status
    run.statuses[job.key] = status
    if status.reason in HOLDS_NOBODY_UP or run.head is not None:
        return  # no capacity that comes free would start it, so it blocks nobody
    run.head = job.key
    if run.profile.preemption and preempt(run, job, first_needs(job)):
        return
    if run.profile.order == "strict":
        run.blocked = True
    else:
        reserve(run, job, first_needs(job))


def start(
    run: CycleState,
    job: Job,
    needs: Sequence[Need],
    guard: HeadReservation | None,
    grant: Grant | None = None,
) -> bool:
    """Whether all of these needs find places that are free now, that the guard does not keep and that are such as the
    grant says: then it has them."""
    statement = Statement(run, guard=guard)
    found = find(statement, job, needs, grant)
    if found is not None:
        take_up(statement, job, *found)
    return found is not None


def fits_without_reservation(
    run: CycleState, job: Job, needs: Sequence[Need], grant: Grant | None = None
) -> bool:
    """Whether there are places such as the grant says, with those that are kept for the head. None is taken."""
    mark = run.capacity.mark()
    found = find(Statement(run), job, needs, grant)
    run.capacity.undo(mark)
    return found is not None


def kind_of(run: CycleState, job: Job, *, short: bool) -> tuple[object, ...]:
    """Jobs of one class fail alike within a cycle: capacity only falls while jobs start."""
    alone = bool(run.profile.filters) or (
        bool(run.snapshot.node_backoffs) and any(key == job.key for key, _ in run.snapshot.node_backoffs)
    )
    roles = job.roles
    asks: tuple[object, ...]
    if len(roles) == 1:  # nearly every job, and this is asked 10,000 times a cycle
        asks = (roles[0].name, roles[0].shape, roles[0].min)
    else:
        asks = tuple([(r.name, r.shape, r.min) for r in roles])
    return (
        job.key if alone else None,
        asks,
        job.topology_required,
        job.topology_preferred,
        short,
    )


def ends_in_time(run: CycleState, job: Job) -> bool:
    """Whether a job of known length ends before the head's reserved start."""
    return run.reserved is not None and run.reserved.passes(job, run.snapshot.now)


def admit_more(run: CycleState, job: Job) -> None:
    """Existing replicas above the minimum, and GPUs in place, start as they fit, in order, unless a head would be
    delayed."""
    if run.blocked or job.invalid or job.key in run.back or job.key in run.preempted:
        return
    for role in job.roles:
        reservations = run.reservations.get(job.key, ())
        have = placed(role, reservations)
        if have < role.min:
            return
        if have >= role.max:
            continue
        taken = {h.uid for h in reservations}
        ready = sum(1 for m in role.members if m.ready and m.uid not in taken)
        # Nobody has to create GPUs: those of a job in place grow as far as there are any.
        sizes = sizes_between(role, have, role.max if role.devices else min(role.max, have + ready))
        if sizes:
            grow(Statement(run, guard=_never_passed(run)), job, role, have, sizes)


def _never_passed(run: CycleState) -> HeadReservation | None:
    """What is kept for the head from those that grow: they do not pass it, however soon they end."""
    return None if run.reserved is None else replace(run.reserved, until=-math.inf)
