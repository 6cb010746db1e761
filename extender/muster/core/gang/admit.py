"""Step 4 of a cycle without shares: a job's minimum starts whole or not at all; replicas above it start as they fit.

An incomplete, invalid or impossible job never blocks others; the first that does not fit is the head, for which
`core.placement.backfill` keeps capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.core.placement.backfill import first_needs, fits_without_reservation, preempt, reserve
from muster.core.placement.capacity import Capacity, CapacityPair
from muster.core.placement.cycle_state import CycleState
from muster.core.placement.place import Assignment, Need, place
from muster.core.placement.reservations import assign, open_holds, own_rows, placed
from muster.core.progress.runtime import duration
from muster.core.reasons import waiting
from muster.types import Code, Job, State, Status


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
    if short:
        held_back = sum([r.held for r in job.roles])
        waits_for_us = job.expects and not held_back and (ready or job.restarting)
        paused = snapshot.now - job.newest_pod >= profile.owner_pause
        if job.quota[0] or not (waits_for_us and (in_order or paused or job.restarting)):
            if waits_for_us:
                run.requeue_at.append(job.newest_pod + profile.owner_pause)
            run.statuses[job.key] = waiting.incomplete(job, {r.name: r.ready for r in job.roles}, held_back)
            return False
    if job.not_before > snapshot.now:
        run.requeue_at.append(job.not_before)
        run.statuses[job.key] = waiting.backing_off(job, snapshot)
        return False
    if not most or not (ready or least):
        run.statuses[job.key] = Status(State.FINISHED, Code.OK, "all replicas have ended")
        return False
    return True


def admit(run: CycleState, job: Job) -> None:
    """All or nothing: every replica of the minimum gets a place on the trial, or the trial is undone."""
    if run.blocked:
        nodes, needs = run.snapshot.nodes, first_needs(job)
        never = waiting.never_fits(nodes, job, needs, run.profile, run.snapshot)
        run.statuses[job.key] = never or waiting.BEHIND_HEAD
        return
    short = ends_in_time(run, job)
    kind = kind_of(run, job, short=short)
    status = run.refused.get(kind)
    if status is None:
        needs = first_needs(job)
        capacity = run.capacity if run.ceiling is None or short else CapacityPair(run.capacity, run.ceiling)
        assignments = place(capacity, job, needs, run.profile, run.snapshot)
        if assignments is not None:
            run.reservations[job.key] = tuple(assign(job, open_holds(run.snapshot.nodes, assignments)))
            return
        status = waiting.refusal(run.capacity, job, needs, run.profile, run.snapshot)
        if (
            capacity is not run.capacity
            and status.code is not Code.NEVER_FITS
            and fits_without_reservation(run, job, needs)
        ):
            status = waiting.RESERVED
        run.refused[kind] = status
    run.statuses[job.key] = status
    if status.code in (Code.NEVER_FITS, Code.PLUGIN) or run.head is not None:
        return  # no capacity that comes free would start it, so it blocks nobody
    run.head = job.key
    if run.profile.preemption and preempt(run, job, first_needs(job)):
        return
    if run.profile.order == "strict":
        run.blocked = True
    else:
        reserve(run, job, first_needs(job))


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
    length = duration(job)
    return run.ceiling is not None and length is not None and run.snapshot.now + length <= run.until


def admit_more(run: CycleState, job: Job) -> None:
    """Existing replicas above the minimum start as they fit, in order, unless a head would be delayed."""
    if run.blocked or job.invalid or job.key in run.back or job.key in run.preempted:
        return
    reservations = run.reservations.get(job.key, ())
    for role in job.roles:
        have = placed(role, reservations)
        if have < role.min:
            return
        if have >= role.max:
            continue
        taken = {h.uid for h in reservations}
        ready = sum(1 for m in role.members if m.ready and m.uid not in taken)
        most = min(role.max, have + ready)
        capacity = run.capacity if run.ceiling is None else CapacityPair(run.capacity, run.ceiling)
        most = min(most, have + capacity.total_fits(role.shape))
        sizes = [s for s in role.sizes if have < s <= most] if role.sizes else range(have + 1, most + 1)
        if sizes:
            own = own_rows(run.snapshot.nodes, job, reservations)
            steps = [Need(role, size - have) for size in sizes]
            assignments = _largest(
                capacity,
                steps,
                lambda n: place(capacity, job, [n], run.profile, run.snapshot, own=own),  # noqa: B023
            )
            if assignments is not None:
                reservations = tuple(
                    assign(job, [*reservations, *open_holds(run.snapshot.nodes, assignments)])
                )
                run.reservations[job.key] = reservations


def _largest(
    capacity: Capacity | CapacityPair,
    steps: Sequence[Need],
    spots_of: Callable[[Need], list[Assignment] | None],
) -> list[Assignment] | None:
    """Spots for the largest of the rising steps that fits, taken from the room; None where not even one does.

    The last is tried first, then the steps are halved: what takes more takes less, nearly always.
    """
    assignments = spots_of(steps[-1])
    low, high = 0, len(steps) - 1  # the first `low` steps fit, those from `high` on don't
    while assignments is None and low < high:
        middle = (low + high + 1) // 2
        mark = capacity.mark()
        if spots_of(steps[middle - 1]) is None:
            high = middle - 1
        else:
            low = middle
            capacity.undo(mark)
    return spots_of(steps[low - 1]) if assignments is None and low else assignments
