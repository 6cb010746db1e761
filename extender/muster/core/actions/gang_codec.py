"""What the Ledger keeps of a job in its Gang beside state and placement: facts, speeds, plugins' memory, wants.

It is written as one list of one object, which a merge patch replaces whole: what is gone from it is gone. A value
that can't be read (an older version wrote it, somebody edited it) is left out, never an error: it is observed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.core import plain_values
from muster.types import Facts, Grant

FAR = 1e15
"""No time and no sum of GPU seconds is beyond it."""


def plain(
    facts: Facts, track: Mapping[str, object], memory: Mapping[str, object], grant: Grant | None
) -> dict[str, object]:
    """Plain values for status.ledger.elastic; empty parts are left out."""
    parts: dict[str, object] = {
        "facts": plain_values.plain(facts),
        "track": dict(track),
        "memory": dict(memory),
        "want": None if grant is None else plain_values.plain(grant),
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
    """Fields of a GangRecord: facts, track, memory and want, as far as they can be read."""
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
    return result
