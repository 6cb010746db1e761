"""Replicas that leave while their job goes on: evicted, called back when a later plan wants them; a resize begins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from muster.core.actions.evict import REFUSED, evict
from muster.core.sharing.shrink import stands
from muster.core.state.blockers import KEEPS_FIRST, KEEPS_MOST, stays
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.types import (
    Action,
    EndReason,
    Evict,
    Grant,
    Job,
    JobKey,
    Outcome,
    Phase,
    Plan,
    Shrink,
    Snapshot,
    WriteGang,
    elastic_role,
)


def restart_on(job: Job, plan: Plan, going: Collection[str], *, rounds: bool) -> tuple[str, ...]:
    """Where the elastic role of a job is to start again that leaves all of its places, while some of the next are not
    free yet; nothing of any other. Until they are, its policy must not take it for one that has few, or waits.
    going: uids of its replicas that the plan ends, whose places go with them. rounds: the policy decides in rounds;
    then so for a job that waited and was granted what others are still to leave: the next cycles ask nobody, and
    would give it to the next. Nor do they know that devices come free whose pod has just gone: who finds no place
    until then is still on its way."""
    if rounds and not plan.shared and not _finds(job, plan):
        return job.restart_on
    granted = rounds and plan.shared and not job.bound
    if job.key not in plan.later or not (going or job.restart_on or granted):
        return ()
    if len(going) < sum(role.bound for role in job.roles if not role.devices):  # devices leave with their pod
        return ()
    kept = [place for place in plan.reservations.get(job.key, ()) if place.uid not in going]
    places = (*kept, *plan.later[job.key])
    return tuple(sorted(place.node for place in places if place.role == elastic_role(job).name))


def _starts_again(job: Job, plan: Plan, going: Collection[str]) -> bool:
    """Whether the plan ends all of a job that runs and has places for it, free or not yet. going: uids of who leaves;
    devices leave with their pod."""
    if not going or not (plan.reservations.get(job.key) or plan.later.get(job.key)):
        return False
    return all(m.uid in going for role in job.roles if not role.devices for m in role.members if stands(m))


def keep_grants(state: LedgerState, snapshot: Snapshot, plan: Plan) -> None:
    """What each job is granted, and whether all of it leaves to start again, for the next plan and for its Gang."""
    leaving: dict[JobKey, list[str]] = {}
    for shrink in plan.shrinks:
        leaving.setdefault(shrink.job, []).append(shrink.uid)
    for key in plan.shares:
        job_state = state.entries.get(key)
        if job_state is None:
            continue
        job, going = snapshot.jobs[key], leaving.get(key, ())
        grant, on = next_run(job, plan, going, rounds=state.profile.round > 0.0)
        desired = job_state.desired
        again = frozenset(going if _starts_again(job, plan, going) else ())
        desired.leaves_whole = again | (desired.leaves_whole & desired.leaving)
        desired.tells(grant, snapshot.now)
        if (desired.grant, desired.restart_on) != (grant, on):
            desired.grant, desired.restart_on = grant, on
            state.heard.add(key)


def told_to_leave(state: LedgerState, job_state: JobState, job: Job, now: float) -> Iterator[Action]:
    """Who was to leave when an earlier leader died and has not been told yet: what it began with is not undone."""
    for member in (m for role in job.roles for m in role.members if m.uid in job_state.desired.leaving):
        if member.evictable and member.phase is Phase.ENDING:
            why = "it starts again elsewhere, as was decided before Muster's leader changed"
            yield from evict(state, job_state.key, member.uid, EndReason.MOVE, why, now)


def recorded_first(state: LedgerState, actions: Iterable[Action]) -> Iterator[Action]:
    """Without evictions of jobs that are to start again, where a write of the Gang is under way, or about to be, and
    it does not tell that yet: they wait for the answer (`let_out`), or a leader who dies in between would leave a
    part of a job, and places that nobody keeps for it."""
    for action in actions:
        one = state.entries.get(action.job) if isinstance(action, Evict) else None
        if isinstance(action, Evict) and one is not None and _to_be_told(one, action.uid):
            state.held_back.setdefault(action.job, []).append(action)
        else:
            yield action


def _to_be_told(one: JobState, uid: str) -> bool:
    gang = one.recorded.gang
    known = gang is not None and uid in gang.leaves_whole
    return one.in_flight.gang.sent is WriteGang and uid in one.desired.leaves_whole and not known


def let_out(state: LedgerState, *, told: bool = True) -> tuple[Evict, ...]:
    """Evictions whose write is answered, whatever the answer is: it is no reason for a job not to move. told:
    False for those for which an earlier write was under way: it told nothing of them, theirs comes with a plan."""
    found: list[Evict] = []
    for key, held in list(state.held_back.items()):
        one = state.entries.get(key)
        if one is not None and one.in_flight.gang.sent is not None:
            continue
        del state.held_back[key]
        for each in held:
            if (one is None or each.uid in one.in_flight.leaves) == told:
                found.append(each)
            else:
                state.held_back.setdefault(key, []).append(each)
    return tuple(found)


def _finds(job: Job, plan: Plan) -> bool:
    """Whether it has a place, by the plan now or later."""
    return bool(job.bound or plan.reservations.get(job.key) or plan.later.get(job.key))


def next_run(
    job: Job, plan: Plan, going: Collection[str], *, rounds: bool
) -> tuple[Grant | None, tuple[str, ...]]:
    """What is granted to a job beside a number, and where it is to start again: see `restart_on`."""
    on = restart_on(job, plan, going, rounds=rounds)
    return (plan.grants.get(job.key) if _finds(job, plan) or not on else job.grant), on


def out_of_round(state: LedgerState, plan: Plan) -> None:
    """Who is out of the queue when a round begins has nothing of the last one when it is back."""
    for key, job_state in state.entries.items() if state.profile.round else ():
        if job_state.desired.restart_on and key not in plan.shares:
            job_state.desired.restart_on = ()
            state.heard.add(key)


def overtake(state: LedgerState, plan: Plan) -> None:
    """Evictions that an earlier plan decided and that have not begun are called back where this plan makes the job
    larger again. Not of one that starts again: without those that leave it has nothing, so any plan makes it larger,
    and a part called back would be old and new places together."""
    shrinking: dict[JobKey, JobState] = {}
    for key in state.shrinking:
        job_state = state.entries.get(key)
        if job_state is None:
            continue
        job_state.desired.leaves_whole &= job_state.desired.leaving
        if job_state.desired.leaving:
            shrinking[key] = job_state
    state.shrinking = set(shrinking)
    state.overtaken = frozenset(
        uid
        for key, job_state in shrinking.items()
        if not job_state.desired.leaves_whole and _grows(state, key, plan)
        for uid in job_state.desired.leaving
        if job_state.in_flight.of(uid).sent is Evict
    )


def let_go(state: LedgerState, plan: Plan, shrink: Shrink, now: float) -> Iterator[Action]:
    """A replica leaves while its job goes on."""
    evictions = tuple(evict(state, shrink.job, shrink.uid, shrink.reason, shrink.cause, now))
    if evictions:
        job_state = state.entries[shrink.job]
        job_state.desired.leaving |= {shrink.uid}
        state.shrinking.add(shrink.job)
        begin_change(state, job_state, plan, now, leaves=True)
        state.dirty.add(shrink.job)
    yield from evictions


def _grows(state: LedgerState, key: JobKey, plan: Plan) -> bool:
    """Whether the plan gives the job more replicas than stay without those that leave."""
    job = state.jobs.get(key)
    return job is not None and job.elastic is not None and plan.shares.get(key, 0) > job.elastic.bound


def begin_change(
    state: LedgerState, job_state: JobState, plan: Plan, now: float, *, leaves: bool = False
) -> None:
    """A change of a running job's size begins, or of its place (some of it leaves, and its share is what stands); the
    next one counts once this one is complete."""
    key, job = job_state.key, job_state.job
    if job_state.desired.changing or job is None or not job.bound or job.elastic is None:
        return
    standing = sum(1 for member in job.elastic.members if stands(member))
    share = plan.shares.get(key, standing if leaves else None)
    if share is None:
        return
    moves = leaves and share == standing
    job_state.desired.changing = "move" if moves else "resize"
    facts = job_state.facts
    job_state.facts = replace(
        facts, last_resize=now, resizes=facts.resizes + (not moves), moves=facts.moves + moves
    )
    state.dirty.add(key)


def shrunk(state: LedgerState, job_state: JobState, uid: str, outcome: Outcome, now: float) -> None:
    """One that was to leave leaves, or may not: then its job stays as large as it is for a time that doubles."""
    if 200 <= outcome.status < 300:
        # While others of it may be refused, or were, the pause stays: what goes of it is made again, and ended again.
        awaited = any(job_state.in_flight.of(other).sent is Evict for other in job_state.desired.leaving)
        if not (awaited or job_state.shrink_blocked_by):
            job_state.shrink_blocked_for = 0.0
        return
    job_state.desired.leaving -= {uid}
    facts = job_state.facts
    if job_state.desired.changing == "move":
        job_state.facts = replace(facts, moves=max(0, facts.moves - 1))
    elif job_state.desired.changing:
        job_state.facts = replace(facts, resizes=max(0, facts.resizes - 1))
    job_state.desired.changing = ""
    if outcome.status == REFUSED:
        stays(
            state, job_state, outcome, min(2 * job_state.shrink_blocked_for or KEEPS_FIRST, KEEPS_MOST), now
        )
