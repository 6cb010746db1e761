"""Gang objects as the API lists them, read for people: what `muster explain` and `muster top` say of a job.

A status is written by another version of Muster, or not yet: a field that is missing or of another kind reads as not
told, never as an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.core.gang_object import gang_codec
from muster.core.reasons.words import duration

Gang = Mapping[str, Any]

RUNS = ("Running", "Resizing", "Starting")
"""States of jobs that have GPUs."""
WAITS = ("Waiting", "Incomplete", "Suspended", "Invalid")


@dataclass(frozen=True, slots=True)
class Share:
    """Replicas of the role whose number may change: granted, at least, at most."""

    now: int
    min: int
    max: int

    def __str__(self) -> str:
        return f"{self.now}/{self.min}/{self.max}"


def part(gang: Gang, name: str) -> Gang:
    """A field that is an object, empty where it is none."""
    found = gang.get(name)
    return found if isinstance(found, Mapping) else {}


def status(gang: Gang) -> Gang:
    """What Muster wrote."""
    return part(gang, "status")


def text(gang: Gang, name: str) -> str:
    """A field of the status as text, "" where it is not told."""
    found = status(gang).get(name)
    return "" if found is None else str(found)


def number(gang: Gang, name: str) -> float:
    """A field of the status as a number, 0 where it is none."""
    return _number(status(gang).get(name)) or 0.0


def job(gang: Gang) -> str:
    """The job's name."""
    return str(part(gang, "spec").get("job") or name(gang))


def name(gang: Gang) -> str:
    """The object's name."""
    return str(part(gang, "metadata").get("name", ""))


def namespace(gang: Gang) -> str:
    """The object's namespace."""
    return str(part(gang, "metadata").get("namespace", ""))


def owner_name(gang: Gang) -> str:
    """The name of the topmost owner."""
    return str(part(part(gang, "spec"), "owner").get("name", ""))


def state(gang: Gang) -> str:
    """As Muster wrote it; Unknown before it has."""
    return text(gang, "state") or "Unknown"


def reason(gang: Gang) -> str:
    """Why it is in that state, as a word for machines; "" where it is not told."""
    return _why(gang)[0]


def message(gang: Gang) -> str:
    """The same as a sentence; "" where it is not told."""
    return _why(gang)[1]


def in_place(gang: Gang) -> bool:
    """Whether it has GPUs in place: those that its pods train on change while they go on."""
    return message(gang).startswith("in place: ") or message(gang).endswith(", in place")


def _why(gang: Gang) -> tuple[str, str]:
    return gang_codec.why(text(gang, "code"), text(gang, "reason"), text(gang, "message"))


def share(gang: Gang) -> Share | None:
    """status.share: now/min/max."""
    counts = text(gang, "share").split("/")
    if len(counts) != 3 or not all(count.isdecimal() for count in counts):
        return None
    return Share(*map(int, counts))


def speeds(gang: Gang) -> dict[int, float]:
    """status.speeds: median speed by number of replicas, ascending."""
    found = {}
    for count, speed in part(status(gang), "speeds").items():
        value = _number(speed)
        if str(count).isdecimal() and value is not None:
            found[int(count)] = value
    return dict(sorted(found.items()))


def shares(gang: Gang) -> list[tuple[float, int]]:
    """status.shares: the last changes, oldest first, as Unix seconds and replicas."""
    found = status(gang).get("shares")
    if not isinstance(found, list):
        return []
    pairs = [pair for pair in found if isinstance(pair, list) and len(pair) == 2]
    values = [(_number(at), _number(count)) for at, count in pairs]
    return [(at, int(count)) for at, count in values if at is not None and count is not None]


def story(gang: Gang) -> list[Gang]:
    """status.story: the last transitions, oldest first, each with at (Unix seconds), state, event and cause."""
    found = status(gang).get("story")
    steps = found if isinstance(found, list) else []
    return [step for step in steps if isinstance(step, Mapping) and _number(step.get("at")) is not None]


def progress(gang: Gang) -> float | None:
    """status.progress as a part of 1."""
    found = text(gang, "progress").rstrip("%")
    try:
        return float(found) / 100.0
    except ValueError:
        return None


def seconds(time: object) -> float | None:
    """Unix seconds of an RFC 3339 time, None where it is none."""
    if not isinstance(time, str):
        return None
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


def remaining(gang: Gang, now: float) -> float | None:
    """Seconds until it is expected to end, 0 where that is over; None where it is not known."""
    end = seconds(status(gang).get("expectedEnd"))
    return None if end is None else max(0.0, end - now)


def start(gang: Gang, now: float) -> str:
    """ "in 12m", "now" where that is past: when it is expected to start; "" where that is not known."""
    at = seconds(status(gang).get("expectedStart"))
    if at is None:
        return ""
    return "now" if at <= now else f"in {duration(at - now)}"


def ago(time: object, now: float) -> str:
    """ "12m" since an RFC 3339 time, "" where it is none."""
    at = seconds(time)
    return "" if at is None else duration(now - at)


def order(gang: Gang) -> tuple[Any, ...]:
    """Priority, submission, then the job's key: the default order of the queue."""
    submitted = seconds(status(gang).get("submitted"))
    return (
        -int(number(gang, "priority")),
        math.inf if submitted is None else submitted,
        namespace(gang),
        job(gang),
        str(part(gang, "spec").get("uid", "")),
    )


def _number(found: object) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    try:
        value = float(found)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
