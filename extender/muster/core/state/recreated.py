"""A job that ran and of which nothing does any more, not by our hand, while its owner wants all of it (a JobSet's
failurePolicy, a LeaderWorkerSet's group): it has its place in the queue at once, for its pods are about to come.

Its owner makes them when the last one has ended, so RETURN counts from that, and from each that comes. An owner may
have to remove what it made before (a JobSet its Jobs): while that is there, and from each change of it. After
`Profile.incomplete` nobody believes it any more.

The next leader reads in the Gang (`status.ledger.recreated`) since when it is so, and until when that was believed;
pods and Jobs that are new, that end or have failed it sees itself. That goes with the write of the state that the job
comes to, and is written for itself only where what prolonged it can't be seen any more. It is believed no further
than it can be true now. Where a Gang says that some of the job runs, and nothing does, it is so from now on.
"""

from __future__ import annotations

from dataclasses import replace

from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.core.workload.identity import LEAVING
from muster.types import GangRecord, Job, Phase, Recreation, State

RETURN = 30.0
"""Seconds for which a job without a pod is not over after we evicted one of its pods: its owner makes it again (0.5
to 1.2 s for a Job, design §1; operators take their time)."""
SLACK = 10.0
"""Seconds by which what is recorded may fall short, so that nearly no restart costs a write of its own."""
STARTED = (State.STARTING, State.RUNNING, State.RESIZING)
RUNS, NEVER = Recreation(ran=True), Recreation()


def recreated(state: LedgerState, job_state: JobState, job: Job, now: float) -> Job:
    """The job as it is in the queue: restarting, where its owner makes it again."""
    if job.started:
        job_state.recreated = RUNS
        return job
    known = job_state.recreated
    if not state.owners.lives(job_state.key, job_state.owner):
        known = NEVER
    elif known.ran:
        known = NEVER if _ended_by_us(job_state, job, now) else Recreation(now, now + RETURN)
    job_state.recreated = known = _prolonged(state, job_state, job, known, now)
    if not known.until or not any(role.shape.requests for role in job.roles):
        return job  # nobody describes it: nobody knows what it needs (one that asks for nothing needs nothing kept)
    state.again(job_state.key, known.until)
    return replace(job, restarting=True, expects=not job.quota[0])


def _ended_by_us(job_state: JobState, job: Job, now: float) -> bool:
    """Whether we took it back, as far as this leader, or the mark on a pod that is still there, tells."""
    desired = job_state.desired
    evicted = desired.evicted and now < job_state.returning + RETURN
    marked = desired.reservations is None and any(LEAVING in p.annotations for p in job_state.pods.values())
    return bool(desired.sent_back or job.preempted or evicted or marked)


def _prolonged(
    state: LedgerState, job_state: JobState, job: Job, known: Recreation, now: float
) -> Recreation:
    """By what shows that the owner is at it; NEVER once it has run out."""
    if not known.until:
        return NEVER
    since = min(known.since, now)
    most = since + state.profile.incomplete
    until = min(known.until, now + RETURN, most)
    owner = job_state.owner.uid if job_state.owner is not None else ""
    shows = _ends(job) or state.owners.is_to_act(owner, job_state.key.namespace)
    before = state.jobs.get(job_state.key)
    last = max(
        job_state.newest_pod, job_state.owner_moved, state.owners.made_last(owner, job_state.key.namespace)
    )
    sign = now if shows or (before is not None and _ends(before)) else min(last, now)
    if sign == now or sign <= until:
        until = max(until, min(sign + RETURN, most))
    return Recreation(since, until, shows=shows) if now < until else NEVER


def _ends(job: Job) -> bool:
    return any(m.phase is Phase.ENDING for role in job.roles for m in role.members)


def recalled(job_state: JobState, gang: GangRecord) -> Recreation:
    """What the Gang tells, and what this process has seen itself."""
    mine, told = job_state.recreated, gang.recreated
    if told.since:
        return Recreation(told.since, max(told.until, mine.until))
    if job_state.job is None:
        return Recreation(ran=gang.state in STARTED and gang.replicas.partition("/")[0] not in ("", "0"))
    # Who wrote that it waits knew why nothing of it runs.
    return mine if gang.state in STARTED else Recreation(ran=mine.ran)


def unrecorded(job_state: JobState, *, moving: bool) -> bool:
    """Whether the next leader is to be told. moving: its Gang is about to be written anyway."""
    known = job_state.recreated
    told = job_state.recorded.gang.recreated if job_state.recorded.gang is not None else NEVER
    if not known.until:
        return bool(told.since) and not moving
    return known.since != told.since or (not known.shows and known.until > told.until + SLACK)
