"""One cycle: a snapshot in, a plan out. The main function reads as it is numbered, in the order in which it runs.

1 estimate  2 order  3 keep  4 queue  5 share (and rebalance)  6 admit  7 explain  (8, diff into actions: the Ledger)

What is kept comes before sharing, since shares are of what is left: the replicas of started jobs that are missing
have their places first, whatever a plugin says. Each step writes what it decides to the CycleState, once; the plan is
made of that. Each place that a job starts or grows on is found and taken up in one way
(`core.placement.take_up`), whether a policy decided its size or the default, all or nothing in order.

Rules that hold whatever the plugins say: capacity, the gang's minimum, min and max, no double booking.
Missing members of started jobs come before every start. An incomplete, invalid or impossible job never blocks
others.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.gang.admit import admit, admit_more, is_ready
from muster.core.gang.retain import as_many_as_fit, keep
from muster.core.placement.capacity import Capacity
from muster.core.placement.cycle_state import CycleState, StumbledError
from muster.core.progress.estimate import observed
from muster.core.reasons import waiting as reasons
from muster.core.sharing.fill import count_free
from muster.core.sharing.step import share
from muster.core.workload.whole import awaited
from muster.points import Fifo, Profile
from muster.types import Job, JobKey, Plan, Reason, Snapshot, State, Status


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
        return run.plan(_decide(run), memory)
    except Exception as error:
        raise StumbledError(error, run.at) from error


def _decide(run: CycleState) -> list[Job]:
    """Steps 2 to 7; the jobs that could start, first first."""
    # 2 order
    order = _order(run)
    # 3 keep: what runs keeps its places, what has started is completed
    kept, waiting = _keep(run, order)
    # 4 queue: who waits and could start; the status of the others says why not
    queue = _ready(run, waiting)
    # 5 share: jobs whose size the profile's policies decide shrink, start, grow and move
    share(run, order, kept, queue)
    # 6 admit, the default Share: all others start all or nothing, in order; then replicas above the minimum
    for job in queue:
        run.at = job.key
        if job.key not in run.shares:
            admit(run, job)
    for job in order:
        run.at = job.key
        if job.key not in run.shares and (job.started or job.key in run.reservations):
            admit_more(run, job)
    # 7 explain: a status for every job, and what fits now of the first that wait for their share
    _explain(run, order)
    if run.profile.conserving:
        count_free(run, queue)
    return queue


def _order(run: CycleState) -> list[Job]:
    """All jobs, first first, by the profile's plugin, or the default where that fails (design §3), then `Job.tie`."""
    snapshot, jobs = run.snapshot, run.snapshot.jobs.values()
    key = run.profile.sort.sort_key
    try:
        return sorted(jobs, key=lambda job: (*key(job, snapshot), *job.tie))
    except Exception as error:
        run.plugin_errors.append(f"{type(run.profile.sort).__name__}.sort_key: {error!r}, left out")
        return sorted(jobs, key=lambda job: (*Fifo().sort_key(job, snapshot), *job.tie))


def _keep(run: CycleState, order: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Jobs that have their places, and jobs that have none and wait."""
    kept: list[Job] = []
    waiting: list[Job] = []
    for job in order:
        run.at = job.key
        if job.invalid:
            reason = Reason.INTERNAL if job.quarantined else Reason.INVALID
            run.statuses[job.key] = Status(State.INVALID, reason, job.invalid)
            if job.reservations and not job.started:
                run.reservations[job.key] = ()  # its places are others' from the next cycle on
        elif (job.started or job.reservations) and keep(run, job):
            kept.append(job)
        else:
            waiting.append(job)
    for job in run.short:  # once all that can be whole are
        run.at = job.key
        as_many_as_fit(run, job)
    return kept, waiting


def _ready(run: CycleState, waiting: Sequence[Job]) -> list[Job]:
    """Those of them that are in the queue."""
    queue = []
    for job in waiting:
        run.at = job.key
        if is_ready(run, job):
            queue.append(job)
    run.at = None
    return queue


def _explain(run: CycleState, order: Sequence[Job]) -> None:
    """The status of those to which no step gave one, and of those of which a pod is stuck."""
    for job in order:
        run.at = job.key
        if job.stuck[0] and all(h.uid != job.stuck[0] for h in run.reservations.get(job.key, ())):
            run.statuses[job.key] = reasons.stuck(*job.stuck[1:], started=job.started)
        elif job.key not in run.statuses:
            run.statuses[job.key] = _standing(run, job)


def _standing(run: CycleState, job: Job) -> Status:
    """Starting, Running or Resizing, by what is bound and what is held."""
    reservations = run.reservations.get(job.key, ())
    if job.key in run.back:
        return Status(State.WAITING, Reason.BACKING_OFF, run.back[job.key])
    if job.key in run.preempted:
        return Status(State.WAITING, Reason.PREEMPTED, run.preempted[job.key])
    if job.unbound:
        if not awaited(job):
            return reasons.owner_pauses(job)
        stuck = [u for u in run.unpins if u.job == job.key and u.ends]
        if stuck:
            return Status(
                State.STARTING, Reason.STUCK, f"replica {stuck[0].pod} is placed again: {stuck[0].why}"
            )
        if job.key in run.stuck:
            return run.stuck[job.key]
        return reasons.starting(job, reservations)
    return reasons.running(job, reservations)
