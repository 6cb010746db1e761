"""What is written for people: the status of a job's Gang, and Events on its pod and owner. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.core.bounds import calendar
from muster.core.devices.in_place import Devices
from muster.core.gang_object import conditions, gang_codec
from muster.core.placement.reservations import placed
from muster.core.progress import report_filter
from muster.core.progress.curves import by_count
from muster.core.progress.eta import Outlook
from muster.core.reasons.shares import with_silence
from muster.core.reasons.words import clock
from muster.core.state.job_state import NO_MEMORY, UNTOUCHED, JobState, Untold
from muster.core.state.state import LedgerState
from muster.core.workload.job_events import told, told_gang
from muster.types import (
    AS_QUEUED,
    BEHIND,
    NEVER,
    NO_ROOM_EMPTY,
    EndReason,
    Evict,
    Job,
    JobKey,
    Reason,
    RecordEvent,
    Report,
    Reservation,
    State,
    Status,
    Step,
    Turn,
)


def status_of(
    job_state: JobState,
    job: Job,
    telling: tuple[str, str, str, str],
    turn: Turn | None,
    reservations: tuple[Reservation, ...],
    expected: Outlook,
    now: float,
    devices: Devices | None = None,
) -> dict[str, object]:
    """The Gang's status. telling: state, reason, message and replicas, as they are written; devices: of a job in
    place, whose share is counted in them."""
    roles = {}
    gpus = (devices.granted or devices.least) if devices is not None else 0
    for role in job.roles:
        bound = role.bound
        granted = bound + sum([h.role == role.name for h in reservations])
        gpus += (granted or role.min) * role.shape.gpus
        roles[role.name] = {"min": role.min, "max": role.max, "granted": granted, "bound": bound}
    return {
        "state": telling[0],
        "code": None,  # of an older version (gang_codec.why)
        "reason": telling[1],
        "message": gang_codec.queued(telling[2], turn),
        **_turn(turn, now),
        "replicas": telling[3],
        "gpus": gpus,
        "priority": job.priority,
        "roles": roles,
        "mode": "scored" if job.scored else "pinned",
        "since": rfc3339(job_state.since),
        "submitted": rfc3339(job.submitted),
        "started": rfc3339(job_state.started_at),
        "ended": rfc3339(job_state.ended_at),
        "placement": [
            {"role": h.role, "node": h.node} | ({"pod": h.pod, "uid": h.uid} if h.uid else {})
            for h in reservations
        ],
        "conditions": conditions.plain(job_state.conditions, *telling[:3]),
        "story": _story(job_state.story),
        "ledger": _remembered(job_state),
        **(OVER if telling[0] == State.FINISHED else _progress(job_state, job, expected, now)),
        **({"share": f"{devices.granted}/{devices.least}/{devices.most}"} if devices is not None else {}),
    }


def _turn(turn: Turn | None, now: float) -> dict[str, object]:
    """Of a job that waits; None takes away what was written before (merge patch)."""
    turn = turn or Turn()
    return {
        "position": turn.position or None,
        "fits": turn.fits or None,
        "free": gang_codec.free(turn.fits) or None,
        "blocker": turn.blocker or None,
        "expectedStart": rfc3339(turn.start),
        "start": _start(turn, now) or None,
        "expected": turn.expected or None,
    }


def _start(turn: Turn, now: float) -> str:
    """When it is expected to start and how sure that is, as a column has room for it: by the run times of others it
    may be sooner, where a policy shares GPUs also later; "" where nobody knows yet, and behind the first of the
    queue."""
    if turn.start:
        return f"{'about' if turn.expected == AS_QUEUED else 'by'} {clock(turn.start, now)}"
    if turn.expected == NEVER:
        return "never"
    return "unknown" if turn.expected and turn.expected != BEHIND else ""


def _rate(speed: float) -> str | None:
    """A speed as people read it: three digits at least, no exponent."""
    return (f"{speed:.0f}/s" if speed >= 100 else f"{speed:.3g}/s") if speed else None


def _speed(job_state: JobState, report: Report | None) -> float:
    """Of its present configuration, in the unit of `speeds`: samples/s where the job tells samples, else
    iterations/s; 0 while it is not measured."""
    measured = report_filter.samples(job_state.track).get(job_state.track.config)
    if measured is not None or report is None:
        return measured or 0.0
    return report.speed * (report.samples / report.step if report.samples and report.step else 1.0)


OVER: dict[str, object] = {"expectedEnd": None, "end": None, "keeps": None}
"""Of a job that is over, what was written last stays, but for these."""


def _progress(job_state: JobState, job: Job, expected: Outlook, now: float) -> dict[str, object]:
    """How training goes, as far as it is known: what `kubectl get gangs` and `muster explain` show."""
    role, facts, report = job.elastic, job_state.facts, job.report
    speeds = by_count(job.samples, role.name) if role is not None else {}
    end = expected.end or 0.0
    # Where no role is elastic the share is the gang's: all roles together.
    roles = () if role is None else (role,) if role.max > role.min else job.roles
    granted, least, most = (
        sum(placed(one, job_state.planned) for one in roles),
        sum(one.min for one in roles),
        sum(one.max for one in roles),
    )
    return {
        "share": f"{granted}/{least}/{most}" if roles else None,
        "speed": _rate(_speed(job_state, report)),
        "progress": None if expected.progress is None else f"{100 * expected.progress:.0f}%",
        "expectedEnd": rfc3339(end),
        "end": clock(end, now) or None,
        "shareReason": with_silence(job_state.desired.why, job.silent) or None,
        "keeps": job.shrink_blocked_by or job.rigid or None,
        "speeds": {str(n): round(speed, 6) for n, speed in sorted(speeds.items())} or None,
        "resizes": facts.resizes or None,
        "resizeCost": round(facts.last_cost, 1) or None,
        "shares": [[round(at, 3), count] for at, count in facts.shares] or None,
    }


def _remembered(job_state: JobState) -> dict[str, object] | None:
    """What only we have observed and a restart must not forget; a None takes away what was written before (merge
    patch). Times are Unix seconds."""
    parts: dict[str, object] = {
        "backoff": job_state.backoff or None,
        "notBefore": job_state.not_before or None,
        "queuedFrom": job_state.queued_from or None,
        "recreated": {"since": job_state.recreated.since, "until": job_state.recreated.until}
        if job_state.recreated.until
        else None,
        "asked": job_state.asked or None,
        "whole": [{"role": role, "min": count} for role, count in sorted(job_state.whole.items())]
        if job_state.whole is not None
        else None,
        "elastic": [
            gang_codec.plain(
                job_state.facts,
                report_filter.to_plain(job_state.track),
                job_state.memory,
                job_state.desired.grant,
                job_state.desired.restart_on,
                job_state.desired.leaves_whole,
            )
        ]
        if job_state.observed != NEW or job_state.desired.leaves_whole
        else None,
        "barred": [
            {"role": bar.role, "node": bar.node, "until": bar.until, "seconds": bar.length}
            for _, bar in sorted(job_state.node_backoffs.items())
        ]
        or None,
    }
    return parts if any(parts.values()) else None


def _story(steps: tuple[Step, ...]) -> list[dict[str, object]] | None:
    return [
        {"at": round(step.at, 3), "state": step.state, "event": step.event, "cause": step.cause}
        for step in steps
    ] or None


NEW = (UNTOUCHED, report_filter.EMPTY, NO_MEMORY, None, ())


def sizes_of(job: Job) -> tuple[tuple[str, int, int], ...]:
    """Role, min and max of each role, by name."""
    return tuple(sorted((role.name, role.min, role.max) for role in job.roles))


WAITS = (State.WAITING, State.INCOMPLETE, State.INVALID)
FAULTS = (*NO_ROOM_EMPTY, Reason.STUCK, Reason.QUOTA)
"""Reasons that somebody has to do something about."""


def sayings(
    job_state: JobState, job: Job, status: Status, turn: Turn | None, now: float
) -> Iterator[RecordEvent]:
    """Events of a job that waits, and of one that starts after it has waited. turn: what is known of it at this
    moment; that it is another one later is told by the Gang alone."""
    waits = status.state in WAITS or status.reason is Reason.STUCK
    if waits:
        reason, warning = str(status.reason), status.state is State.INVALID or status.reason in FAULTS
    elif status.state is State.STARTING and job_state.recorded.told[0] in (State.WAITING, State.INCOMPLETE):
        reason, warning = "Starting", False
    else:
        return
    message = "; ".join(part for part in (status.message, status.detail, *_turn_words(turn, now)) if part)
    if job_state.recorded.gang is None:
        job_state.untold = Untold(reason, message, warning)
    yield from told(
        job_state.key, job, job_state.recorded.gang, reason, message, warning=warning, waits=waits
    )


def _turn_words(turn: Turn | None, now: float) -> Iterator[str]:
    """Place in the queue, who has what it needs, and when it may start and how sure that is; what fits is its
    status's detail."""
    if turn is None:
        return
    if turn.position:
        yield f"position {turn.position} in the queue"
    yield turn.blocker
    if turn.start:
        yield f"expected to start at {clock(turn.start, now)}, {turn.expected}"
    elif turn.expected == BEHIND:
        yield BEHIND
    elif turn.expected:
        yield f"expected start: {turn.expected}"


