"""What a job has lived through by now, for its Job: GPU time, resizes, reports, silences, what keeps it large."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from muster.core.progress import learned, report_filter
from muster.core.progress.attained_service import attained
from muster.core.progress.measure import changed
from muster.core.state.blockers import keeps
from muster.core.state.job_state import UNTOUCHED, JobState
from muster.core.state.state import LedgerState
from muster.types import Job

SUCCESSOR = 10.0
"""Seconds for which the place of an evicted replica waits for its successor before another one takes it."""

CREATING = 3.0
"""Seconds after a job's newest pod (whole seconds) in which its owner may make more of them: pods
come in any order, and a place waits for the lowest index meanwhile."""

FIELDS = tuple(field.name for field in fields(Job) if field.init)
_values = attrgetter(*FIELDS)
"""Of a Job, all at once: with dataclasses.replace a copy takes half as long again, and a start makes several."""

LISTENED = 10.0
"""Silences are looked for at whole multiples of this (s), all that are due together: a thousand jobs report."""


def lived(memory: LedgerState, entry: JobState, job: Job, now: float) -> Job:
    """The job with what it has attained and reported so far."""
    config = report_filter.config_of(job, memory.product_of)
    changing = bool(job.reservations) or any(len(role.on) > role.bound for role in job.roles)
    before = entry.track.config
    if config != before or (entry.track.change is not None and not changing):
        stops = entry.desired.sent_back
        cause = "stop" if stops else "start" if not before.roles else "resize"
        if cause == "resize" and config.roles == before.roles:
            cause = "move"
        entry.track = changed(entry.track, config, now, cause, whole=not changing)
    costs = report_filter.costs(entry.track)
    facts = entry.facts
    if job.running or facts is not UNTOUCHED:
        facts = attained(facts, job.roles, config, job.speed, now, changing=changing)
    if facts.costs != costs:
        facts = replace(facts, last_cost=report_filter.cost(entry.track), costs=costs)
    entry.facts = facts
    if entry.shrink_blocked_by:
        if entry.shrink_blocked_until <= now:
            entry.shrink_blocked_by = ""
            memory.guarded_jobs.discard(entry.key)
        else:
            memory.again(entry.key, entry.shrink_blocked_until)
    until = entry.returning + SUCCESSOR
    if any(len(role.members) + role.ended < role.max for role in job.roles):
        until = max(until, entry.newest_pod + CREATING)
    if job.expects and now < until:
        memory.again(entry.key, until)
        job = replace(job, returning=True)
    if not changing and job.bound:
        entry.desired.changing = ""
    if job.model and entry.facts is UNTOUCHED and learned.MEMORY not in entry.memory:
        taught = memory.lessons.of(job)
        if taught is not None:
            entry.memory = {**entry.memory, learned.MEMORY: learned.plain_lesson(taught)}
    if entry.facts is UNTOUCHED and entry.track is report_filter.EMPTY and not entry.memory:
        return job  # nearly every job of a long queue
    known: dict[str, Any] = dict(zip(FIELDS, _values(job), strict=True))
    known |= {
        "facts": entry.facts,
        "report": report_filter.report(entry.track),
        "samples": report_filter.samples(entry.track),
        "memory": entry.memory,
        "grant": entry.desired.grant,
        "shrink_blocked_by": keeps(memory, entry, job),
        "silent": _silent(memory, entry, now),
    }
    return Job(**known)


def _silent(memory: LedgerState, entry: JobState, now: float) -> float:
    """Job.silent; where it is 0, the job is looked at again when it could be silent."""
    listens = math.inf if memory.listens is None else memory.listens
    begins = report_filter.silent_from(entry.track, listens)
    if begins <= now:
        return entry.track.heard
    if begins < math.inf:
        memory.again(entry.key, math.ceil(begins / LISTENED) * LISTENED)
    return 0.0
