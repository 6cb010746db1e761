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

from muster.core.placement.capacity import AnyCapacity, Capacity
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
    wanted, asked = tuple(need.count for need in needs), _asked(capacity, needs)
    fits = np.stack([np.minimum(capacity.fits(n.role.shape), n.count) for n in needs], axis=1)
    takes, left = fits.any(axis=1), STEPS
    for region in regions:
        rows = np.flatnonzero(region & takes)
        steps = _steps(capacity.free[rows], fits[rows], asked, wanted, left)
        if steps is None:
            return False
        left -= steps
    return True


def short(capacity: AnyCapacity, needs: Sequence[Need]) -> bool:
    """Whether all nodes that take any of the needs have too little of a resource for all of them together."""
    takes = np.zeros(len(capacity.nodes), dtype=np.bool_)
    for need in needs:
        takes |= capacity.fits(need.role.shape) > 0
    return _too_little(capacity.free[takes], _asked(capacity, needs), [need.count for need in needs])


def _too_little(free: IntArray, asked: IntArray, wanted: Sequence[int]) -> bool:
    """Whether nodes (N, resources) have less of a resource than all replicas ask for. One that is used beyond what
    its node has counts as nothing, and what nobody asks for not at all."""
    total = np.array(wanted) @ asked
    return bool(((total > np.maximum(free, 0).sum(axis=0)) & (total > 0)).any())


def _asked(capacity: AnyCapacity, needs: Sequence[Need]) -> IntArray:
    """(R, resources) of a replica of each role."""
    asked = np.zeros((len(needs), capacity.free.shape[1]), dtype=np.int64)
    for row, need in zip(asked, needs, strict=True):
        vector = capacity.vector(need.role.shape)
        if vector is not None:
            row[vector[0]] = vector[1]
    return asked


def _steps(free: IntArray, fits: IntArray, asked: IntArray, wanted: Counts, most: int) -> int | None:
    """Steps that it took to rule these nodes out, one at least; None where that can't be done, or would take more."""
    if _too_little(free, asked, wanted):
        return 1
    kinds: dict[bytes, list[Counts]] = {}
    reached, steps = [(0,) * len(wanted)], 1
    for node in range(len(free)):
        kind = fits[node].tobytes() + free[node].tobytes()
        if kind not in kinds:
            kinds[kind] = list(islice(_taken(free[node], fits[node], asked), WIDTH + 1))
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
    return steps if steps <= most else None


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
