"""One cycle: a snapshot in, a plan out. The main function reads as design §3 numbers it.

1 estimate  2 order  3 share  4 place (keep, shrink, start, grow)  5 rebalance  (6, diff into actions: the Ledger)

What is kept comes before sharing, since shares are of what is left: the replicas of started jobs that are missing
have their places first, whatever a plugin says. `core.sharing` decides shares, `core.elastic` carries them out.

Rules that hold whatever the plugins say: capacity, the gang's minimum, min and max, no double booking.
Missing members of started jobs come before every start. An incomplete, invalid or impossible job never blocks
others.
"""

from __future__ import annotations

from dataclasses import replace

from muster.core import reasons
from muster.core.estimate import observed
from muster.core.keep import keep
from muster.core.planning import Planning
from muster.core.resizing import share
from muster.core.room import Room
from muster.core.start import grow, is_ready, start
from muster.points import Fifo, Profile
from muster.types import Code, Job, JobKey, Plan, Snapshot, State, Status


def cycle(snapshot: Snapshot, profile: Profile) -> Plan:
    """The plan for a snapshot. Pure: the same snapshot and profile give the same plan."""
    memory: dict[JobKey, dict[str, object]] = {}
    complaints: list[str] = []
    # 1 estimate: what reports tell is folded into the jobs' memory; speed and length stand in the table
    snapshot = observed(snapshot, profile, memory, complaints)
    run = Planning(snapshot, profile, Room(snapshot), complaints=complaints)
    # 2 order
    order = _order(run)
    # 4 place (first half): keep what runs, complete what has started
    waiting: list[Job] = []
    kept: list[Job] = []
    for job in order:
        if job.invalid:
            run.statuses[job.key] = Status(State.INVALID, Code.INVALID, job.invalid)
        elif job.started or job.holds:
            if keep(run, job):
                kept.append(job)
            else:
                waiting.append(job)
        else:
            waiting.append(job)
    queue = [job for job in waiting if is_ready(run, job)]
    # 3 share, and 4 place (second half): shrink, then start and grow; without shares: start, then grow
    changes = share(run, order, kept, queue)
    shared = changes.shared if changes is not None else frozenset()
    for job in queue:
        if job.key not in shared:
            start(run, job)
    for job in order:
        if job.key not in shared and (job.started or job.key in run.holds):
            grow(run, job)
    for job in order:
        if job.key not in run.statuses:
            run.statuses[job.key] = _standing(run, job)
    plan = Plan(
        order=tuple([job.key for job in queue if run.statuses[job.key].state is State.WAITING]),
        holds=run.holds,
        statuses=run.statuses,
        undo=tuple(run.undo),
        back=run.back,
        preempted=run.preempted,
        wake=min((w for w in run.wakes if w > snapshot.now), default=None),
        complaints=(*run.complaints, *sorted(run.room.complaints)),
        memory=memory,
    )
    if changes is None:
        return plan
    return replace(
        plan,
        shrinks=changes.shrinks,
        later=changes.later,
        wants=changes.wants,
        shares=changes.shares,
        whys=changes.whys,
        shared=changes.computed,
    )


def _order(run: Planning) -> list[Job]:
    """All jobs, first first; by the default where the profile's plugin fails (design §3)."""
    snapshot, jobs = run.snapshot, run.snapshot.jobs.values()
    key = run.profile.sort.sort_key
    try:
        return sorted(jobs, key=lambda job: (*key(job, snapshot), job.key))
    except Exception as error:
        run.complaints.append(f"{type(run.profile.sort).__name__}.sort_key: {error!r}, left out")
        return sorted(jobs, key=lambda job: (*Fifo().sort_key(job, snapshot), job.key))


def _standing(run: Planning, job: Job) -> Status:
    """Starting, Running or Resizing, by what is bound and what is held."""
    holds = run.holds.get(job.key, ())
    if job.key in run.back:
        return Status(State.WAITING, Code.BACKING_OFF, run.back[job.key])
    if job.key in run.preempted:
        return Status(State.WAITING, Code.PREEMPTED, run.preempted[job.key])
    if job.unbound:
        stuck = [u for u in run.undo if u.job == job.key]
        if stuck:
            return Status(
                State.STARTING, Code.STUCK, f"replica {stuck[0].pod} is placed anew: {stuck[0].why}"
            )
        if job.key in run.stuck:
            return run.stuck[job.key]
        return reasons.starting(holds)
    return reasons.running(job, holds)
