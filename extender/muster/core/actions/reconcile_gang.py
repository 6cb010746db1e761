"""One job: what its Gang records (`JobState.recorded`) against what the plan wants of it, and what is in flight.

What is to be done follows from that comparison, in `diff`: the Gang is written where a `Part` of it is stale, the
first gate comes off with the placement, or the others of what is recorded.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from muster.core.actions.gang_names import named
from muster.core.actions.resize_events import resized
from muster.core.actions.save_learned import learn
from muster.core.actions.told_later import changes_at_once, kept_for, kept_until, starts_at_once
from muster.core.actions.transitions import enter
from muster.core.actions.ungate import carry, may_carry, ungate
from muster.core.gang_object import conditions
from muster.core.gang_object.gang_status import gang_told, sayings, sizes_of, status_of
from muster.core.progress.eta import outlook
from muster.core.state.blockers import quotas_awaited
from muster.core.state.job_state import JobState
from muster.core.state.quarantine import stumbled
from muster.core.state.recreated import unrecorded
from muster.core.state.reservation_usage import set_holds
from muster.core.state.state import QUIET, LedgerState
from muster.core.workload.whole import STILL, turned, whole_with
from muster.types import Action, DeleteGang, Job, Phase, Reason, Reservation, State, Status, WriteGang


def diff(state: LedgerState, job_state: JobState, job: Job, status: Status, now: float) -> Iterator[Action]:
    """What is to be done about one job: its Gang written, or deleted long after its end, and gates taken off."""
    job_state.said = None
    _clock(state, job_state, job, status, now)
    yield from gang_told(job_state)
    yield from resized(state, job_state, job, status, now)
    if status.state is State.FINISHED:
        yield from _finished(state, job_state, job, status, now)
        return
    if job_state.recorded.gang is None and _only_ends(job):
        return
    if (job.suspended or job.over) and not job.reservations and job_state.planned:
        set_holds(state, job_state, ())  # the plan knows of none: nothing more of it starts
    reservations = job_state.planned
    telling = _telling(job, status, reservations)
    if job_state.in_flight.start:
        return  # what becomes of that request decides what there is to tell
    unrecorded = any(h.uid and not job_state.records(h) for h in reservations)
    if unrecorded and may_carry(state, job_state, job, reservations):
        first = carry(state, job_state, job, reservations, now)
        if first is not None:
            yield from sayings(job_state, job, status, None, now)
            yield first
        return
    if unrecorded or not starts_at_once(state, job_state, status, now):
        sent = job_state.in_flight.gang.sent is not None
        job_state.in_flight.again |= sent and telling != job_state.in_flight.told
        stale = Part.PLACES if unrecorded else _stale(state, job_state, job, status, telling, now)
        if stale is not None:
            at_once = stale is Part.PLACES or (
                stale is Part.TOLD and status.reason is not Reason.PODS_MISSING
            )
            yield from _write(state, job_state, job, status, telling, now, quiet=not at_once)
        elif not (sent or reservations or state.owners.of_queue(job_state.pods.values())):
            # A cycle changes a few of 10,000 jobs, and whatever is learnt of one makes its Job again.
            job_state.said = (job, status)
    if status.state is not State.INVALID or job.started:  # else none of it starts
        yield from ungate(state, job_state, job, reservations, now)


class Part(enum.Enum):
    """Of what a Gang records, what may be stale: another value is wanted. The first two say how soon it is told."""

    PLACES = "status.placement"
    TOLD = "state, reason, message and replicas"
    GANG = "the object itself"
    FORM = "the names of its fields"
    SIZES = "min and max of its roles"
    NODE_BACKOFFS = "status.ledger.barred"
    ASKED = "status.ledger.asked"
    RECREATED = "status.ledger.recreated"
    KEEPS = "status.keeps"
    SILENT = "status.shareReason"
    STAYS = "status.ledger.elastic: leavesWhole, restartOn"
    OBSERVED = "status.ledger.elastic"


def _stale(
    state: LedgerState, job_state: JobState, job: Job, status: Status, telling: Telling, now: float
) -> Part | None:
    """The first of what is recorded of a job and is not what is wanted, its places apart."""
    recorded = job_state.recorded
    # While a start is on its way only its placement is worth a write; counts follow when it is complete.
    moving = status.state in (State.STARTING, State.RESIZING)
    told = telling[:3] == recorded.told[:3] and (moving or telling[3] == recorded.told[3])
    granted = _granted(state, job_state)
    if (not told or recorded.granted not in (granted, None)) and not changes_at_once(
        state, job_state, status, now
    ):
        return Part.TOLD
    if recorded.gang is None:
        return Part.GANG
    if recorded.old:
        return Part.FORM
    if not moving and recorded.sizes is not None and sizes_of(job) != recorded.sizes:
        return Part.SIZES
    if any(bar.until > now and bar not in recorded.node_backoffs for bar in job_state.node_backoffs.values()):
        return Part.NODE_BACKOFFS
    if job_state.asked != recorded.asked:
        return Part.ASKED
    if unrecorded(job_state, moving=moving):
        return Part.RECREATED
    if (job.shrink_blocked_by or job.rigid) != recorded.keeps:
        return Part.KEEPS
    if job.silent != recorded.silent:
        return Part.SILENT
    if any(uid in job_state.pods for uid in recorded.gang.leaves_whole - job_state.desired.leaves_whole):
        return Part.STAYS  # else the next leader would end a job that goes on
    if recorded.gang.restart_on and not (job_state.desired.restart_on or job_state.planned):
        return Part.STAYS  # else it would end who has started there
    return Part.OBSERVED if _lived_on(state, job_state, now) else None


Telling = tuple[str, str, str, str]
"""State, reason, message and replicas (bound/wanted), as a Gang has them."""


def _telling(job: Job, status: Status, reservations: tuple[Reservation, ...]) -> Telling:
    wanted = max(job.bound + len(reservations), sum([role.min for role in job.roles]))
    return str(status.state), str(status.reason), status.message, f"{job.bound}/{wanted}"


def _granted(state: LedgerState, job_state: JobState) -> int | None:
    """GPUs that it is granted in place; None: it is not in place."""
    found = state.in_place.devices_of(job_state.key) if state.in_place is not None else None
    return found.granted if found is not None else None


def _only_ends(job: Job) -> bool:
    """Whether all that is there of it are pods that are ending. Where its owner is deleted, the garbage collector has
    taken its Gang and would take each new one, as long as a dead node keeps such pods; and the next job of that name
    could not have its own."""
    members = [m for r in job.roles for m in r.members]
    return bool(members) and all(m.phase is Phase.ENDING for m in members)


def _lived_on(state: LedgerState, job_state: JobState, now: float) -> bool:
    """Whether what the job attained or reported, or why it has its share, is worth a write: with any other one,
    else once in a while."""
    runs = job_state.job is not None and job_state.job.bound > 0 and job_state.key in state.whys
    kept = kept_for(job_state)
    if all(new is old for new, old in zip(job_state.observed, job_state.recorded.observed, strict=True)):
        if not runs:
            return False
        if (
            now >= job_state.recorded.observed_at + kept
            and state.whys.get(job_state.key, "") == job_state.desired.why
        ):
            job_state.recorded.observed_at = now  # looked at: it still holds
    if job_state.recorded.gang is None or now >= job_state.recorded.observed_at + kept:
        return True
    state.again(job_state.key, kept_until(job_state))
    return False


def _clock(state: LedgerState, job_state: JobState, job: Job, status: Status, now: float) -> None:
    """Since when it is what it is: its state, below its minimum, started."""
    before = job_state.state
    impossible = enter(job_state, status, now)
    if impossible is not None:
        stumbled(state, "adopt", impossible)
    if job_state.state != before:
        state.dirty.add(job_state.key)
    job_state.conditions = conditions.updated(job_state.conditions, status, job_state.since or now, now)
    below = job.started and status.state is State.STARTING
    clock = turned(job_state.clock, job, now) if below else STILL
    if clock.since and clock.since != job_state.clock.since:
        state.requeue_at.add(clock.since + state.profile.timeout)
    if clock != job_state.clock:
        job_state.clock = clock
        state.dirty.add(job_state.key)
    if status.state not in (State.STARTING, State.RUNNING, State.RESIZING):
        job_state.begun = None
    elif job_state.begun is None and job_state.whole is None:
        job_state.begun = {role.name: role.min for role in job.roles}
    reads = not (job.over or job.suspended or job.invalid)
    whole = whole_with(job_state.whole, job) if reads else job_state.whole
    if status.state in (State.FINISHED, State.SUSPENDED):
        whole = None
    if whole is not job_state.whole:
        job_state.whole = whole
        state.dirty.add(job_state.key)
    if status.state is State.RUNNING and (not job_state.started_at or job_state.backoff):
        job_state.started_at = job_state.started_at or now
        job_state.backoff, job_state.not_before = 0, 0.0
        state.dirty.add(job_state.key)
    if status.state is State.RUNNING:
        job_state.desired.sent_back = job_state.desired.evicted = False
    if status.state is not State.FINISHED:
        job_state.ended_at = 0.0


def _write(
    state: LedgerState,
    job_state: JobState,
    job: Job,
    status: Status,
    telling: Telling,
    now: float,
    *,
    quiet: bool,
) -> Iterator[Action]:
    """The Gang, unless a write of it is under way, was refused a moment ago, or (quiet) more pods may be coming."""
    if state.waits(job_state.in_flight.gang, now):
        job_state.in_flight.again |= job_state.in_flight.gang.sent is not None
        return
    if quiet and now - job_state.newest_pod < QUIET:
        state.requeue_at.add(job_state.newest_pod + QUIET)
        return
    if status.reason is Reason.PODS_MISSING and (until := quotas_awaited(state, job_state)) > now:
        state.requeue_at.add(until)
        return
    job_state.in_flight.gang, job_state.in_flight.wrote = job_state.in_flight.gang.sends(WriteGang), True
    job_state.in_flight.told, job_state.in_flight.leaves = telling, job_state.desired.leaves_whole
    job_state.desired.why = state.whys.get(job_state.key, "")
    reservations = job_state.planned
    turn = state.turn(job_state.key, status)
    name, other = named(state, job_state)
    yield WriteGang(
        job=job_state.key,
        gang=name,
        owner=job.owner,
        status=status_of(
            job_state,
            job,
            telling,
            turn,
            reservations,
            outlook(job, state.believed(job), now),
            now,
            state.in_place.devices_of(job_state.key) if state.in_place is not None else None,
        ),
        exists=job_state.recorded.gang is not None,
        declared_by=job_state.owner if job.owner is not None and job_state.owner != job.owner else None,
        reservations=reservations,
        sizes=sizes_of(job),
        node_backoffs=frozenset(job_state.node_backoffs.values()),
        asked=job_state.asked,
        granted=_granted(state, job_state),
        silent=job.silent,
        turn=turn,
        observed=job_state.observed,
        leaves_whole=job_state.desired.leaves_whole,
        replaces=other,
        cause=f"{status.state}: {status.message}",
    )
    # That a start has begun which a pod carries was said with its first gate.
    if telling[1:3] != job_state.recorded.told[1:3] and not (
        job_state.carried and status.reason is Reason.BINDING
    ):
        yield from sayings(job_state, job, status, turn, now)


def rewrite(
    state: LedgerState, job_state: JobState, job: Job, status: Status, now: float
) -> Iterator[Action]:
    """The Gang of a job of which nothing is new but what is not compared."""
    telling = _telling(job, status, job_state.planned)
    yield from _write(state, job_state, job, status, telling, now, quiet=False)


def _finished(
    state: LedgerState, job_state: JobState, job: Job, status: Status, now: float
) -> Iterator[Action]:
    """Said once, and removed a set time later; an owner that is deleted takes its Gang along anyway."""
    gang = job_state.recorded.gang
    if not job_state.ended_at:
        if gang is None or not gang.ended:
            learn(state, job_state, job)
        job_state.ended_at = (gang.ended if gang is not None else 0.0) or now
    if job_state.planned:
        set_holds(state, job_state, ())
    telling = (str(State.FINISHED), str(status.reason), status.message, "0/0")
    late = now >= job_state.ended_at + state.profile.ttl_after_finished
    if gang is None and (late or not job_state.pods):
        return  # it was removed, or there is nothing of the job that it could tell
    if gang is not None and late:
        if not state.waits(job_state.in_flight.gang, now):
            job_state.in_flight.gang = job_state.in_flight.gang.sends(DeleteGang)
            yield DeleteGang(job_state.key, gang.name, gang.object_uid, "the job ended long ago")
        return
    state.requeue_at.add(job_state.ended_at + state.profile.ttl_after_finished)
    unsaid = telling[:3] != job_state.recorded.told[:3] or job_state.recorded.old
    if unsaid and (gang is not None or job_state.started_at or job_state.carried):
        yield from _write(state, job_state, job, status, telling, now, quiet=False)
