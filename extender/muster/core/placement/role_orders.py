"""In which order the roles of a job are placed one after another (`core.placement.place`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from muster.core.placement.capacity import AnyCapacity
from muster.core.placement.together import Need

ALL_ORDERS = 3
"""Of more roles than these not every order is tried: 24 of four."""


def demand(need: Need) -> tuple[object, ...]:
    """The most demanding first."""
    shape = need.role.shape
    return (-shape.gpus, -shape.request("cpu"), -shape.request("memory"), need.role.name)


def orders(capacity: AnyCapacity, ordered: Sequence[Need]) -> Iterator[Sequence[Need]]:
    """As given, the most demanding first; then, for where that finds nothing, those first that the fewest nodes take,
    and of up to ALL_ORDERS roles each other order. Each order once."""
    yield ordered
    if len(ordered) < 2:
        return
    nodes = [int(np.count_nonzero(capacity.fits(need.role.shape))) for need in ordered]
    first = tuple(range(len(ordered)))
    others = [tuple(sorted(first, key=nodes.__getitem__))]
    if len(ordered) <= ALL_ORDERS:
        others += permutations(first)
    for order in dict.fromkeys(others):
        if order != first:
            yield [ordered[i] for i in order]
