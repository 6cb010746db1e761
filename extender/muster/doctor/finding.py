"""What is told of one thing that was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

ASK = "ask somebody who may, or run it as one: --context"
NAMES = 3
"""Names in a sentence; the others are counted."""


class Level(StrEnum):
    """How bad it is. UNKNOWN: the caller may not look, or nobody answers."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence on `about`, and what to do, "" where nothing is to be done."""

    level: Level
    about: str
    says: str
    do: str = ""


def fine(about: str, says: str) -> Finding:
    return Finding(Level.OK, about, says)


def warn(about: str, says: str, do: str) -> Finding:
    return Finding(Level.WARN, about, says, do)


def fail(about: str, says: str, do: str) -> Finding:
    return Finding(Level.FAIL, about, says, do)


def may_not(about: str, said: str) -> Finding:
    """said: by the API server."""
    return Finding(Level.UNKNOWN, about, said, ASK)


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMES
    return ", ".join(names[:NAMES]) + (f" and {more} more" if more > 0 else "")
