"""One cycle: a snapshot in, a plan out. The main function reads as design §3 numbers it.

1 estimate  2 order  3 share  4 place (keep, shrink, start, grow)  5 rebalance  (6, diff into actions: the Ledger)

What is kept comes before sharing, since shares are of what is left: the replicas of started jobs that are missing
have their places first, whatever a plugin says. `core.sharing.chain` decides shares, `core.sharing.apply` carries
them out.

Rules that hold whatever the plugins say: capacity, the gang's minimum, min and max, no double booking.
Missing members of started jobs come before every start. An incomplete, invalid or impossible job never blocks
others.
"""

from __future__ import annotations

from dataclasses import replace

from muster.core.gang.admit import admit, admit_more, is_ready
from muster.core.gang.retain import keep
from muster.core.placement.capacity import Capacity
from muster.core.placement.cycle_state import CycleState, StumbledError
from muster.core.progress.estimate import observed
from muster.core.reasons import waiting as reasons
from muster.core.sharing.step import share
from muster.core.workload.whole import awaited
from muster.points import Fifo, Profile
from muster.types import Code, Job, JobKey, Plan, Snapshot, State, Status


def cycle(snapshot: Snapshot, profile: Profile) -> Plan:
    """The plan for a snapshot. Pure: the same snapshot and profile give the same plan.

    Raises StumbledError, which names the job at hand: `core.state.quarantine.planned` plans without that one.
    """
    memory: dict[JobKey, dict[str, object]] = {}
    plugin_errors: list[str] = []
    # 1 estimate: what reports tell is folded into the jobs' memory; speed and length stand in the table
    snapshot = observed(snapshot, profile, memory, plugin_errors)
    run = CycleState(snapshot, profile, Capacity(snapshot), plugin_errors=plugin_errors)
    try:
        return _plan(run, memory)
    except Exception as error:
        raise StumbledError(error, run.at) from error


def _plan(run: CycleState, memory: dict[JobKey, dict[str, object]]) -> Plan:
    snapshot = run.snapshot
    # 2 order
    order = _order(run)
    # 4 place (first half): keep what runs, complete what has started
    waiting: list[Job] = []
    kept: list[Job] = []
    for job in order:
        run.at = job.key
        if job.invalid:
            code = Code.INTERNAL if job.quarantined else Code.INVALID
            run.statuses[job.key] = Status(State.INVALID, code, job.invalid)
            if job.reservations and not job.started:
                run.reservations[job.key] = ()  # its places are others' from the next cycle on
        elif job.started or job.reservations:
            if keep(run, job):
                kept.append(job)
            else:
                waiting.append(job)
        else:
            waiting.append(job)
    queue = []
    for job in waiting:
        run.at = job.key
        if is_ready(run, job):
            queue.append(job)
    run.at = None
    # 3 share, and 4 place (second half): shrink, then start and grow; without shares: start, then grow
    changes = share(run, order, kept, queue)
    shared = changes.shared if changes is not None else frozenset()
    for job in queue:
        run.at = job.key
        if job.key not in shared:
            admit(run, job)
    for job in order:
        run.at = job.key
        if job.key not in shared and (job.started or job.key in run.reservations):
            admit_more(run, job)
    for job in order:
        run.at = job.key
        if job.stuck[0] and all(h.uid != job.stuck[0] for h in run.reservations.get(job.key, ())):
            run.statuses[job.key] = reasons.stuck(*job.stuck[1:], started=job.started)
        elif job.key not in run.statuses:
            run.statuses[job.key] = _standing(run, job)
    plan = Plan(
        order=tuple([job.key for job in queue if run.statuses[job.key].state is State.WAITING]),
        reservations=run.reservations,
        statuses=run.statuses,
        unpins=tuple(run.unpins),
        back=run.back,
        preempted=run.preempted,
        ends=run.ends,
        requeue_at=min((w for w in run.requeue_at if w > snapshot.now), default=None),
        plugin_errors=(*run.plugin_errors, *sorted(run.capacity.plugin_errors)),
        failed=tuple(run.failed),
        memory=memory,
    )
    if changes is None:
        return plan
    return replace(
        plan,
        shrinks=changes.shrinks,
        later=changes.later,
        grants=changes.grants,
        shares=changes.shares,
        whys=changes.whys,
        shared=changes.computed,
    )


def _order(run: CycleState) -> list[Job]:
    """All jobs, first first; by the default where the profile's plugin fails (design §3)."""
    snapshot, jobs = run.snapshot, run.snapshot.jobs.values()
    key = run.profile.sort.sort_key
    try:
        return sorted(jobs, key=lambda job: (*key(job, snapshot), job.key))
    except Exception as error:
        run.plugin_errors.append(f"{type(run.profile.sort).__name__}.sort_key: {error!r}, left out")
        return sorted(jobs, key=lambda job: (*Fifo().sort_key(job, snapshot), job.key))


def _standing(run: CycleState, job: Job) -> Status:
    """Starting, Running or Resizing, by what is bound and what is held."""
    reservations = run.reservations.get(job.key, ())
    if job.key in run.back:
        return Status(State.WAITING, Code.BACKING_OFF, run.back[job.key])
    if job.key in run.preempted:
        return Status(State.WAITING, Code.PREEMPTED, run.preempted[job.key])
    if job.unbound:
        if not awaited(job):
            return reasons.owner_pauses(job)
        stuck = [u for u in run.unpins if u.job == job.key and u.ends]
        if stuck:
            return Status(
                State.STARTING, Code.STUCK, f"replica {stuck[0].pod} is placed anew: {stuck[0].why}"
            )
        if job.key in run.stuck:
            return run.stuck[job.key]
        return reasons.starting(reservations)
    return reasons.running(job, reservations)
