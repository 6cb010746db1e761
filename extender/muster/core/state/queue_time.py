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
from muster.types import Action, Code, GangRecord, Job, JobKey, Seconds, State

TOO_LONG, ANEW = "IncompleteTooLong", "QueuesFromNow"


def seniority(memory: LedgerState, entry: JobState, job: Job, now: float) -> Job:
    """The job with its place in the queue; its clock goes on while it is not whole through its own doing."""
    patience = memory.profile.incomplete
    if job.started or job.over:
        entry.short_since, entry.short_told = 0.0, False
    elif _own_doing(job):
        entry.short_since = entry.short_since or now
        if entry.short_since + patience > now:
            memory.again(entry.key, entry.short_since + patience)
        elif not entry.short_told:
            entry.short_told = True
            memory.to_tell[entry.key] = (TOO_LONG, now - entry.short_since)
    elif entry.short_since and _whole(job):
        length = now - entry.short_since
        if length >= patience:
            entry.queued_from = now
            memory.to_tell[entry.key] = (ANEW, length)
        entry.short_since, entry.short_told = 0.0, False
    elif job.quota[0] and not entry.short_told:
        entry.short_since = 0.0
    at = submission(memory, entry)
    return job if at == job.submitted else replace(job, submitted=at)  # a Job is much to make


def short_since(gang: GangRecord) -> float:
    """Since when the job of a Gang was not whole through its own doing, as far as the Gang tells; 0 = it was."""
    short = gang.state == State.SUSPENDED or (gang.state == State.INCOMPLETE and gang.code != Code.QUOTA)
    return gang.since if short else 0.0


def submission(memory: LedgerState, entry: JobState) -> float:
    """When the job was submitted (Unix s), by its pods, its Gang and its owner."""
    at, gang = entry.submitted, entry.recorded.gang
    record = memory.owners.records.get(entry.owner.uid if entry.owner is not None else entry.key.uid)
    made = record.created if record is not None and record.namespace == entry.key.namespace else 0.0
    if entry.recorded.submitted and (not at or entry.recorded.submitted < at):
        written = gang.created - memory.profile.incomplete if gang is not None and gang.created else 0.0
        at = min(at or entry.recorded.submitted, max(entry.recorded.submitted, made or written))
    return max(at, made, entry.queued_from)


def tell(memory: LedgerState, key: JobKey, reason: str, length: float) -> Iterator[Action]:
    """An Event for a job that loses its place, or that has lost it. length: seconds in which it was not whole."""
    job = memory.entries[key].job
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
    yield from told(key, job, reason, message, warning=reason == TOO_LONG)


def _whole(job: Job) -> bool:
    return all(role.ready >= role.min for role in job.roles) and any(role.ready for role in job.roles)


def _own_doing(job: Job) -> bool:
    if job.suspended:
        return True
    if _whole(job) or job.quota[0] or job.reservations or not any(role.members for role in job.roles):
        return False
    return any(role.held for role in job.roles) or not (job.expects or job.ordered)
