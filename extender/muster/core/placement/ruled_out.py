"""Whether several roles stand together in no arrangement: what first fit (`core.placement.place`) can't tell.

Exact where it says so. The nodes are gone through one by one, with the numbers of replicas that those so far can
have taken of each role (vectors packing by dynamic programming; only what nothing else exceeds is kept). It gives up
after STEPS, so that it says nothing of many nodes, but where all of them together have too little of a resource.
Host ports of one role that are another's, too, are left out: they make less possible, not more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from muster.core.placement.capacity import Capacity
from muster.core.placement.together import Need
from muster.types import BoolArray, IntArray

STEPS = 5_000
"""Sums of two vectors that are looked at for one job: some 10 ms, 100 at most."""
WIDTH = 40
"""Vectors of a node, or kept from one node to the next."""

Counts = tuple[int, ...]
"""Replicas of each role."""


def ruled_out(capacity: Capacity, needs: Sequence[Need], regions: Iterable[BoolArray]) -> bool:
    """Whether in each region (N,) there is certainly no arrangement of all the needs. False: there may be one."""
    left = STEPS
    for region in regions:
        steps = _steps(capacity, needs, region, left)
        if steps is None:
            return False
        left -= steps
    return True


def _steps(capacity: Capacity, needs: Sequence[Need], region: BoolArray, most: int) -> int | None:
    """Steps that it took to rule a region out; None where that was not possible, or would take more."""
    wanted = tuple(need.count for need in needs)
    fits = np.stack([np.minimum(capacity.fits(n.role.shape), n.count) for n in needs], axis=1)
    fits[~region] = 0
    asked = np.zeros((len(needs), capacity.free.shape[1]), dtype=np.int64)
    for row, need in zip(asked, needs, strict=True):
        vector = capacity.vector(need.role.shape)
        if vector is not None:
            row[vector[0]] = vector[1]
    rows = np.flatnonzero(fits.any(axis=1))
    if (np.array(wanted) @ asked > capacity.free[rows].sum(axis=0)).any():
        return 0
    kinds: dict[bytes, list[Counts]] = {}
    reached, steps = [(0,) * len(needs)], 0
    for node in rows.tolist():
        kind = fits[node].tobytes() + capacity.free[node].tobytes()
        if kind not in kinds:
            kinds[kind] = list(islice(_taken(capacity.free[node], fits[node], asked), WIDTH + 1))
        steps += len(reached) * len(kinds[kind])
        if steps > most or len(kinds[kind]) > WIDTH:
            return None
        reached = _largest(
            {
                tuple(map(min, wanted, map(int.__add__, before, here)))
                for before in reached
                for here in kinds[kind]
            }
        )
        if reached[0] == wanted or len(reached) > WIDTH:
            return None
    return steps


def _taken(free: IntArray, fits: IntArray, asked: IntArray) -> Iterable[Counts]:
    """What a node takes of the roles, each number of the first ones with the most of the last."""
    uses = asked[0] > 0
    most = min(int(fits[0]), int((free[uses] // asked[0][uses]).min(initial=fits[0])))
    if len(fits) == 1:
        yield (most,)
        return
    for count in range(most, -1, -1):
        for others in _taken(free - count * asked[0], fits[1:], asked[1:]):
            yield (count, *others)


def _largest(found: Iterable[Counts]) -> list[Counts]:
    """Without those that another one exceeds, the largest first, WIDTH + 1 at most."""
    kept: list[Counts] = []
    for one in sorted(found, reverse=True):
        if len(kept) > WIDTH:
            break
        if not any(all(a >= b for a, b in zip(other, one, strict=True)) for other in kept):
            kept.append(one)
    return kept
