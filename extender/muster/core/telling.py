"""What is written for people: the status of a job's Gang, and Events on its pod and owner. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from muster.core import kept, reports
from muster.core.entry import NO_MEMORY, UNTOUCHED, Entry
from muster.core.holds import placed
from muster.core.outlook import Outlook
from muster.core.whys import clock, with_silence
from muster.types import Code, Hold, Job, JobKey, Phase, Report, Say, State, Status


def status_of(
    entry: Entry,
    job: Job,
    telling: tuple[str, str, str, str],
    holds: tuple[Hold, ...],
    expected: Outlook,
    now: float,
) -> dict[str, object]:
    """The Gang's status. telling: state, code, reason and replicas, as they are written."""
    roles = {}
    gpus = 0
    for role in job.roles:
        bound = sum(1 for m in role.members if m.phase is Phase.BOUND)
        granted = bound + sum(1 for h in holds if h.role == role.name)
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
        "submitted": rfc3339(entry.submitted),
        "started": rfc3339(entry.started_at),
        "ended": rfc3339(entry.ended_at),
        "placement": [
            {"role": h.role, "node": h.node} | ({"pod": h.pod, "uid": h.uid} if h.uid else {}) for h in holds
        ],
        "ledger": _remembered(entry),
        **(OVER if telling[0] == State.FINISHED else _progress(entry, job, expected, now)),
    }


def _rate(speed: float) -> str | None:
    """A speed as people read it: three digits at least, no exponent."""
    return (f"{speed:.0f}/s" if speed >= 100 else f"{speed:.3g}/s") if speed else None


def _speed(entry: Entry, report: Report | None) -> float:
    """Of its present configuration, in the unit of `speeds`: samples/s where the job tells samples, else
    iterations/s; 0 while it is not measured."""
    measured = reports.samples(entry.track).get(entry.track.config)
    if measured is not None or report is None:
        return measured or 0.0
    return report.speed * (report.samples / report.step if report.samples and report.step else 1.0)


OVER: dict[str, object] = {"expectedEnd": None, "end": None, "keeps": None}
"""Of a job that is over, what was written last stays, but for these."""


def _progress(entry: Entry, job: Job, expected: Outlook, now: float) -> dict[str, object]:
    """How training goes, as far as it is known: what `kubectl get gangs` and `muster explain` show."""
    role, facts, report = job.elastic, entry.facts, job.report
    speeds: dict[int, float] = {}
    for config, speed in job.samples.items():
        count = config.count(role.name) if role is not None else 0
        speeds[count] = max(speed, speeds.get(count, 0.0))
    end = expected.end or 0.0
    granted = 0 if role is None else placed(role, entry.planned)
    return {
        "share": None if role is None else f"{granted}/{role.min}/{role.max}",
        "speed": _rate(_speed(entry, report)),
        "progress": None if expected.progress is None else f"{100 * expected.progress:.0f}%",
        "expectedEnd": rfc3339(end),
        "end": clock(end, now) or None,
        "shareReason": with_silence(entry.why, job.silent) or None,
        "keeps": job.keeps or job.rigid or None,
        "speeds": {str(n): round(speed, 6) for n, speed in sorted(speeds.items()) if n} or None,
        "resizes": facts.resizes or None,
        "resizeCost": round(facts.last_cost, 1) or None,
        "shares": [[round(at, 3), count] for at, count in facts.shares] or None,
    }


def _remembered(entry: Entry) -> dict[str, object] | None:
    """What only we have observed and a restart must not forget; a None takes away what was written before (merge
    patch). Times are Unix seconds."""
    parts: dict[str, object] = {
        "backoff": entry.backoff or None,
        "notBefore": entry.not_before or None,
        "asked": entry.asked or None,
        "elastic": [kept.plain(entry.facts, reports.to_plain(entry.track), entry.memory, entry.want)]
        if entry.lived != NEW
        else None,
        "barred": [
            {"role": bar.role, "node": bar.node, "until": bar.until, "seconds": bar.length}
            for _, bar in sorted(entry.barred.items())
        ]
        or None,
    }
    return parts if any(parts.values()) else None


NEW = (UNTOUCHED, reports.EMPTY, NO_MEMORY, None)


def sizes_of(job: Job) -> tuple[tuple[str, int, int], ...]:
    """Role, min and max of each role, by name."""
    return tuple(sorted((role.name, role.min, role.max) for role in job.roles))


def sayings(entry: Entry, job: Job, status: Status) -> Iterator[Say]:
    """An Event where the job's owner looks: on its first pod and on its owner."""
    waited = entry.written[0] in (State.WAITING, State.INCOMPLETE)
    message = f"{status.waits}; {status.detail}" if status.detail else status.waits
    if status.state in (State.WAITING, State.INCOMPLETE, State.INVALID) or status.code is Code.STUCK:
        reason = str(status.code)
        warning = status.state is State.INVALID or status.code in (Code.NEVER_FITS, Code.STUCK, Code.QUOTA)
    elif status.state is State.STARTING and waited:
        reason, warning = "Starting", False
    else:
        return
    yield from told(entry.key, job, reason, message, warning=warning)


def told(key: JobKey, job: Job, reason: str, message: str, *, warning: bool) -> Iterator[Say]:
    """One Event on the job's first pod and one on its owner."""
    pods = [m for r in job.roles for m in r.members]
    if pods:
        yield Say(key, reason, message, warning, pod=pods[0].pod, uid=pods[0].uid)
    if job.owner is not None and job.owner.kind != "Pod":
        yield Say(key, reason, message, warning, owner=job.owner)


def tell_alike(before: Status, now: Status) -> bool:
    """Whether two statuses write the same; `detail` is worked out when it is read."""
    return before.waits == now.waits and before.state is now.state and before.code is now.code


def gang_name(job: str) -> str:
    """A DNS name for the Gang object: the job's name, made fit where a label value is not."""
    name = re.sub(r"[^a-z0-9.-]+", "-", job.lower()).strip("-.")
    return name[:253] or "job"


def rfc3339(seconds: float) -> str | None:
    """A time as the API writes it; None for 0, which a merge patch takes as "remove"."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