def gang_told(job_state: JobState) -> Iterator[RecordEvent]:
    """The Event that its Gang could not be told before it was there."""
    gang, untold = job_state.recorded.gang, job_state.untold
    if gang is None or untold is None:
        return
    job_state.untold = None
    yield told_gang(job_state.key, gang, untold.reason, untold.message, warning=untold.warning)


def warned(state: LedgerState, key: JobKey, words: str) -> Iterator[RecordEvent]:
    """A GPU of its node is used by somebody who was not granted it."""
    job_state = state.entries[key]
    if job_state.job is not None:
        yield from told(key, job_state.job, job_state.recorded.gang, "DeviceInUse", words, warning=True)


def ends_told(key: JobKey, evictions: Iterable[Evict]) -> Iterator[RecordEvent]:
    """One Event a reason, on the first pod that is evicted for it; each pod has the reason in its mark."""
    of: dict[EndReason, list[Evict]] = {}
    for action in evictions:
        of.setdefault(action.reason, []).append(action)
    for reason, each in of.items():
        yield RecordEvent(
            key,
            str(reason),
            f"{len(each)} {'pod is' if len(each) == 1 else 'pods are'} evicted: {each[0].cause}",
            pod=each[0].pod,
            uid=each[0].uid,
        )


def tell_alike(before: Status, now: Status) -> bool:
    """Whether two statuses write the same; `detail` is worked out when it is read."""
    return before.message == now.message and before.state is now.state and before.reason is now.reason


def rfc3339(seconds: float) -> str | None:
    """A time as the API writes it; None, which a merge patch takes as "remove", for 0 and beyond all calendars."""
    when = calendar(seconds) if seconds else None
    return None if when is None else when.isoformat(timespec="microseconds").replace("+00:00", "Z")
