"""Where each job stands, as its owner reads it: position, one honest sentence, expected start.

Computed from a View when somebody reads it; of the first of the queue it is written to their Gangs, too (`turns`).
The one who reads names the namespaces that he may see; jobs of others are counts to him (issue 3, part 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from muster.core.bounds import calendar
from muster.core.placement.feasibility import static_mask
from muster.core.reasons.words import plural
from muster.core.views.queue_eta import Expected, forecast
from muster.core.views.view import View
from muster.types import (
    AS_QUEUED,
    NEVER,
    QUEUE_TOLD,
    BoolArray,
    Job,
    JobKey,
    Phase,
    Reason,
    Reservation,
    Role,
    State,
    Status,
    Turn,
)

NAMED = 3
"""Holders that a sentence names; the rest is a count."""
FREED_BY_OTHERS = frozenset({Reason.RESOURCES, Reason.TOPOLOGY, Reason.NODES, Reason.SHARE})
"""Reasons of jobs that start when other jobs give something back."""

SURE = "by the run times that jobs declare or report; it may start sooner"

Sees = Callable[[str], bool]
"""Whether the reader may see the jobs of a namespace."""


@dataclass(frozen=True, slots=True)
class RoleStanding:
    """Replicas of a role: granted have a place (bound ones included)."""

    min: int
    max: int
    granted: int
    bound: int


@dataclass(frozen=True, slots=True)
class Standing:
    """One job, for a reader. position counts from 1 and is None unless it waits; times are Unix seconds.

    gpus: of the replicas granted; while it has none, those that it needs to start. eta: when it is expected
    to start by the run times that owners declare, None where it does not wait or that can't be known; sure: how sure
    that is; eta_unknown: why it is not known, where it waits.
    """

    key: JobKey
    state: State
    reason: Reason
    message: str
    position: int | None
    since: float
    gpus: int
    roles: Mapping[str, RoleStanding]
    eta: float | None = None
    eta_unknown: str = ""
    sure: str = SURE

    @property
    def expected(self) -> str:
        """How sure `eta` is, or why it is not known, or that it never starts; "" where it does not wait."""
        if self.eta is not None:
            return self.sure
        known = self.eta_unknown in ("", NEVER)
        return self.eta_unknown if known else f"not known: {self.eta_unknown}"


@dataclass
class _Reading:
    """What the sentences of one reading share."""

    view: View
    sees: Sees
    positions: Mapping[JobKey, int]
    holders: dict[tuple[object, ...], str] = field(default_factory=dict)
    used: dict[tuple[object, ...], tuple[bool, list[tuple[int, JobKey]]]] = field(default_factory=dict)
    """By what a job asks for: whether GPUs are counted, and how many of them each job has, largest first."""


def standings(view: View, sees: Sees, namespace: str | None = None) -> list[Standing]:
    """All jobs that the reader sees (of one namespace, if given), by namespace, name and uid."""
    reading = _Reading(view, sees, view.plan.positions)
    jobs = view.snapshot.jobs
    keys = sorted(key for key in jobs if sees(key.namespace) and namespace in (None, key.namespace))
    return [_standing(reading, jobs[key]) for key in keys]


def turns(view: View) -> dict[JobKey, Turn]:
    """What the Gangs of the first QUEUE_TOLD of the queue tell of who has what they need and when they start, each in
    words that its own namespace may read. Their positions and what fits are not in it (TurnsSeen)."""
    expected = forecast(view)
    used: dict[tuple[object, ...], tuple[bool, list[tuple[int, JobKey]]]] = {}
    readings: dict[str, _Reading] = {}
    found = {}
    for key, position in view.plan.positions.items():
        job = view.snapshot.jobs.get(key)
        if position > QUEUE_TOLD or job is None:
            continue
        space = key.namespace
        if space not in readings:
            readings[space] = _Reading(view, space.__eq__, view.plan.positions, used=used)
        freed = view.plan.statuses[key].reason in FREED_BY_OTHERS
        start = expected.get(key, Expected())
        found[key] = Turn(
            blocker=_holders(readings[space], job) if freed else "",
            start=start.start or 0.0,
            expected=_sure(view) if start.start is not None else f"not known: {start.unknown}",
        )
    return found


def item(standing: Standing) -> dict[str, object]:
    """One item of GET /v1/jobs (design §8); times are RFC 3339, null where there is none."""
    return {
        "namespace": standing.key.namespace,
        "name": standing.key.name,
        "state": standing.state.value,
        "reason": standing.reason.value,
        "message": standing.message,
        "position": standing.position,
        "since": timestamp(standing.since),
        "gpus": standing.gpus,
        "roles": {
            name: {"min": r.min, "max": r.max, "granted": r.granted, "bound": r.bound}
            for name, r in standing.roles.items()
        },
        "eta": timestamp(standing.eta),
        "etaUnknown": standing.eta_unknown or None,
        "expected": standing.expected or None,
    }


def timestamp(seconds: float | None) -> str | None:
    """RFC 3339 in UTC, whole seconds; None for a time that is not known."""
    if not seconds or not math.isfinite(seconds):
        return None
    return _written(int(seconds))


@lru_cache(16384)
def _written(seconds: int) -> str | None:
    """Kept: a page of 1,000 jobs writes the same 5,000 times again and again."""
    when = calendar(seconds)
    return None if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ")


def plain_number(value: Any) -> float | None:
    """Six significant digits; None for what is none, or no finite number (JSON has neither)."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.6g}") if abs(value) < 1e6 else round(float(value), 1)


