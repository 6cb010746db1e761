"""Since when a job is in the queue: nobody keeps a place in it with a job that can't start.

A job queues from the creation of its first pod, which its Gang keeps when that pod is replaced. One that is not whole
for longer than `Profile.incomplete`, by its own doing, queues from the moment when it is whole. A quota, and an owner
that is known to create what is missing, are not its own doing; other gates and a suspension are.

What a Gang says of the past is believed no further than it can be: not before the job's owner was created, or where
that is unknown, not long before the Gang was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from muster.core.reasons.words import duration
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.core.workload.job_events import told
from muster.types import Action, GangRecord, Job, JobKey, Reason, Seconds, State

TOO_LONG, FROM_NOW = "IncompleteTooLong", "QueuesFromNow"


def seniority(state: LedgerState, job_state: JobState, job: Job, now: float) -> Job:
    """The job with its place in the queue; its clock goes on while it is not whole through its own doing."""
    patience = state.profile.incomplete
    if job.started or job.over:
        job_state.short_since, job_state.short_told = 0.0, False
    elif _own_doing(job):
        job_state.short_since = job_state.short_since or now
        if job_state.short_since + patience > now:
            state.again(job_state.key, job_state.short_since + patience)
        elif not job_state.short_told:
            job_state.short_told = True
            state.to_tell[job_state.key] = (TOO_LONG, now - job_state.short_since)
    elif job_state.short_since and _whole(job):
        length = now - job_state.short_since
        if length >= patience:
            job_state.queued_from = now
            state.to_tell[job_state.key] = (FROM_NOW, length)
        job_state.short_since, job_state.short_told = 0.0, False
    elif job.quota[0] and not job_state.short_told:
        job_state.short_since = 0.0
    at = submission(state, job_state)
    return job if at == job.submitted else replace(job, submitted=at)  # a Job is much to make


def short_since(gang: GangRecord) -> float:
    """Since when the job of a Gang was not whole through its own doing, as far as the Gang tells; 0 = it was."""
    short = gang.state == State.SUSPENDED or (gang.state == State.INCOMPLETE and gang.reason != Reason.QUOTA)
    return gang.since if short else 0.0


def submission(state: LedgerState, job_state: JobState) -> float:
    """When the job was submitted (Unix s), by its pods, its Gang and its owner."""
    at, gang = job_state.submitted, job_state.recorded.gang
    record = state.owners.records.get(
        job_state.owner.uid if job_state.owner is not None else job_state.key.uid
    )
    made = record.created if record is not None and record.namespace == job_state.key.namespace else 0.0
    if job_state.recorded.submitted and (not at or job_state.recorded.submitted < at):
        written = gang.created - state.profile.incomplete if gang is not None and gang.created else 0.0
        at = min(at or job_state.recorded.submitted, max(job_state.recorded.submitted, made or written))
    return max(at, made, job_state.queued_from)


def tell(state: LedgerState, key: JobKey, reason: str, length: float) -> Iterator[Action]:
    """An Event for a job that loses its place, or that has lost it. length: seconds in which it was not whole."""
    job_state = state.entries[key]
    job = job_state.job
    if job is None:
        return
    for_so_long = duration(Seconds(length))
    message = (
        f"the job has not been whole for {for_so_long}: its place in the queue is not kept any longer, and "
        "counts from the moment when it is whole"
        if reason == TOO_LONG
        else f"the job is whole now, after {for_so_long} in which it was not: its place in the queue counts from "
        "now"
    )
    yield from told(
        key, job, job_state.recorded.gang, reason, message, warning=reason == TOO_LONG, waits=True
    )


def _whole(job: Job) -> bool:
    return all(role.ready >= role.min for role in job.roles) and any(role.ready for role in job.roles)


def _own_doing(job: Job) -> bool:
    if job.suspended:
        return True
    if _whole(job) or job.quota[0] or job.reservations or not any(role.members for role in job.roles):
        return False
    return any(role.held for role in job.roles) or not (job.expects or job.ordered)
