"""Capacity: who uses what on which node, as columns that follow each change.

A charge is keyed by a pod's uid, or by job and number for a place whose pod does not exist yet; a key is charged
at one node at a time, so "planned", "ungated" and "bound" never count twice and never not at all.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from muster.cached import MIB, Cache
from muster.core.placement.capacity import used_by
from muster.types import DEVICES, DeviceNames, IntArray, NodeRecord, Nodes, Port, Shape

VECTORS = 16 * MIB
"""Bytes of what shapes use, kept as columns."""


@dataclass(frozen=True, slots=True)
class _Charge:
    node: str
    shape: Shape
    ours: bool


class Usage:
    """The nodes, and what is used on them. `moved`: something changed since a reader set it to False."""

    def __init__(self, devices: DeviceNames = DEVICES) -> None:
        self.devices = devices
        self.nodes: dict[str, NodeRecord] = {}
        self.moved = True
        self._table: Nodes | None = None
        self._used: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._ours_on: IntArray = np.zeros(0, dtype=np.int64)
        self._vectors: Cache[Shape, tuple[tuple[int, int], ...]] = Cache(VECTORS)
        self._charges: dict[Hashable, _Charge] = {}
        self._with_ports: set[Hashable] = set()

    # ---- the nodes ----

    def node_seen(self, node: NodeRecord) -> None:
        """A node as it is now."""
        if self.nodes.get(node.name) != node:
            self.nodes[node.name] = node
            self._table = None

    def node_gone(self, name: str) -> None:
        """What was charged there counts again where the node comes back."""
        if self.nodes.pop(name, None) is not None:
            self._table = None

    @property
    def stale(self) -> bool:
        """Whether the nodes changed since the columns were made."""
        return self._table is None

    def current(self, nodes: Nodes) -> bool:
        """Whether these are the columns that charges are counted in."""
        return self._table is nodes

    # ---- charges ----

    def charge(self, key: Hashable, node: str, shape: Shape, *, ours: bool) -> None:
        """What `key` (a pod's uid or an open hold) uses is on `node` now; "" = nowhere."""
        before = self._charges.get(key)
        after = _Charge(node, shape, ours) if node else None
        if before == after:
            return
        self.moved = True
        if before is not None:
            self._add(before, -1)
            del self._charges[key]
            self._with_ports.discard(key)
        if after is not None:
            self._charges[key] = after
            self._add(after, 1)
            if shape.ports:
                self._with_ports.add(key)

    def charged(self, key: Hashable) -> bool:
        """Whether the key uses anything."""
        return key in self._charges

    def _add(self, charge: _Charge, sign: int) -> None:
        table = self._table
        if table is None:
            return
        row = table.index.get(charge.node)
        if row is None:
            return
        vector = self._vectors.get(charge.shape)
        if vector is None:
            vector = tuple(used_by(charge.shape, table).items())
            self._vectors.put(charge.shape, vector)
        for column, value in vector:
            self._used[row, column] += sign * value
        if charge.ours:
            self._ours_on[row] += sign

    # ---- readers ----

    def columns(self) -> Nodes:
        """The nodes as columns; made again where a node changed."""
        if self._table is None:
            self._table = Nodes(list(self.nodes.values()), self.devices)
            self._vectors.clear()
            self._used = np.zeros((len(self._table), len(self._table.resources)), dtype=np.int64)
            self._ours_on = np.zeros(len(self._table), dtype=np.int64)
            for charge in self._charges.values():
                self._add(charge, 1)
        return self._table

    def free(self) -> IntArray:
        """(N, R) what is left by now."""
        return self.columns().total - self._used

    def ours_on(self) -> IntArray:
        """(N,) pods of ours, a copy."""
        self.columns()
        return self._ours_on.copy()

    def ports(self) -> dict[int, frozenset[Port]]:
        """Host ports in use by node row."""
        table = self.columns()
        ports: dict[int, frozenset[Port]] = {}
        for charge in (self._charges[k] for k in self._with_ports):
            row = table.index.get(charge.node)
            if row is not None:
                ports[row] = ports.get(row, frozenset()) | frozenset(charge.shape.ports)
        return ports
