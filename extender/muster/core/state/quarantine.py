"""What raises is put aside, alone: an object that can't be taken in, a job that can't be built, planned or adopted.

Nothing here is expected to happen: everything that a tenant writes is bounded where it enters (core.bounds). What
raises all the same costs its own job its turn and nobody else anything: the job is Invalid with the reason Internal,
what it uses stays charged, what runs of it goes on, and it does not start. It is tried again when something of it
changes, at most after PAUSE_FIRST seconds, doubling to PAUSE_MOST. Each new error is a Fault for the driver's log and
counter; the sentence that its owner reads says nothing of it, nor of anybody else's objects.

Planning is pure, so the culprit of a plan that raises is found by planning again: without the job that was at hand,
or, where many were (a Share plugin sees all of them), by halving the list of jobs until the plan of the first n of
them is made and that of n + 1 is not. A namespace with more than a few culprits is put aside whole, so that nobody
makes a cycle long by the number of his jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from muster.core.culprit import culprit
from muster.core.cycle import cycle
from muster.core.placement.cycle_state import StumbledError
from muster.core.state.job_builder import is_alive
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState, Quarantined
from muster.core.workload import identity
from muster.points import Profile
from muster.types import (
    Fault,
    Job,
    JobKey,
    Member,
    Phase,
    Plan,
    Reason,
    Role,
    Shape,
    Snapshot,
    State,
    Status,
)

PAUSE_FIRST, PAUSE_MOST = 1.0, 64.0
"""Seconds for which a job is put aside at least: the first time, doubling up to the most."""
FEW = 2
"""Culprits of one namespace in one cycle, after which all of it is put aside for that cycle's pause."""
SPACES = 8
"""Namespaces of the culprits of one cycle beyond which it is no job's fault."""
STAGES = ("decode", "apply", "build", "plan", "adopt", "devices", "view", "page")
"""Where something may raise: label `stage` of muster_quarantined_total."""
SENTENCES: Mapping[str, str] = {
    "decode": "one of its objects could not be read",
    "apply": "one of its pods, owners or Gangs could not be taken in",
    "build": "what its pods and owners declare could not be put together",
    "plan": "it could not be planned",
    "adopt": "what was planned for it could not be carried out",
    "devices": "its devices could not be counted",
}


def sentence(stage: str) -> str:
    """Why a job is put aside, for its owner: constant text, so that it tells nothing of others."""
    return (
        f"an error of Muster's own: {SENTENCES.get(stage, stage)}; what runs of it goes on, none of it starts; it "
        "is tried again by itself and when its pods change (muster's log has the error)"
    )


# ---- jobs ----


def set_aside(
    state: LedgerState, key: JobKey, stage: str, error: Exception, now: float, what: str = ""
) -> None:
    """Put a job aside for a while; the error is a Fault where it is another one than last time. what: over which of
    its objects it was raised."""
    before = state.quarantined.get(key)
    said = f"{stage}: {error!r}"[:400]
    subject = f"{key} ({what})" if what else str(key)
    state.faults.append(Fault(stage, subject, error, again=before is not None and before.said == said))
    if before is not None and now < before.until:
        return  # it is, and not even that can be told
    length = PAUSE_FIRST if before is None else min(2.0 * before.length, PAUSE_MOST)
    state.quarantined[key] = Quarantined(now + length, length, stage, said)
    state.again(key, now + length)
    if key in state.entries:
        state.dirty.add(key)


def stumbled(state: LedgerState, stage: str, error: Exception) -> None:
    """What raised over no job in particular: said, and once only while it is the same."""
    said = f"{stage}: {error!r}"[:400]
    state.faults.append(Fault(stage, "", error, again=state.stumbled.get(stage) == said))
    state.stumbled[stage] = said


def devices_failed(state: LedgerState, found: Mapping[JobKey | None, Exception], now: float) -> None:
    """Jobs over whose devices it raised are put aside: the others are planned as ever from the next cycle on. None:
    over no job's."""
    for key, error in found.items():
        if key is None:
            stumbled(state, "devices", error)
        else:
            set_aside(state, key, "devices", error, now)


def put_aside(state: LedgerState, key: JobKey, now: float) -> str:
    """The stage in which the job was put aside, "" where it is not, or is to be tried again."""
    kept = state.quarantined.get(key)
    if kept is None:
        return ""
    if now < kept.until:
        state.again(key, kept.until)
        return kept.stage
    if now >= kept.until + kept.length:
        del state.quarantined[key]  # it was tried, and went well since
    return ""


