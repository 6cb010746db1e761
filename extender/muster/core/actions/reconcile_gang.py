"""One job's status against what its Gang says: what is worth a write, and when."""

from __future__ import annotations

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
from muster.types import Action, Code, DeleteGang, Job, Phase, State, Status, WriteGang

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
    if entry.gang is None and _only_ends(job):
        return
    bound = sum(1 for r in job.roles for m in r.members if m.phase is Phase.BOUND)
    reservations = entry.planned
    wanted = max(bound + len(reservations), sum(r.min for r in job.roles))
    replicas = f"{bound}/{wanted}"
    telling = (str(status.state), str(status.code), status.waits, replicas)
    unrecorded = any(h.uid and not entry.records(h) for h in reservations)
    if entry.carrying:
        return  # what becomes of that request decides what there is to tell
    if unrecorded and may_carry(memory, entry, job, reservations):
        first = carry(memory, entry, job, reservations, now)
        if first is not None:
            yield from sayings(entry, job, status)
            yield first
        return
    # While a start is on its way only its placement is worth a write; counts follow when it is complete.
    moving = status.state in (State.STARTING, State.RESIZING)
    same = telling[:3] == entry.written[:3] and (moving or telling[3] == entry.written[3])
    scaled = not moving and entry.sizes is not None and sizes_of(job) != entry.sizes
    asked = entry.asked != entry.asked_kept
    node_backoffs = any(
        bar.until > now and bar not in entry.node_backoffs_written for bar in entry.node_backoffs.values()
    )
    lived = _lived_on(memory, entry, now) or entry.shrink_blocked_written != (
        job.shrink_blocked_by or job.rigid
    )
    lived = lived or entry.silent_told != job.silent
    if not unrecorded and _starts_at_once(memory, entry, status, now):
        pass
    elif not same or unrecorded or scaled or node_backoffs or asked or lived or entry.gang is None:
        quiet = not unrecorded and (status.code is Code.PODS_MISSING or same)
        yield from _write(memory, entry, job, status, telling, now, quiet=quiet)
    elif not reservations and not memory.owners.of_queue(entry.pods.values()):
        # A cycle changes a few of 10,000 jobs, and whatever is learnt of one makes its Job again.
        entry.said = (job, status)
    if status.state is not State.INVALID or job.started:  # else none of it starts
        yield from ungate(memory, entry, job, reservations, now)


def _starts_at_once(memory: LedgerState, entry: JobState, status: Status, now: float) -> bool:
    """Whether a start that its first pod carries is so young that it may be over before it could be told."""
    until = entry.carried_at + BRIEF
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
    if all(new is old for new, old in zip(entry.observed, entry.observed_written, strict=True)):
        if not runs:
            return False
        if now >= entry.observed_written_at + KEPT_EVERY and memory.whys.get(entry.key, "") == entry.why:
            entry.observed_written_at = now  # looked at: it still holds
    if entry.gang is None or now >= entry.observed_written_at + KEPT_EVERY:
        return True
    memory.again(entry.key, entry.observed_written_at + KEPT_EVERY)
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
        entry.sent_back = False
    if status.state is not State.FINISHED:
        entry.ended_at = 0.0


def _write(
    memory: LedgerState,
    entry: JobState,
    job: Job,
    status: Status,
    telling: tuple[str, str, str, str],
    now: float,
    *,
    quiet: bool,
) -> Iterator[Action]:
    """The Gang, unless a write of it is under way, was refused a moment ago, or (quiet) more pods may be coming."""
    if entry.writing:
        return
    if entry.retry_at > now:
        memory.requeue_at.add(entry.retry_at)
        return
    if quiet and now - entry.newest_pod < QUIET:
        memory.requeue_at.add(entry.newest_pod + QUIET)
        return
    if status.code is Code.PODS_MISSING and (until := quotas_awaited(memory, entry)) > now:
        memory.requeue_at.add(until)
        return
    entry.writing = True
    entry.why = memory.whys.get(entry.key, "")
    reservations = entry.planned
    name = gang_name(entry.key.name)
    other = memory.gang_names.get((entry.key.namespace, name))
    yield WriteGang(
        job=entry.key,
        gang=name,
        owner=job.owner,
        status=status_of(entry, job, telling, reservations, outlook(job, memory.believed(job), now), now),
        exists=entry.gang is not None,
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
    if telling[1:3] != entry.written[1:3] and not (entry.carried and status.code is Code.BINDING):
        yield from sayings(entry, job, status)


def _finished(memory: LedgerState, entry: JobState, job: Job, status: Status, now: float) -> Iterator[Action]:
    """Said once, and removed a set time later; an owner that is deleted takes its Gang along anyway."""
    if not entry.ended_at:
        if entry.gang is None or not entry.gang.ended:
            learn(memory, entry, job)
        entry.ended_at = (entry.gang.ended if entry.gang is not None else 0.0) or now
    if entry.planned:
        set_holds(memory, entry, ())
    telling = (str(State.FINISHED), str(status.code), status.waits, "0/0")
    if entry.gang is None and not entry.pods:
        return
    if entry.gang is not None and now >= entry.ended_at + memory.profile.ttl_after_finished:
        if not entry.writing:
            entry.writing = True
            yield DeleteGang(entry.key, entry.gang.name, entry.gang.object_uid, "the job ended long ago")
        return
    memory.requeue_at.add(entry.ended_at + memory.profile.ttl_after_finished)
    if telling[:3] != entry.written[:3] and (entry.gang is not None or entry.started_at or entry.carried):
        yield from _write(memory, entry, job, status, telling, now, quiet=False)
