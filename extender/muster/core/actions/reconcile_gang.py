"""One job: what its Gang records (`JobState.recorded`) against what the plan wants of it, and what is in flight.

What is to be done follows from that comparison, in `diff`: the Gang is written where a `Part` of it is stale, the
first gate comes off with the placement, or the others of what is recorded.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from muster.core.actions.gang_status import sayings, sizes_of, status_of
from muster.core.actions.save_learned import learn
from muster.core.actions.transitions import enter
from muster.core.actions.ungate import carry, may_carry, ungate
from muster.core.progress.eta import outlook
from muster.core.state.blockers import quotas_awaited
from muster.core.state.job_state import JobState
from muster.core.state.quarantine import stumbled
from muster.core.state.reservation_usage import set_holds
from muster.core.state.state import QUIET, LedgerState
from muster.core.workload.identity import gang_name
from muster.core.workload.whole import STILL, turned, whole_with
from muster.types import Action, Code, DeleteGang, Job, Phase, Reservation, State, Status, WriteGang

BRIEF = 5.0
"""Seconds after which a start that is recorded on its first pod is told in the Gang, too, where it is not complete
by then: nearly every Gang goes from Waiting to Running by one write."""

KEPT_EVERY = 60.0
"""Seconds between two writes of a Gang of which only progress, speeds or a plugin's memory are new."""


def diff(memory: LedgerState, entry: JobState, job: Job, status: Status, now: float) -> Iterator[Action]:
    """What is to be done about one job: its Gang written, or deleted long after its end, and gates taken off."""
    entry.said = None
    _clock(memory, entry, job, status, now)
    if status.state is State.FINISHED:
        yield from _finished(memory, entry, job, status, now)
        return
    if entry.recorded.gang is None and _only_ends(job):
        return
    reservations = entry.planned
    telling = _telling(job, status, reservations)
    if entry.in_flight.start:
        return  # what becomes of that request decides what there is to tell
    unrecorded = any(h.uid and not entry.records(h) for h in reservations)
    if unrecorded and may_carry(memory, entry, job, reservations):
        first = carry(memory, entry, job, reservations, now)
        if first is not None:
            yield from sayings(entry, job, status)
            yield first
        return
    stale = _stale(memory, entry, job, status, telling, now)
    if unrecorded:
        stale.add(Part.PLACES)
    if not unrecorded and _starts_at_once(memory, entry, status, now):
        pass
    elif stale:
        quiet = Part.PLACES not in stale and (status.code is Code.PODS_MISSING or Part.TOLD not in stale)
        yield from _write(memory, entry, job, status, telling, now, quiet=quiet)
    elif not reservations and not memory.owners.of_queue(entry.pods.values()):
        # A cycle changes a few of 10,000 jobs, and whatever is learnt of one makes its Job again.
        entry.said = (job, status)
    if status.state is not State.INVALID or job.started:  # else none of it starts
        yield from ungate(memory, entry, job, reservations, now)


class Part(enum.Enum):
    """Of what a Gang records, what may be stale: another value is wanted."""

    GANG = "the object itself"
    PLACES = "status.placement"
    TOLD = "state, code, reason and replicas"
    SIZES = "min and max of its roles"
    NODE_BACKOFFS = "status.ledger.barred"
    ASKED = "status.ledger.asked"
    KEEPS = "status.keeps"
    SILENT = "status.shareReason"
    OBSERVED = "status.ledger.elastic"


def _stale(
    memory: LedgerState, entry: JobState, job: Job, status: Status, telling: Telling, now: float
) -> set[Part]:
    """What is recorded of a job and is not what is wanted, its places apart."""
    recorded = entry.recorded
    # While a start is on its way only its placement is worth a write; counts follow when it is complete.
    moving = status.state in (State.STARTING, State.RESIZING)
    told = telling[:3] == recorded.told[:3] and (moving or telling[3] == recorded.told[3])
    compared = (
        (Part.GANG, recorded.gang is None),
        (Part.TOLD, not told),
        (Part.SIZES, not moving and recorded.sizes is not None and sizes_of(job) != recorded.sizes),
        (
            Part.NODE_BACKOFFS,
            any(
                bar.until > now and bar not in recorded.node_backoffs for bar in entry.node_backoffs.values()
            ),
        ),
        (Part.ASKED, entry.asked != recorded.asked),
        (Part.KEEPS, (job.shrink_blocked_by or job.rigid) != recorded.keeps),
        (Part.SILENT, job.silent != recorded.silent),
        (Part.OBSERVED, _lived_on(memory, entry, now)),
    )
    return {part for part, differs in compared if differs}


Telling = tuple[str, str, str, str]
"""State, code, reason and replicas (bound/wanted), as a Gang has them."""


def _telling(job: Job, status: Status, reservations: tuple[Reservation, ...]) -> Telling:
    bound = sum(1 for r in job.roles for m in r.members if m.phase is Phase.BOUND)
    wanted = max(bound + len(reservations), sum(r.min for r in job.roles))
    return str(status.state), str(status.code), status.waits, f"{bound}/{wanted}"


def _starts_at_once(memory: LedgerState, entry: JobState, status: Status, now: float) -> bool:
    """Whether a start that its first pod carries is so young that it may be over before it could be told."""
    until = entry.recorded.carried_at + BRIEF
    if not entry.carried or status.code is not Code.BINDING or now >= until:
        return False
    memory.requeue_at.add(until)
    return True