def bare_job(job_state: JobState, stage: str) -> Job:
    """A job put aside: what is there of it, and nothing that it declares."""
    members = tuple(
        Member(
            pod.uid,
            pod.name,
            pod.phase,
            pod.shape,
            node=pod.node or pod.pin,
            created=pod.created,
            evictable=False,
            pinned=bool(pod.pin),
        )
        for pod in sorted(job_state.pods.values(), key=lambda p: (p.created, p.name))
        if is_alive(pod)
    )
    shape = members[0].shape if members else Shape()
    started = any(m.phase.on_node or (m.phase is Phase.UNGATED and bool(m.node)) for m in members)
    role = Role(identity.DEFAULT_ROLE, max(1, len(members)), max(1, len(members)), shape, members=members)
    return Job(
        job_state.key,
        submitted=job_state.submitted,
        roles=(role,),
        owner=job_state.job.owner if job_state.job is not None else None,
        reservations=job_state.planned,
        started=started,
        started_at=job_state.started_at,
        since=job_state.since,
        invalid=sentence(stage),
        quarantined=True,
    )


# ---- plans ----


class Planned(NamedTuple):
    """A plan, and the jobs that it does without, with what they raised. blameless: a Share plugin failed, and that is
    no job's fault."""

    plan: Plan
    culprits: Mapping[JobKey, Exception]
    blameless: bool = False


def planned(snapshot: Snapshot, profile: Profile, *, halve: bool = True) -> Planned:
    """The cycle's plan, without the jobs over which it raises. halve: look for those over which a Share plugin fails.

    Raises what the cycle raises where that is no job's fault: it does so without any job, over jobs of
    everybody, or of more than SPACES namespaces. A Share plugin of which that is true is left out, as without this.
    """
    jobs = dict(snapshot.jobs)
    culprits: dict[JobKey, Exception] = {}
    first = tried = _try(snapshot, profile, jobs)
    while tried.error is not None and (tried.plan is None or halve):
        key = tried.at if tried.at in jobs else _search(snapshot, profile, jobs)
        if key is not None:
            culprits[key] = tried.error
            del jobs[key]
            _crowd(key.namespace, jobs, culprits, tried.error)
        spaces = {one.namespace for one in culprits}
        everybodys = len(spaces) > 1 and not jobs
        if key is None or everybodys or len(spaces) > SPACES:
            if first.plan is not None:
                return Planned(first.plan, {}, blameless=True)
            raise tried.error
        tried = _try(snapshot, profile, jobs)
    assert tried.plan is not None
    return Planned(_without(tried.plan, snapshot, culprits), culprits)


def _crowd(
    namespace: str, jobs: dict[JobKey, Job], culprits: dict[JobKey, Exception], error: Exception
) -> None:
    """All of a namespace's jobs are put aside where many of them would be found one by one."""
    if sum(1 for key in culprits if key.namespace == namespace) > FEW:
        for key in [key for key in jobs if key.namespace == namespace]:
            culprits[key] = error
            del jobs[key]


def _without(plan: Plan, snapshot: Snapshot, culprits: Mapping[JobKey, Exception]) -> Plan:
    """The plan, and what becomes of the jobs that it does without: none of them starts, what runs goes on."""
    if not culprits:
        return plan
    jobs = [snapshot.jobs[key] for key in culprits]
    given_up = {job.key: () for job in jobs if job.reservations and not job.started}
    statuses = {key: Status(State.INVALID, Reason.INTERNAL, sentence("plan")) for key in culprits}
    return replace(
        plan, reservations={**plan.reservations, **given_up}, statuses={**plan.statuses, **statuses}
    )


class _Tried(NamedTuple):
    plan: Plan | None
    error: Exception | None
    at: JobKey | None


def _try(snapshot: Snapshot, profile: Profile, jobs: Mapping[JobKey, Job]) -> _Tried:
    """One cycle over some of the jobs. A Share plugin that failed counts as an error beside the plan."""
    some = snapshot if len(jobs) == len(snapshot.jobs) else replace(snapshot, jobs=jobs)
    try:
        plan = cycle(some, profile)
    except StumbledError as stumble:
        return _Tried(None, stumble.cause, stumble.at)
    except Exception as error:
        return _Tried(None, error, None)
    return _Tried(plan, plan.failed[0] if plan.failed else None, None)


def _search(snapshot: Snapshot, profile: Profile, jobs: Mapping[JobKey, Job]) -> JobKey | None:
    """A job without which a plan is made that is not made with it, by halving; None where it is no job's fault."""

    def step(keys: Sequence[JobKey]) -> None:
        error = _try(snapshot, profile, {key: jobs[key] for key in keys}).error
        if error is not None:
            raise error

    return culprit(sorted(jobs), step)
