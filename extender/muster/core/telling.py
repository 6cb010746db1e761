"""What is written for people: the status of a job's Gang, and Events on its pod and owner. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from muster.core.entry import Entry
from muster.types import Code, Hold, Job, Phase, Say, State, Status


def status_of(
    entry: Entry,
    job: Job,
    telling: tuple[str, str, str, str],
    holds: tuple[Hold, ...],
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
    }


def _remembered(entry: Entry) -> dict[str, object] | None:
    """What only we have observed and a restart must not forget; a None takes away what was written before (merge
    patch). Times are Unix seconds."""
    kept: dict[str, object] = {
        "backoff": entry.backoff or None,
        "notBefore": entry.not_before or None,
        "asked": entry.asked or None,
        "barred": [
            {"role": bar.role, "node": bar.node, "until": bar.until, "seconds": bar.length}
            for _, bar in sorted(entry.barred.items())
        ]
        or None,
    }
    return kept if any(kept.values()) else None


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
    pods = [m for r in job.roles for m in r.members]
    if pods:
        yield Say(entry.key, reason, message, warning, pod=pods[0].pod, uid=pods[0].uid)
    if job.owner is not None and job.owner.kind != "Pod":
        yield Say(entry.key, reason, message, warning, owner=job.owner)


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
