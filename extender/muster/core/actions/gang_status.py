"""What is written for people: the status of a job's Gang, and Events on its pod and owner. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.core.actions import gang_codec
from muster.core.bounds import calendar
from muster.core.placement.reservations import placed
from muster.core.progress import report_filter
from muster.core.progress.eta import Outlook
from muster.core.reasons.shares import with_silence
from muster.core.reasons.words import clock
from muster.core.state.job_state import NO_MEMORY, UNTOUCHED, JobState
from muster.core.workload.job_events import told
from muster.types import (
    Code,
    EndReason,
    Evict,
    Job,
    JobKey,
    Phase,
    RecordEvent,
    Report,
    Reservation,
    State,
    Status,
    Step,
)


def status_of(
    entry: JobState,
    job: Job,
    telling: tuple[str, str, str, str],
    reservations: tuple[Reservation, ...],
    expected: Outlook,
    now: float,
) -> dict[str, object]:
    """The Gang's status. telling: state, code, reason and replicas, as they are written."""
    roles = {}
    gpus = 0
    for role in job.roles:
        bound = sum(1 for m in role.members if m.phase is Phase.BOUND)
        granted = bound + sum(1 for h in reservations if h.role == role.name)
        gpus += (granted or role.min) * role.shape.gpus
        roles[role.name] = {"min": role.min, "max": role.max, "granted": granted, "bound": bound}
    return {
        "state": telling[0],
        "code": telling[1],
        "reason": telling[2],
        "replicas": telling[3],
        "gpus": gpus,
        "priority": job.priority,
        "roles": roles,
        "mode": "scored" if job.scored else "pinned",
        "since": rfc3339(entry.since),
        "submitted": rfc3339(job.submitted),
        "started": rfc3339(entry.started_at),
        "ended": rfc3339(entry.ended_at),
        "placement": [
            {"role": h.role, "node": h.node} | ({"pod": h.pod, "uid": h.uid} if h.uid else {})
            for h in reservations
        ],
        "story": _story(entry.story),
        "ledger": _remembered(entry),
        **(OVER if telling[0] == State.FINISHED else _progress(entry, job, expected, now)),
    }


def _rate(speed: float) -> str | None:
    """A speed as people read it: three digits at least, no exponent."""
    return (f"{speed:.0f}/s" if speed >= 100 else f"{speed:.3g}/s") if speed else None


def _speed(entry: JobState, report: Report | None) -> float:
    """Of its present configuration, in the unit of `speeds`: samples/s where the job tells samples, else
    iterations/s; 0 while it is not measured."""
    measured = report_filter.samples(entry.track).get(entry.track.config)
    if measured is not None or report is None:
        return measured or 0.0
    return report.speed * (report.samples / report.step if report.samples and report.step else 1.0)


OVER: dict[str, object] = {"expectedEnd": None, "end": None, "keeps": None}
"""Of a job that is over, what was written last stays, but for these."""


def _progress(entry: JobState, job: Job, expected: Outlook, now: float) -> dict[str, object]:
    """How training goes, as far as it is known: what `kubectl get gangs` and `muster explain` show."""
    role, facts, report = job.elastic, entry.facts, job.report
    speeds: dict[int, float] = {}
    for config, speed in job.samples.items():
        count = config.count(role.name) if role is not None else 0
        speeds[count] = max(speed, speeds.get(count, 0.0))
    end = expected.end or 0.0
    # Where no role is elastic the share is the gang's: all roles together.
    roles = () if role is None else (role,) if role.max > role.min else job.roles
    granted, least, most = (
        sum(placed(one, entry.planned) for one in roles),
        sum(one.min for one in roles),
        sum(one.max for one in roles),
    )
    return {
        "share": f"{granted}/{least}/{most}" if roles else None,
        "speed": _rate(_speed(entry, report)),
        "progress": None if expected.progress is None else f"{100 * expected.progress:.0f}%",
        "expectedEnd": rfc3339(end),
        "end": clock(end, now) or None,
        "shareReason": with_silence(entry.desired.why, job.silent) or None,
        "keeps": job.shrink_blocked_by or job.rigid or None,
        "speeds": {str(n): round(speed, 6) for n, speed in sorted(speeds.items()) if n} or None,
        "resizes": facts.resizes or None,
        "resizeCost": round(facts.last_cost, 1) or None,
        "shares": [[round(at, 3), count] for at, count in facts.shares] or None,
    }


def _remembered(entry: JobState) -> dict[str, object] | None:
    """What only we have observed and a restart must not forget; a None takes away what was written before (merge
    patch). Times are Unix seconds."""
    parts: dict[str, object] = {
        "backoff": entry.backoff or None,
        "notBefore": entry.not_before or None,
        "queuedFrom": entry.queued_from or None,
        "asked": entry.asked or None,
        "whole": [{"role": role, "min": count} for role, count in sorted(entry.whole.items())]
        if entry.whole is not None
        else None,
        "elastic": [
            gang_codec.plain(
                entry.facts, report_filter.to_plain(entry.track), entry.memory, entry.desired.grant
            )
        ]
        if entry.observed != NEW
        else None,
        "barred": [
            {"role": bar.role, "node": bar.node, "until": bar.until, "seconds": bar.length}
            for _, bar in sorted(entry.node_backoffs.items())
        ]
        or None,
    }
    return parts if any(parts.values()) else None


def _story(steps: tuple[Step, ...]) -> list[dict[str, object]] | None:
    return [
        {"at": round(step.at, 3), "state": step.state, "event": step.event, "cause": step.cause}
        for step in steps
    ] or None


NEW = (UNTOUCHED, report_filter.EMPTY, NO_MEMORY, None)


def sizes_of(job: Job) -> tuple[tuple[str, int, int], ...]:
    """Role, min and max of each role, by name."""
    return tuple(sorted((role.name, role.min, role.max) for role in job.roles))


def sayings(entry: JobState, job: Job, status: Status) -> Iterator[RecordEvent]:
    """An Event where the job's owner looks: on its first pod and on its owner."""
    waited = entry.recorded.told[0] in (State.WAITING, State.INCOMPLETE)
    message = f"{status.waits}; {status.detail}" if status.detail else status.waits
    if status.state in (State.WAITING, State.INCOMPLETE, State.INVALID) or status.code is Code.STUCK:
        reason = str(status.code)
        warning = status.state is State.INVALID or status.code in (Code.NEVER_FITS, Code.STUCK, Code.QUOTA)
    elif status.state is State.STARTING and waited:
        reason, warning = "Starting", False
    else:
        return
    yield from told(entry.key, job, reason, message, warning=warning)


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
    return before.waits == now.waits and before.state is now.state and before.code is now.code


def rfc3339(seconds: float) -> str | None:
    """A time as the API writes it; None, which a merge patch takes as "remove", for 0 and beyond all calendars."""
    when = calendar(seconds) if seconds else None
    return None if when is None else when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
