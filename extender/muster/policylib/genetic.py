"""A genetic search with two aims: NSGA-II (Deb et al., 2002), as Pollux's artifact takes it from pymoo.

What a state is, and how states are crossed, changed and made legal, says the `Search`. Each generation makes as many
children as there are states; of both, those of the better fronts stay, and within a front those with the fewest near
them. The same random generator gives the same result.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from muster.types import FloatArray, IntArray


class Search(Protocol):
    """What is searched. states: (P, ...) int64, one state a row. aims: (P, 2), the smaller the better."""

    def aims(self, states: IntArray) -> FloatArray: ...
    def crossed(self, one: IntArray, other: IntArray, rng: np.random.Generator) -> IntArray: ...
    def mutated(self, states: IntArray, rng: np.random.Generator) -> IntArray: ...
    def repaired(self, states: IntArray, rng: np.random.Generator) -> IntArray: ...


def evolve(
    search: Search, first: IntArray, rng: np.random.Generator, population: int, generations: int
) -> tuple[IntArray, FloatArray]:
    """(P, ...) states that no other state of the last generation dominates, and their (P, 2) aims.

    first: states to begin with, at least one; they are repaired, too, and are generation 1.
    """
    states = search.repaired(first, rng)
    aims = search.aims(states)
    rank, crowding = ranked(aims)
    for _ in range(generations - 1):
        # 1 parents by tournament, their children crossed, changed and made legal
        one, other = tournaments(rank, crowding, population, rng)
        children = search.mutated(search.crossed(states[one], states[other], rng), rng)
        children = _new(search.repaired(children, rng), states)
        # 2 the best of both
        states = np.concatenate([states, children])
        aims = np.concatenate([aims, search.aims(children)])
        rank, crowding = ranked(aims)
        best = np.lexsort((-crowding, rank))[:population]
        states, aims, rank, crowding = states[best], aims[best], rank[best], crowding[best]
    return states[rank == 0], aims[rank == 0]


def ranked(aims: FloatArray) -> tuple[IntArray, FloatArray]:
    """(P,) number of each one's front, from 0 (what nothing dominates), and (P,) its crowding distance there."""
    one, other = aims[:, None], aims[None]
    better = np.asarray((one <= other).all(axis=2) & (one < other).any(axis=2))  # [i, j]: i dominates j
    above = better.sum(axis=0)
    rank, crowding = np.full(len(aims), -1, dtype=np.int64), np.zeros(len(aims))
    front = 0
    while (rank < 0).any():
        now = np.flatnonzero((rank < 0) & (above == 0))
        rank[now], crowding[now] = front, _crowding(aims[now])
        above = above - better[now].sum(axis=0)
        front += 1
    return rank, crowding


def _crowding(aims: FloatArray) -> FloatArray:
    """(P,) how far apart the neighbours on both sides are, as parts of the front's span; inf at its ends."""
    found = np.zeros(len(aims))
    for column in aims.T:
        order = np.argsort(column, kind="stable")
        span = column[order[-1]] - column[order[0]]
        if span > 0.0:
            found[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / span
        found[order[[0, -1]]] = np.inf
    return found


def tournaments(rank: IntArray, crowding: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
    """(2, count) parents: of each two that are drawn the one of the better front, then the less crowded one."""
    one, other = rng.integers(len(rank), size=(2, 2, count))
    first = (rank[one] < rank[other]) | ((rank[one] == rank[other]) & (crowding[one] >= crowding[other]))
    found: IntArray = np.where(first, one, other)
    return found


def _new(children: IntArray, states: IntArray) -> IntArray:
    """The children that are not there yet, each once."""
    seen = {state.tobytes() for state in states}
    rows = []
    for row, child in enumerate(children):
        key = child.tobytes()
        if key not in seen:
            seen.add(key)
            rows.append(row)
    return children[rows]
