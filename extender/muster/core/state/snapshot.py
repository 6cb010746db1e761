"""Snapshots out: everything that a plan may depend on, frozen. Only jobs of which something is new are made again."""

from __future__ import annotations

from dataclasses import replace

from muster.core.state.job_builder import is_alive
from muster.core.state.job_facts import lived
from muster.core.state.job_state import JobState
from muster.core.state.pods import place_orphans
from muster.core.state.quarantine import bare_job, put_aside, set_aside
from muster.core.state.queue_time import seniority
from muster.core.state.reservation_usage import charge_holds, set_holds
from muster.core.state.state import LedgerState
from muster.core.state.unreadable import unread_of
from muster.types import Job, JobKey, Phase, Snapshot

RETURN = 30.0
"""Seconds for which a job without a pod is not over after we evicted one of its pods: its owner makes it again (0.5
to 1.2 s for a Job, design §1; operators take their time)."""


def snapshot_of(memory: LedgerState, now: float) -> Snapshot:
    """Everything that a plan may depend on, at `now`."""
    memory.listens = now if memory.listens is None else memory.listens
    place_orphans(memory, [pod for pod, _ in memory.orphans.values()], now)
    over = {key for key, until in memory.later.items() if until <= now}
    for key in over:
        del memory.later[key]
    memory.dirty |= memory.returning | memory.heard | over
    memory.returning.clear()
    memory.heard.clear()
    for key in list(memory.dirty):
        _refresh(memory, key, now)
    memory.dirty.clear()
    memory.charges.moved = False
    node_backoffs: dict[tuple[JobKey, str], dict[str, float]] = {}
    for key in memory.with_node_backoffs:
        for bar in memory.entries[key].node_backoffs.values():
            if bar.until > now:
                node_backoffs.setdefault((key, bar.role), {})[bar.node] = bar.until
    return Snapshot(
        now=now,
        nodes=memory.charges.columns(),
        free=memory.charges.free(),
        jobs=dict(memory.jobs),
        ports=memory.charges.ports(),
        node_backoffs=node_backoffs,
        ours_on=memory.charges.ours_on(),
        shared_at=memory.shared_at,
    )


def _anew(memory: LedgerState, entry: JobState, job: Job, now: float) -> Job:
    """A job that ran and of which nothing does any more, not by our hand, while its owner wants all of it (a JobSet's
    failurePolicy, a LeaderWorkerSet's group): it has its place in the queue at once, for its pods are about to come.
    Its owner makes them when the last one has ended, so RETURN counts from that, and from each that comes."""
    before = memory.jobs.get(entry.key)
    if job.started or not memory.owners.lives(entry.key, entry.owner):
        entry.anew_until = 0.0
    elif (
        before is not None
        and before.started
        and not (entry.desired.sent_back or job.preempted or now < entry.returning + RETURN)
    ):
        entry.anew_at, entry.anew_until = now, now + RETURN
    if entry.anew_until:
        ends = any(
            m.phase is Phase.ENDING for one in (before, job) if one for r in one.roles for m in r.members
        )
        sign = now if ends else entry.newest_pod
        most = entry.anew_at + memory.profile.incomplete
        entry.anew_until = max(entry.anew_until, min(sign + RETURN, most))
    if now >= entry.anew_until:
        entry.anew_until = 0.0
        return job
    memory.again(entry.key, entry.anew_until)
    return replace(job, restarting=True, expects=not job.quota[0])


def _refresh(memory: LedgerState, key: JobKey, now: float) -> None:
    """Rebuild one job's frozen view; forget a job of which nothing is left. One that can't be built is put aside."""
    entry = memory.entries.get(key)
    if entry is None:
        return
    stage = unread_of(memory, key) or put_aside(memory, key, now)
    try:
        if _forgotten(memory, key, entry):
            return
        if not stage:
            _build(memory, key, entry, now)
            return
    except Exception as error:
        stage = "build"
        set_aside(memory, key, stage, error, now)
    memory.jobs[key] = entry.job = bare_job(entry, stage)


def _forgotten(memory: LedgerState, key: JobKey, entry: JobState) -> bool:
    """Whether nothing is left of the job; then all that is kept of it goes."""
    if entry.pods or entry.recorded.gang is not None or memory.owners.lives(key, entry.owner):
        return False
    if entry.desired.reservations:
        set_holds(memory, entry, ())
    memory.owners.forgotten(key, entry.owner)
    memory.jobs.pop(key, None)
    del memory.entries[key]
    memory.with_node_backoffs.discard(key)
    memory.asked.discard(key)
    memory.guarded_jobs.discard(key)
    memory.quarantined.pop(key, None)
    memory.later.pop(key, None)
    return True


def _build(memory: LedgerState, key: JobKey, entry: JobState, now: float) -> None:
    if entry.desired.reservations is None and entry.planned:
        charge_holds(memory, entry)
    # Owners make again what we evicted. Where nobody tells us what an owner still wants, time decides.
    returns = (
        now < entry.returning + RETURN
        and (entry.owner.uid if entry.owner is not None else key.uid) not in memory.owners.records
        and not any(is_alive(p) for p in entry.pods.values())
    )
    if returns:
        memory.requeue_at.add(entry.returning + RETURN)
        memory.returning.add(key)
    job = seniority(memory, entry, memory.made.job(entry, memory.profile, returns=returns), now)
    memory.jobs[key] = entry.job = lived(memory, entry, _anew(memory, entry, job, now), now)
    if any(not reservation.uid for reservation in entry.planned):
        charge_holds(memory, entry)  # what its owner's template asks for may be news
