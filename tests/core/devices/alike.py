"""A decision that leaves nodes out, settled ones or those of which nothing is new, is the one with all nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from muster.core.devices.coordinator import Coordinator
from muster.core.devices.hand_over import Decisions, decide
from muster.core.devices.on_node import Want
from muster.core.devices.settled import Settled


def decided(
    memory: Coordinator,
    wants: Sequence[Want],
    now: float,
    vacate: Mapping[str, int] | None = None,
    aside: AbstractSet[str] = frozenset(),
    settled: dict[str, Settled] | None = None,
    only: AbstractSet[str] | None = None,
) -> Decisions:
    """`decide`; what it comes to, and what is known afterwards, is the same where no node is left out."""
    full = memory.copy()
    expected = decide(full, wants, now, vacate, aside)
    found = decide(memory, wants, now, vacate, aside, settled, only)
    assert found == expected
    assert found.idle == {node: at for node, at in expected.idle.items() if only is None or node in only}
    assert memory == full
    return found
