"""Counts and times as sentences for owners have them."""

from __future__ import annotations

from muster.core.bounds import calendar
from muster.types import Seconds

TODAY = 20 * 3600.0
"""Seconds: a time of day says which day it is while it is nearer than that."""


def duration(seconds: Seconds | float) -> str:
    """ "45s", "12m", "3h20m", "2d4h": as kubectl prints ages."""
    s = max(0, int(seconds))
    if s < 120:
        return f"{s}s"
    if s < 3 * 3600:
        return f"{s // 60}m"
    if s < 48 * 3600:
        return f"{s // 3600}h{s % 3600 // 60}m" if s % 3600 // 60 else f"{s // 3600}h"
    return f"{s // 86400}d{s % 86400 // 3600}h"


def plural(count: int, word: str) -> str:
    """ "1 pod", "3 pods"."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def clock(at: float | None, now: float) -> str:
    """A time to come as a column has room for it, in UTC: "23:50Z", from 20 hours on "24 Nov"; "" for none."""
    when = calendar(at) if at else None
    if at is None or when is None:
        return ""
    return f"{when:%H:%M}Z" if at - now < TODAY else f"{when.day} {when:%b}"
