"""Over which of many things a step raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Key = TypeVar("Key")


def culprit(keys: Sequence[Key], step: Callable[[Sequence[Key]], object]) -> Key | None:
    """A key over which a step raises that it does not raise without, by halving; None where it is no key's fault.
    keys: over all of which it raises."""

    def fails(count: int) -> bool:
        try:
            step(keys[:count])
        except Exception:
            return True
        return False

    if fails(0):
        return None
    low, high = 0, len(keys)  # over the first `low` it does not raise, over the first `high` it does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return keys[high - 1] if high else None