def _only_ends(job: Job) -> bool:
    """Whether all that is there of it are pods that are ending. Where its owner is deleted, the garbage collector has
    taken its Gang and would take each new one, as long as a dead node keeps such pods; and the next job of that name
    could not have its own."""
    members = [m for r in job.roles for m in r.members]
    return bool(members) and all(m.phase is Phase.ENDING for m in members)


def _lived_on(memory: LedgerState, entry: JobState, now: float) -> bool:
    """Whether what the job attained or reported, or why it has its share, is worth a write: with any other one,
    else once in a while."""
    runs = entry.job is not None and entry.job.bound > 0 and entry.key in memory.whys
    if all(new is old for new, old in zip(entry.observed, entry.recorded.observed, strict=True)):
        if not runs:
            return False
        if (
            now >= entry.recorded.observed_at + KEPT_EVERY
            and memory.whys.get(entry.key, "") == entry.desired.why
        ):
            entry.recorded.observed_at = now  # looked at: it still holds
    if entry.recorded.gang is None or now >= entry.recorded.observed_at + KEPT_EVERY:
        return True
    memory.again(entry.key, entry.recorded.observed_at + KEPT_EVERY)
    return False


def _clock(memory: LedgerState, entry: JobState, job: Job, status: Status, now: float) -> None:
    """Since when it is what it is: its state, below its minimum, started."""
    before = entry.state
    impossible = enter(entry, status, now)
    if impossible is not None:
        stumbled(memory, "adopt", impossible)
    if entry.state != before:
        memory.dirty.add(entry.key)
    below = job.started and status.state is State.STARTING
    clock = turned(entry.clock, job, now) if below else STILL
    if clock.since and clock.since != entry.clock.since:
        memory.requeue_at.add(clock.since + memory.profile.timeout)
    if clock != entry.clock:
        entry.clock = clock
        memory.dirty.add(entry.key)
    if status.state not in (State.STARTING, State.RUNNING, State.RESIZING):
        entry.begun = None
    elif entry.begun is None and entry.whole is None:
        entry.begun = {role.name: role.min for role in job.roles}
    reads = not (job.over or job.suspended or job.invalid)
    whole = whole_with(entry.whole, job) if reads else entry.whole
    if status.state in (State.FINISHED, State.SUSPENDED):
        whole = None
    if whole is not entry.whole:
        entry.whole = whole
        memory.dirty.add(entry.key)
    if status.state is State.RUNNING and (not entry.started_at or entry.backoff):
        entry.started_at = entry.started_at or now
        entry.backoff, entry.not_before = 0, 0.0
        memory.dirty.add(entry.key)
    if status.state is State.RUNNING:
        entry.desired.sent_back = False
    if status.state is not State.FINISHED:
        entry.ended_at = 0.0


def _write(
    memory: LedgerState,
    entry: JobState,
    job: Job,
    status: Status,
    telling: Telling,
    now: float,
    *,
    quiet: bool,
) -> Iterator[Action]:
    """The Gang, unless a write of it is under way, was refused a moment ago, or (quiet) more pods may be coming."""
    if entry.in_flight.gang:
        return
    if entry.in_flight.gang_retry_at > now:
        memory.requeue_at.add(entry.in_flight.gang_retry_at)
        return
    if quiet and now - entry.newest_pod < QUIET:
        memory.requeue_at.add(entry.newest_pod + QUIET)
        return
    if status.code is Code.PODS_MISSING and (until := quotas_awaited(memory, entry)) > now:
        memory.requeue_at.add(until)
        return
    entry.in_flight.gang = True
    entry.desired.why = memory.whys.get(entry.key, "")
    reservations = entry.planned
    name = gang_name(entry.key.name)
    other = memory.gang_names.get((entry.key.namespace, name))
    yield WriteGang(
        job=entry.key,
        gang=name,
        owner=job.owner,
        status=status_of(entry, job, telling, reservations, outlook(job, memory.believed(job), now), now),
        exists=entry.recorded.gang is not None,
        reservations=reservations,
        sizes=sizes_of(job),
        node_backoffs=frozenset(entry.node_backoffs.values()),
        asked=entry.asked,
        silent=job.silent,
        observed=entry.observed,
        replaces=other.object_uid if other is not None and other.key != entry.key else "",
        cause=f"{status.state}: {status.waits}",
    )
    # That a start has begun which a pod carries was said with its first gate.
    if telling[1:3] != entry.recorded.told[1:3] and not (entry.carried and status.code is Code.BINDING):
        yield from sayings(entry, job, status)


def _finished(memory: LedgerState, entry: JobState, job: Job, status: Status, now: float) -> Iterator[Action]:
    """Said once, and removed a set time later; an owner that is deleted takes its Gang along anyway."""
    gang = entry.recorded.gang
    if not entry.ended_at:
        if gang is None or not gang.ended:
            learn(memory, entry, job)
        entry.ended_at = (gang.ended if gang is not None else 0.0) or now
    if entry.planned:
        set_holds(memory, entry, ())
    telling = (str(State.FINISHED), str(status.code), status.waits, "0/0")
    if gang is None and not entry.pods:
        return
    if gang is not None and now >= entry.ended_at + memory.profile.ttl_after_finished:
        if not entry.in_flight.gang:
            entry.in_flight.gang = True
            yield DeleteGang(entry.key, gang.name, gang.object_uid, "the job ended long ago")
        return
    memory.requeue_at.add(entry.ended_at + memory.profile.ttl_after_finished)
    if telling[:3] != entry.recorded.told[:3] and (gang is not None or entry.started_at or entry.carried):
        yield from _write(memory, entry, job, status, telling, now, quiet=False)
