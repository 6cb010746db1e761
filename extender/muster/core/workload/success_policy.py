"""How many of an Indexed Job's replicas must have run for the Job to end: what its successPolicy needs (KEP-3998).

The running set is a prefix of the indexes (design §1), so what counts is the highest index that a rule can't do
without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rule = Mapping[str, Any]


def prefix(rules: Sequence[Rule]) -> int:
    """Replicas, from index 0, with which the easiest of the rules can be met; 0 where there is none to read.

    A rule names indexes ("0,2-4"), all of which must succeed, or a count of them (of all where it names none).
    """
    found = [needed for needed in map(_of_rule, rules) if needed]
    return min(found, default=0)


def _of_rule(rule: Rule) -> int:
    ranges = _ranges(str(rule.get("succeededIndexes") or ""))
    count = int(rule.get("succeededCount") or 0)
    if not ranges:
        return count
    if not count:
        return max(last for _, last in ranges) + 1
    for first, last in sorted(ranges):
        if count <= last - first + 1:
            return first + count
        count -= last - first + 1
    return 0  # more than it names: never met, and refused by the API server


def _ranges(text: str) -> list[tuple[int, int]]:
    """ "0,2-4" as [(0, 0), (2, 4)]; the API server has checked the grammar, what can't be read counts as nothing."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.append((int(first), int(last or first)))
    return found
