"""The free capacity of a trial: take a place, and give it back.

A cycle works on one Room. Every `take` is journalled, `undo(mark)` returns to a mark (style rule 7). How many
replicas of a shape each node takes is kept by shape and brought up to date for the touched nodes only, so
that 10,000 waiting jobs of a few shapes cost a few array operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from muster.core.placement.feasibility import static_mask
from muster.types import PODS, BoolArray, IntArray, Nodes, Port, Shape, Snapshot

SPREADS = "podAntiAffinity"
"""Not modelled, but a good guess: replicas that repel pods are planned one a node."""
PLENTY = 1 << 40
"""More replicas than any node takes: a shape that asks for nothing."""


@dataclass(slots=True)
class _Fits:
    array: IntArray
    total: int
    seen: int  # position in the journal up to which `array` is true


class AnyCapacity(Protocol):
    """What placement needs of a trial."""

    nodes: Nodes
    free: IntArray
    ours: IntArray
    plugin_errors: set[str]

    def fits(self, shape: Shape) -> IntArray: ...
    def total_fits(self, shape: Shape) -> int: ...
    def vector(self, shape: Shape) -> tuple[IntArray, IntArray] | None: ...
    def take(self, node: int, shape: Shape, count: int = 1) -> None: ...
    def mark(self) -> int: ...
    def undo(self, mark: int) -> None: ...


class Capacity:
    """Free capacity that can be taken and given back. (N, R) int64, as the snapshot's columns.

    ours: (N,) pods of ours on each node, those placed in this trial included. complaints: what plugins did
    wrong while they were asked about this room.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes: Nodes = snapshot.nodes
        self.free: IntArray = snapshot.free.copy()
        self.ours: IntArray = (
            snapshot.ours_on.copy() if len(snapshot.ours_on) else np.zeros(len(self.nodes), dtype=np.int64)
        )
        self.ports: dict[int, frozenset[Port]] = dict(snapshot.ports)
        self.plugin_errors: set[str] = set()
        self._vectors: dict[Shape, tuple[IntArray, IntArray] | None] = {}
        self._fits: dict[Shape, _Fits] = {}
        self._touched: list[int] = []
        self._short: set[int] | None = None  # nodes that may be over-committed
        self._journal: list[tuple[int, Shape, int, frozenset[Port] | None]] = []

    def vector(self, shape: Shape) -> tuple[IntArray, IntArray] | None:
        """Columns and amounts that a replica takes; None where no node has one of the resources."""
        try:
            return self._vectors[shape]
        except KeyError:
            vector = self._vectors[shape] = self._new_vector(shape)
            return vector

    def _new_vector(self, shape: Shape) -> tuple[IntArray, IntArray] | None:
        amounts: dict[int, int] = {}
        for resource, amount in (*shape.requests, (PODS, 1)):
            if amount <= 0:
                continue
            column = self.nodes.resource_index.get(resource)
            if column is None:
                return None
            amounts[column] = amounts.get(column, 0) + amount
        return np.array(list(amounts), dtype=np.int64), np.array(list(amounts.values()), dtype=np.int64)

    def fits(self, shape: Shape) -> IntArray:
        """(N,) replicas of `shape` that each node still takes. Do not write to it."""
        return self._current(shape).array

    def total_fits(self, shape: Shape) -> int:
        """Replicas of `shape` that all nodes together still take."""
        return self._current(shape).total

    def _current(self, shape: Shape) -> _Fits:
        kept = self._fits.get(shape)
        if kept is None:
            array = self._count(shape, None)
            kept = self._fits[shape] = _Fits(array, int(array.sum()), len(self._touched))
        elif kept.seen < len(self._touched):
            rows = np.array(sorted(set(self._touched[kept.seen :])), dtype=np.int64)
            before = int(kept.array[rows].sum())
            kept.array[rows] = self._count(shape, rows)
            kept.total += int(kept.array[rows].sum()) - before
            kept.seen = len(self._touched)
        return kept

    def _count(self, shape: Shape, rows: IntArray | None) -> IntArray:
        vector = self.vector(shape)
        mask: BoolArray = static_mask(self.nodes, shape)
        if rows is not None:
            mask = mask[rows]
        if vector is None:
            return np.zeros(len(mask), dtype=np.int64)
        columns, amounts = vector
        free = self.free[:, columns] if rows is None else self.free[rows[:, None], columns]
        count = (free // amounts).min(axis=1) if len(columns) else np.full(len(mask), PLENTY, dtype=np.int64)
        count = np.where(mask, np.maximum(count, 0), 0)
        if shape.ports or repels(shape):
            count = np.minimum(count, 1)
            taken = [node for node, used in self.ports.items() if _clash(shape.ports, used)]
            count[taken if rows is None else np.isin(rows, taken)] = 0
        return count.astype(np.int64, copy=False)

    def take(self, node: int, shape: Shape, count: int = 1) -> None:
        """Use `count` places of `shape` on a node (by row). Enforces nothing: the caller asked `fits`."""
        self._change(node, shape, count)
        before = None
        if shape.ports:
            before = self.ports.get(node, frozenset())
            self.ports[node] = before | frozenset(shape.ports)
        self._journal.append((node, shape, count, before))

    def give(self, node: int, shape: Shape, count: int = 1) -> None:
        """The opposite of take, for what a trial assumes to be gone (ports are not given back)."""
        self._change(node, shape, -count)
        self._journal.append((node, shape, -count, None))

    def give_all(self, places: Iterable[tuple[int, Shape]]) -> None:
        """What these replicas (row, shape) use is free: the start of a trial, so it is not journalled."""
        by_shape: dict[Shape, list[int]] = {}
        by_id: dict[int, list[int]] = {}  # comparing shapes 40,000 times is what costs
        for row, shape in places:
            try:
                by_id[id(shape)].append(row)
            except KeyError:
                rows_of = by_id[id(shape)] = by_shape.setdefault(shape, [])
                rows_of.append(row)
        for shape, listed in by_shape.items():
            vector = self.vector(shape)
            if vector is not None:
                columns, amounts = vector
                rows = np.array(listed, dtype=np.int64)
                count = np.bincount(rows, minlength=len(self.nodes))
                self.free[:, columns] += count[:, None] * amounts
                self.ours -= count
                self._touched += set(listed)

    def _change(self, node: int, shape: Shape, count: int) -> None:
        vector = self.vector(shape)
        if vector is not None:
            columns, amounts = vector
            self.free[node, columns] -= amounts * count
            if count > 0 and self._short is not None:
                self._short.add(node)  # perhaps: it is looked at again
        self.ours[node] += count
        self._touched.append(node)

    def overcommitted(self, node: int, shape: Shape) -> bool:
        """Whether more is used on a node than it has, of anything that the shape asks for."""
        if self._short is None:  # asked for every hold of every job: nearly all nodes are well
            self._short = set(np.flatnonzero((self.free < 0).any(axis=1)).tolist())
        vector = self.vector(shape)
        if vector is not None and node not in self._short:
            return False
        return vector is None or bool((self.free[node, vector[0]] < 0).any())

    def mark(self) -> int:
        """A place to return to."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Give back all that was taken since the mark, newest first."""
        while len(self._journal) > mark:
            node, shape, count, before = self._journal.pop()
            self._change(node, shape, -count)
            if before is not None:
                self.ports[node] = before


class CapacityPair:
    """A trial that must fit now and later (at the head's reserved start): it takes from both rooms."""

    def __init__(self, now: AnyCapacity, later: AnyCapacity) -> None:
        self.now, self.later = now, later
        self.nodes = now.nodes
        self.free = now.free
        self.ours = now.ours
        self.plugin_errors = now.plugin_errors
        self._marks: list[tuple[int, int]] = []

    def fits(self, shape: Shape) -> IntArray:
        """(N,) replicas that fit in both."""
        return np.minimum(self.now.fits(shape), self.later.fits(shape))

    def total_fits(self, shape: Shape) -> int:
        """Replicas that fit in both, over all nodes."""
        return int(self.fits(shape).sum())

    def vector(self, shape: Shape) -> tuple[IntArray, IntArray] | None:
        """As `Capacity.vector`."""
        return self.now.vector(shape)

    def take(self, node: int, shape: Shape, count: int = 1) -> None:
        """Use places in both."""
        self.now.take(node, shape, count)
        self.later.take(node, shape, count)

    def mark(self) -> int:
        """A place to return to."""
        self._marks.append((self.now.mark(), self.later.mark()))
        return len(self._marks) - 1

    def undo(self, mark: int) -> None:
        """Give back in both."""
        now, later = self._marks[mark]
        self.now.undo(now)
        self.later.undo(later)


def repels(shape: Shape) -> bool:
    """Whether replicas of the shape are planned one a node for each role."""
    return any(why.startswith(SPREADS) for why in shape.unmodelled)


def _clash(wanted: tuple[Port, ...], used: frozenset[Port]) -> bool:
    """Two host ports clash on one number and protocol unless their addresses differ; 0.0.0.0 is any."""
    anywhere = ("", "0.0.0.0")
    return any(
        w.number == u.number
        and w.protocol == u.protocol
        and (w.address == u.address or w.address in anywhere or u.address in anywhere)
        for w in wanted
        for u in used
    )


def used_by(shape: Shape, nodes: Nodes) -> Mapping[int, int]:
    """Column -> amount of one replica, for a Ledger that keeps usage itself; unknown resources left out."""
    amounts: dict[int, int] = {}
    for resource, amount in (*shape.requests, (PODS, 1)):
        column = nodes.resource_index.get(resource)
        if column is not None:
            amounts[column] = amounts.get(column, 0) + amount
    return amounts
