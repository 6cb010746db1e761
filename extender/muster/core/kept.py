"""What the Ledger keeps of a job in its Gang beside state and placement: facts, speeds, plugins' memory, wants.

It is written as one list of one object, which a merge patch replaces whole: what is gone from it is gone. A value
that can't be read (an older version wrote it, somebody edited it) is left out, never an error: it is observed anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.core import dump
from muster.types import Facts, Want


def plain(
    facts: Facts, track: Mapping[str, object], memory: Mapping[str, object], want: Want | None
) -> dict[str, object]:
    """Plain values for status.ledger.elastic; empty parts are left out."""
    parts: dict[str, object] = {
        "facts": dump.plain(facts),
        "track": dict(track),
        "memory": dict(memory),
        "want": None if want is None else dump.plain(want),
    }
    return {name: part for name, part in parts.items() if part}


def from_plain(found: object) -> dict[str, Any]:
    """Fields of a GangRecord: facts, track, memory and want, as far as they can be read."""
    if not isinstance(found, Mapping):
        return {}
    result: dict[str, Any] = {}
    for name, kind in (("facts", Facts), ("want", Want)):
        try:
            if found.get(name):
                result[name] = dump.built(found[name], kind)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    for name in ("track", "memory"):
        part = found.get(name)
        if isinstance(part, Mapping):
            result[name] = dict(part)
    return result
