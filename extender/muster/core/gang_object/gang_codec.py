"""What the Ledger keeps of a job in its Gang beside state and placement: facts, speeds, plugins' memory, wants, and
where all of it is to start again.

Facts and wants have the codec of a dump (`core.plain_values`), speeds and lessons one of their own: the reasons stand
there. It is written as one list of one object, which a merge patch replaces whole: what is gone from it is gone. A
value that can't be read (an older version wrote it, somebody edited it) is left out, never an error: it is observed
again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.core import plain_values
from muster.core.bounds import JOB_REPLICAS, REPLICAS
from muster.types import BEHIND, Facts, Grant, State, Turn


def why(code: str, reason: str, message: str) -> tuple[str, str]:
    """The word and the sentence of a Gang's status. An older version called them `code` and `reason`; `code` is in no
    status but its own, since each write of ours takes it away."""
    return (code, reason) if code else (reason, message)


LAST = f"; {BEHIND}"


def queued(message: str, turn: Turn | None) -> str:
    """The sentence as a Gang has it: of a job far back in the queue it says so, since there is no position."""
    return message + LAST if turn is not None and turn.expected == BEHIND else message


def unqueued(message: str) -> str:
    """The sentence without that: what the job waits for."""
    return message.removesuffix(LAST)


def turn(state: str, position: int, fits: str, blocker: str, start: float, expected: str) -> Turn | None:
    """What a Gang tells of its job's turn, of a job that waits for one."""
    told = Turn(position, fits, blocker, start, expected)
    return told if state == State.WAITING and told != Turn() else None


COUNTED = re.compile(r"(\d+) of (\d+) ")
"""Of what fits: how many now, of how many."""


def free(fits: str) -> str:
    """What fits now/what is needed, where that can be counted; else empty."""
    found = COUNTED.match(fits)
    return "/".join(found.groups()) if found else ""


FAR = 1e15
"""No time and no sum of GPU seconds is beyond it."""


def plain(
    facts: Facts,
    track: Mapping[str, object],
    memory: Mapping[str, object],
    grant: Grant | None,
    restart_on: Sequence[str] = (),
    leaves_whole: Iterable[str] = (),
) -> dict[str, object]:
    """Plain values for status.ledger.elastic; empty parts are left out."""
    parts: dict[str, object] = {
        "facts": plain_values.plain(facts),
        "track": dict(track),
        "memory": dict(memory),
        "want": None if grant is None else plain_values.plain(grant),
        "restartOn": dict(Counter(restart_on)),
        "leavesWhole": sorted(leaves_whole),
    }
    return {name: part for name, part in parts.items() if part}


def _sound(value: object) -> bool:
    """Whether all numbers in plain values are such as we write."""
    if isinstance(value, int | float):
        return abs(value) <= FAR
    if isinstance(value, str):
        return value.lstrip("-") not in ("inf", "nan")
    if isinstance(value, Mapping):
        return all(map(_sound, value.values()))
    return not isinstance(value, list) or all(map(_sound, value))


def from_plain(found: object) -> dict[str, Any]:
    """Fields of a GangRecord: facts, track, memory, want and where it is to start again, as far as they can be
    read."""
    if not isinstance(found, Mapping):
        return {}
    result: dict[str, Any] = {}
    for name, field, kind in (("facts", "facts", Facts), ("want", "grant", Grant)):
        try:
            if found.get(name):
                value = plain_values.built(found[name], kind)
                if _sound(plain_values.plain(value)):
                    result[field] = value
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            continue
    for name in ("track", "memory"):
        part = found.get(name)
        if isinstance(part, Mapping):
            result[name] = dict(part)
    if places := _places(found.get("restartOn")):
        result["restart_on"] = places
    leaves = found.get("leavesWhole")
    if isinstance(leaves, list) and 0 < len(leaves) <= JOB_REPLICAS.most:
        result["leaves_whole"] = frozenset(uid for uid in leaves if isinstance(uid, str))
    return result


def _places(found: object) -> tuple[str, ...]:
    """A node for each replica, of replicas by node; nothing where any of that is none, or too many."""
    if not isinstance(found, Mapping):
        return ()
    sound = all(type(count) is int and 0 < count <= REPLICAS.most for count in found.values())
    if not sound or sum(found.values()) > REPLICAS.most:
        return ()
    return tuple(sorted(Counter(found).elements()))
