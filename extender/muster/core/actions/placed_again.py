"""A running job that is placed again: its Gang records who leaves, with the next places, before anybody is ended.

As gates come off for recorded places only. So whenever a leader dies the job has what it had, or the next one knows
who of it is still to leave (`status.ledger.leaving`) and where it is to start again, and goes on with that. It could
not find that out: replicas that run and places beside them are what a job that grows has, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from muster.core.actions.evict import evict, may_evict
from muster.core.sharing.shrink import stands
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.types import Action, EndReason, Job, JobKey, Phase, Role


def leaves(job_state: JobState, uid: str, cause: str) -> None:
    """A replica is to leave, once that is recorded."""
    job_state.desired.unsent = {**job_state.desired.unsent, uid: cause}


def go_on(state: LedgerState, key: JobKey, now: float) -> Iterator[Action]:
    """Who is recorded to leave does, where the plan has places for the next ones, or nothing for the job; else they
    stay."""
    job_state = state.entries[key]
    desired, job, gang = job_state.desired, job_state.job, job_state.recorded.gang
    if not desired.unsent or job is None:
        return
    wanted = _wanted(state, job)
    evictable = {member.uid for role in job.roles for member in role.members if wanted and member.evictable}
    recorded = frozenset(gang.leaving) if gang is not None else frozenset()
    for uid, cause in desired.unsent.items():
        pod = job_state.pods.get(uid)
        if pod is None or pod.deleting or pod.phase.ended:
            desired.sends(uid)
        elif uid not in evictable:
            stays_after_all(job_state, uid)
            state.dirty.add(key)
        elif uid in recorded and may_evict(state, job_state, uid, now):
            desired.sends(uid)
            yield from evict(state, key, uid, EndReason.MOVE, cause, now)


def _wanted(state: LedgerState, job: Job) -> bool:
    """Whether the last plan still has it go: it is to run elsewhere, or not at all."""
    if job.invalid or job.over or job.suspended or job.released:
        return False
    plan, key = state.queue, job.key
    places = plan.reservations.get(key) or plan.later.get(key)
    return bool(places) or key in plan.preempted or key in plan.back


def unrecorded(job_state: JobState) -> bool:
    """Whether somebody is to leave, and its Gang does not say so, or stays although it does."""
    gang, desired = job_state.recorded.gang, job_state.desired
    recorded = frozenset(gang.leaving) if gang is not None and gang.leaving else frozenset[str]()
    if not desired.unsent.keys() <= recorded:
        return True
    stay = [pod for uid in recorded if uid not in desired.leaving and (pod := job_state.pods.get(uid))]
    return any(not (pod.deleting or pod.phase.ended) for pod in stay)


def as_left(job_state: JobState, job: Job) -> Job:
    """The job without who is to leave: as the next plan sees it, and as its Gang tells of it from now on."""
    leaving = job_state.desired.leaving
    roles = tuple([_without(role, leaving) for role in job.roles]) if leaving else job.roles
    return (
        job
        if all(new is old for new, old in zip(roles, job.roles, strict=True))
        else replace(job, roles=roles)
    )


def _without(role: Role, leaving: Mapping[str, EndReason]) -> Role:
    if not any(member.uid in leaving and stands(member) for member in role.members):
        return role
    members = [
        replace(member, phase=Phase.ENDING) if member.uid in leaving and stands(member) else member
        for member in role.members
    ]
    return replace(role, members=tuple(members))


def stays_after_all(job_state: JobState, uid: str) -> None:
    """What was begun with it does not come to be."""
    job_state.desired.stays(uid)
    facts = job_state.facts
    if job_state.desired.changing == "move":
        job_state.facts = replace(facts, moves=max(0, facts.moves - 1))
    elif job_state.desired.changing:
        job_state.facts = replace(facts, resizes=max(0, facts.resizes - 1))
    job_state.desired.changing = ""