def _standing(reading: _Reading, job: Job) -> Standing:
    view = reading.view
    status = view.plan.statuses.get(job.key) or Status(
        State.WAITING, Reason.RESOURCES, "was seen after the last plan"
    )
    reservations = view.plan.reservations.get(job.key, job.reservations)
    every = {role.name: _role(role, reservations) for role in job.roles}
    granted = sum(r.shape.gpus * every[r.name].granted for r in job.roles)
    position = reading.positions.get(job.key) if status.state is State.WAITING else None
    expected = forecast(view).get(job.key, Expected()) if status.state is State.WAITING else Expected()
    return Standing(
        key=job.key,
        state=status.state,
        reason=status.reason,
        message=_sentence(reading, job, status, position),
        position=position,
        since=job.since,
        gpus=granted or job.gpus,
        roles={role.name: every[role.name] for role in job.roles if not role.devices},
        eta=expected.start,
        eta_unknown=expected.unknown,
        sure=_sure(view),
    )


def _sure(view: View) -> str:
    return AS_QUEUED if view.profile.shares else SURE


def _role(role: Role, reservations: Sequence[Reservation]) -> RoleStanding:
    bound = {m.uid for m in role.members if m.phase is Phase.BOUND}
    held = [h for h in reservations if h.role == role.name and h.uid not in bound]
    return RoleStanding(role.min, role.max, len(bound) + len(held), len(bound))


# ---- the sentence ----


def _sentence(reading: _Reading, job: Job, status: Status, position: int | None) -> str:
    """What it waits for, what stands in the way, how many are ahead, and who holds what it needs."""
    joint = "; " if status.reason is Reason.SHARE else ": "
    parts = [joint.join(part for part in (status.message, status.detail) if part)]
    if position is not None and status.reason is not Reason.NEVER_FITS:
        parts.append("first in the queue" if position == 1 else f"{plural(position - 1, 'job')} ahead")
        if status.reason in FREED_BY_OTHERS:
            parts.append(_holders(reading, job))
    return "; ".join(part for part in parts if part)


def _holders(reading: _Reading, job: Job) -> str:
    """Who is on the nodes that the job could use, largest first; jobs that the reader may not see as a count.

    Worked out once for all jobs that may use the same nodes.
    """
    nodes = reading.view.snapshot.nodes
    shapes = {r.shape for r in job.roles if r.shape.gpus} or {r.shape for r in job.roles}
    kind = tuple(sorted((repr((s.selector, s.affinity, s.tolerations)), bool(s.gpus)) for s in shapes))
    if kind not in reading.used:
        mask = np.zeros(len(nodes), dtype=np.bool_)
        for shape in shapes:
            mask |= static_mask(nodes, shape)
        by_gpus = any(s.gpus for s in shapes)
        reading.used[kind] = by_gpus, _all_used(reading.view, job.key, mask, by_gpus)
    if kind not in reading.holders:
        reading.holders[kind] = _holders_words(reading, *reading.used[kind])
    return reading.holders[kind]


def _all_used(view: View, but: JobKey, mask: BoolArray, by_gpus: bool) -> list[tuple[int, JobKey]]:
    used: list[tuple[int, JobKey]] = []
    for other in view.snapshot.jobs.values():
        if other.key == but:
            continue
        amount = _used(other, view.plan.reservations.get(other.key, ()), view, mask, by_gpus)
        if amount:
            used.append((amount, other.key))
    return sorted(used, key=lambda u: (-u[0], u[1]))


def _holders_words(reading: _Reading, by_gpus: bool, used: Sequence[tuple[int, JobKey]]) -> str:
    if not used:
        return ""
    seen = [key for _, key in used if reading.sees(key.namespace)]
    hidden = len(used) - len(seen)
    parts = [str(key) for key in seen[:NAMED]]
    if len(seen) > NAMED:
        parts.append(f"{len(seen) - NAMED} more")
    if hidden:
        parts.append(f"{plural(hidden, 'job')} of other namespaces")
    names = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    total = sum(amount for amount, _ in used)
    what = plural(total, "GPU") if by_gpus else plural(total, "place")
    return f"{what} that it could use {'is' if total == 1 else 'are'} held by {names}"


def _used(job: Job, reservations: Sequence[Reservation], view: View, mask: BoolArray, by_gpus: bool) -> int:
    """GPUs (or replicas, where no GPU is asked for) that the job has on the nodes of a mask."""
    index = view.snapshot.nodes.index
    total = 0
    for role in job.roles:
        unit = role.shape.gpus if by_gpus else 1
        if not unit:
            continue
        held = {h.uid or f"open/{i}": h.node for i, h in enumerate(reservations) if h.role == role.name}
        held |= {m.uid: m.node for m in role.on}
        total += unit * sum(1 for node in held.values() if _inside(index, mask, node))
    return total


def _inside(index: Mapping[str, int], mask: BoolArray, node: str) -> bool:
    row = index.get(node)
    return row is not None and bool(mask[row])
