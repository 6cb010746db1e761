"""One job's status against what its Gang says: what is worth a write, and when."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.entry import Entry
from muster.core.gates import carry, may_carry, ungate
from muster.core.memory import QUIET, Memory
from muster.core.obstacles import quotas_awaited
from muster.core.outlook import outlook
from muster.core.places import set_holds
from muster.core.teaching import learn
from muster.core.telling import gang_name, sayings, sizes_of, status_of
from muster.types import Action, Code, DeleteGang, Job, Phase, State, Status, WriteGang

BRIEF = 5.0
"""Seconds after which a start that is recorded on its first pod is told in the Gang, too, where it is not complete
by then: nearly every Gang goes from Waiting to Running by one write."""

KEPT_EVERY = 60.0
"""Seconds between two writes of a Gang of which only progress, speeds or a plugin's memory are new."""


def diff(memory: Memory, entry: Entry, job: Job, status: Status, now: float) -> Iterator[Action]:
    """What is to be done about one job: its Gang written, or deleted long after its end, and gates taken off."""
    entry.said = None
    _clock(memory, entry, job, status, now)
    if status.state is State.FINISHED:
        yield from _finished(memory, entry, job, status, now)
        return
    if entry.gang is None and _only_ends(job):
        return
    bound = sum(1 for r in job.roles for m in r.members if m.phase is Phase.BOUND)
    holds = entry.planned
    wanted = max(bound + len(holds), sum(r.min for r in job.roles))
    replicas = f"{bound}/{wanted}"
    telling = (str(status.state), str(status.code), status.waits, replicas)
    unrecorded = any(h.uid and not entry.records(h) for h in holds)
    if entry.carrying:
        return  # what becomes of that request decides what there is to tell
    if unrecorded and may_carry(memory, entry, job, holds):
        first = carry(memory, entry, job, holds, now)
        if first is not None:
            yield from sayings(entry, job, status)
            yield first
        return
    # While a start is on its way only its placement is worth a write; counts follow when it is complete.
    moving = status.state in (State.STARTING, State.RESIZING)
    same = telling[:3] == entry.written[:3] and (moving or telling[3] == entry.written[3])
    scaled = not moving and entry.sizes is not None and sizes_of(job) != entry.sizes
    asked = entry.asked != entry.asked_kept
    barred = any(bar.until > now and bar not in entry.bars for bar in entry.barred.values())
    lived = _lived_on(memory, entry, now) or entry.keeps_told != (job.keeps or job.rigid)
    lived = lived or entry.silent_told != job.silent
    if not unrecorded and _starts_at_once(memory, entry, status, now):
        pass
    elif not same or unrecorded or scaled or barred or asked or lived or entry.gang is None:
        quiet = not unrecorded and (status.code is Code.PODS_MISSING or same)
        yield from _write(memory, entry, job, status, telling, now, quiet=quiet)
    elif not holds and not memory.owners.of_queue(entry.pods.values()):
        # A cycle changes a few of 10,000 jobs, and whatever is learnt of one makes its Job anew.
        entry.said = (job, status)
    yield from ungate(memory, entry, job, holds, now)


def _starts_at_once(memory: Memory, entry: Entry, status: Status, now: float) -> bool:
    """Whether a start that its first pod carries is so young that it may be over before it could be told."""
    until = entry.carried_at + BRIEF
    if not entry.carried or status.code is not Code.BINDING or now >= until:
        return False
    memory.wakes.add(until)
    return True


def _only_ends(job: Job) -> bool:
    """Whether all that is there of it are pods that are ending. Where its owner is deleted, the garbage collector has
    taken its Gang and would take each new one, as long as a dead node keeps such pods; and the next job of that name
    could not have its own."""
    members = [m for r in job.roles for m in r.members]
    return bool(members) and all(m.phase is Phase.ENDING for m in members)


def _lived_on(memory: Memory, entry: Entry, now: float) -> bool:
    """Whether what the job attained or reported, or why it has its share, is worth a write: with any other one,
    else once in a while."""
    runs = entry.job is not None and entry.job.bound > 0 and entry.key in memory.whys
    if all(new is old for new, old in zip(entry.lived, entry.kept, strict=True)):
        if not runs:
            return False
        if now >= entry.kept_at + KEPT_EVERY and memory.whys.get(entry.key, "") == entry.why:
            entry.kept_at = now  # looked at: it still holds
    if entry.gang is None or now >= entry.kept_at + KEPT_EVERY:
        return True
    memory.again(entry.key, entry.kept_at + KEPT_EVERY)
    return False


def _clock(memory: Memory, entry: Entry, job: Job, status: Status, now: float) -> None:
    """Since when it is what it is: its state, below its minimum, started."""
    if entry.state != status.state:
        entry.state, entry.since = str(status.state), now
        memory.dirty.add(entry.key)
    below = job.started and status.state is State.STARTING
    if below and not entry.below_since:
        entry.below_since = now
        memory.wakes.add(now + memory.profile.timeout)
        memory.dirty.add(entry.key)
    elif not below and entry.below_since:
        entry.below_since = 0.0
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
    memory: Memory,
    entry: Entry,
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
        memory.wakes.add(entry.retry_at)
        return
    if quiet and now - entry.newest_pod < QUIET:
        memory.wakes.add(entry.newest_pod + QUIET)
        return
    if status.code is Code.PODS_MISSING and (until := quotas_awaited(memory, entry)) > now:
        memory.wakes.add(until)
        return
    entry.writing = True
    entry.why = memory.whys.get(entry.key, "")
    holds = entry.planned
    name = gang_name(entry.key.name)
    other = memory.gang_names.get((entry.key.namespace, name))
    yield WriteGang(
        job=entry.key,
        gang=name,
        owner=job.owner,
        status=status_of(entry, job, telling, holds, outlook(job, memory.believed(job), now), now),
        exists=entry.gang is not None,
        holds=holds,
        sizes=sizes_of(job),
        barred=frozenset(entry.barred.values()),
        asked=entry.asked,
        silent=job.silent,
        kept=entry.lived,
        replaces=other.object_uid if other is not None and other.key != entry.key else "",
        cause=f"{status.state}: {status.waits}",
    )
    # That a start has begun which a pod carries was said with its first gate.
    if telling[1:3] != entry.written[1:3] and not (entry.carried and status.code is Code.BINDING):
        yield from sayings(entry, job, status)


def _finished(memory: Memory, entry: Entry, job: Job, status: Status, now: float) -> Iterator[Action]:
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
    if entry.gang is not None and now >= entry.ended_at + memory.profile.forget:
        if not entry.writing:
            entry.writing = True
            yield DeleteGang(entry.key, entry.gang.name, entry.gang.object_uid, "the job ended long ago")
        return
    memory.wakes.add(entry.ended_at + memory.profile.forget)
    if telling[:3] != entry.written[:3] and (entry.gang is not None or entry.started_at or entry.carried):
        yield from _write(memory, entry, job, status, telling, now, quiet=False)
