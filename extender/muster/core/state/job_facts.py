"""What a job has lived through by now, for its Job: GPU time, resizes, reports, silences, what keeps it large."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from muster.core.devices.in_use import as_it_trains
from muster.core.progress import learned, report_filter
from muster.core.progress.attained_service import attained
from muster.core.progress.measure import changed
from muster.core.state import neighbours
from muster.core.state.blockers import keeps
from muster.core.state.job_builder import is_alive
from muster.core.state.job_state import UNTOUCHED, JobState
from muster.core.state.state import LedgerState
from muster.core.workload.identity import GPUS
from muster.core.workload.in_place import parse_gpus
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


def lived(state: LedgerState, job_state: JobState, job: Job, now: float) -> Job:
    """The job with what it has attained and reported so far."""
    if job_state.track.told_batch:
        job = replace(job, batch=job_state.track.told_batch)
    trains = _as_it_trains(state, job_state, job, now)
    config = job_state.track.config if trains is None else report_filter.config_of(trains, state.product_of)
    changing = bool(job.reservations) or any(len(role.on) > role.bound for role in job.roles)
    before = job_state.track.config
    if config != before or (job_state.track.change is not None and not changing):
        stops = job_state.desired.sent_back
        cause = "stop" if stops else "start" if not before.roles else "resize"
        if cause == "resize" and config.roles == before.roles:
            cause = "move"
        job_state.track = changed(job_state.track, config, now, cause, whole=not changing)
    costs = report_filter.costs(job_state.track)
    facts = job_state.facts
    if trains is not None and (job.running or facts is not UNTOUCHED):
        facts = attained(facts, trains.roles, config, job.speed, now, changing=changing)
    if facts.costs != costs:
        facts = replace(facts, last_cost=report_filter.cost(job_state.track), costs=costs)
    job_state.facts = facts
    if job_state.shrink_blocked_by:
        if job_state.shrink_blocked_until <= now:
            job_state.shrink_blocked_by = ""
            state.guarded_jobs.discard(job_state.key)
        else:
            state.again(job_state.key, job_state.shrink_blocked_until)
    until = job_state.returning + SUCCESSOR
    if any(len(role.members) + role.ended < role.max for role in job.roles):
        until = max(until, job_state.newest_pod + CREATING)
    if job.expects and now < until:
        state.again(job_state.key, until)
        job = replace(job, returning=True)
    elif job.expects and not job.restarting and not _is_here(job):
        job = replace(job, expects=False)  # its places have waited long enough for them
    if job_state.desired.restart_on:
        job = _starts_again(state, job_state, job, until, now)
    if not changing and job.bound:
        job_state.desired.changing = ""
    if job.model and job_state.facts is UNTOUCHED and learned.MEMORY not in job_state.memory:
        taught = state.lessons.of(job)
        if taught is not None:
            job_state.memory = {**job_state.memory, learned.MEMORY: learned.plain_lesson(taught)}
    if (
        job_state.facts is UNTOUCHED
        and job_state.track is report_filter.EMPTY
        and not job_state.memory
        and not (job_state.desired.restart_on or job.restart_on)
        and (job_state.desired.grant is None or job_state.desired.grant.beside is None)
    ):
        return job  # nearly every job of a long queue
    known: dict[str, Any] = dict(zip(FIELDS, _values(job), strict=True))
    known |= {
        "facts": job_state.facts,
        "report": report_filter.report(job_state.track),
        "samples": report_filter.samples(job_state.track),
        "memory": job_state.memory,
        "grant": job_state.desired.grant,
        "beside": job_state.track.config.beside,
        "restart_on": job_state.desired.restart_on[: job.elastic.max if job.elastic is not None else 0],
        "shrink_blocked_by": keeps(state, job_state, job),
        "silent": _silent(state, job_state, now),
    }
    if facts.batch_ignored:
        known["batch_sizes"] = ()
    return Job(**known)


def _is_here(job: Job) -> bool:
    """Whether it has a pod that another gate does not keep out of our queue."""
    return any(len(role.members) > role.held for role in job.roles)


def _starts_again(state: LedgerState, job_state: JobState, job: Job, until: float, now: float) -> Job:
    """A job of which all leaves to start again: in the queue with what is kept for it, also while none of its pods is
    there. until: its next ones are waited for so long, where no other is left (Unix s). One that the last plan had no
    share for is out of the queue: when it is back, others run there."""
    leaves = any(uid in job_state.pods for uid in job_state.desired.leaving)
    comes = job.expects or now < until or _is_here(job) or leaves
    queued = job.key in state.shares or not state.shares
    until = max(until, job_state.newest_pod + CREATING)
    if job.suspended or job.over or job.bound or not comes or not (queued or leaves or now < until):
        job_state.desired.restart_on = ()
        return job
    if now < until:
        state.again(job_state.key, until)
    described = any(role.shape.requests for role in job.roles)
    if not described or any(role.ready for role in job.roles):
        return job
    return replace(job, returning=True, restarting=True, expects=not job.quota[0])


def sizes_in_place(job_state: JobState) -> tuple[int, ...]:
    """Numbers of GPUs that it can train on in place, as its newest living pod says; () where none says any."""
    said = [
        pod.annotations[GPUS] for pod in job_state.pods.values() if GPUS in pod.annotations and is_alive(pod)
    ]
    return parse_gpus(said[-1]) if said else ()


def _as_it_trains(state: LedgerState, job_state: JobState, job: Job, now: float) -> Job | None:
    """The job by the replicas that train: GPUs, of one in place. None where nobody here knows them: by another
    replica, which leads, they are given."""
    if not state.made.in_place or job.invalid or len(job.roles) != 1:
        return job
    given = state.in_place
    sizes = sizes_in_place(job_state) or (given.sizes.get(job_state.key, ()) if given is not None else ())
    if not sizes:
        return job
    if given is None:
        return None
    job = replace(job, beside=neighbours.beside(state, job_state, job, now))
    return as_it_trains(job, sizes, given.uses)


def _silent(state: LedgerState, job_state: JobState, now: float) -> float:
    """Job.silent; where it is 0, the job is looked at again when it could be silent."""
    listens = math.inf if state.listens is None else state.listens
    begins = report_filter.silent_from(job_state.track, listens)
    if begins <= now:
        return job_state.track.heard
    if begins < math.inf:
        state.again(job_state.key, math.ceil(begins / LISTENED) * LISTENED)
    return 0.0
