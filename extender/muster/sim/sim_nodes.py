"""The simulated nodes: as records and columns, what is used on them, and which of them are down.

The counterpart of the Ledger's charges (core.placement.usage) for a cluster of which everything is known at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from muster.core.placement.capacity import used_by
from muster.errors import InvariantError
from muster.sim.workload import Cluster
from muster.types import GPU, GPU_MEMORY, HOSTNAME, PODS, PRODUCT, IntArray, NodeRecord, Nodes, Shape

RACK = "topology.muster.dev/rack"
"""The node label of a simulated node's rack."""
MEMORY = 1 << 40
"""Bytes of a simulated node: no trace says, and no job of a trace fills it."""
PODS_EACH = 1000


def records(cluster: Cluster) -> list[NodeRecord]:
    """The nodes of a cluster: named by product (else `node`) and number, so that names sort in the order given.

    A rack holds equal runs of a group's nodes; racks are numbered over the whole cluster.
    """
    result: list[NodeRecord] = []
    numbers: dict[str, int] = {}
    racks = 0
    width = len(str(max(0, sum(g.nodes for g in cluster.groups) - 1)))
    for group in cluster.groups:
        stem = group.product.lower().replace(" ", "-") or "node"
        for i in range(group.nodes):
            number = numbers[stem] = numbers.get(stem, -1) + 1
            name = f"{stem}-{number:0{width}d}"
            labels = {HOSTNAME: name, RACK: f"rack-{racks + i * group.racks // group.nodes}"}
            if group.product:
                labels[PRODUCT] = group.product
            if group.memory:
                labels[GPU_MEMORY] = str(group.memory)
            allocatable = {"cpu": group.cpu, "memory": MEMORY, PODS: PODS_EACH}
            if group.gpus:
                allocatable[GPU] = group.gpus
            result.append(NodeRecord(name, labels, (), False, allocatable))
        racks += group.racks
    return result


Place = tuple[int, Shape, int]
"""Node row, shape, replicas."""


class Site:
    """Nodes as columns, and what is planned on them. free: (N, R) int64; ours_on: (N,) pods of ours."""

    def __init__(self, cluster: Cluster) -> None:
        self.nodes = Nodes(records(cluster))
        self.free: IntArray = self.nodes.total.copy()
        self.ours_on: IntArray = np.zeros(len(self.nodes), dtype=np.int64)
        self.by_name: dict[str, NodeRecord] = {n.name: n for n in self.nodes.records}
        self._column = self.nodes.resource_index.get(GPU)
        self._vectors: dict[Shape, tuple[tuple[int, int], ...]] = {}
        self.gpus = 0 if self._column is None else int(self.nodes.total[:, self._column].sum())
        self.per_node = 0 if self._column is None else int(self.nodes.total[:, self._column].max(initial=0))
        self.down: set[str] = set()
        self.free_gpus = self.gpus  # on all nodes, those that are down included

    def charge(self, places: Iterable[Place], sign: int = 1) -> None:
        """Use (1) or give back (-1). Raises InvariantError where more is used than there is."""
        for row, shape, count in places:
            vector = self._vectors.get(shape)
            if vector is None:
                vector = self._vectors[shape] = tuple(used_by(shape, self.nodes).items())
            for column, amount in vector:
                self.free[row, column] -= sign * count * amount
                if column == self._column:
                    self.free_gpus -= sign * count * amount
                if self.free[row, column] < 0 and sign > 0:
                    raise InvariantError(
                        f"{self.nodes.names[row]} has {self.nodes.total[row, column]} "
                        f"{self.nodes.resources[column]}, and {-self.free[row, column]} more are planned on it"
                    )
            self.ours_on[row] += sign * count

    def set_down(self, name: str, *, down: bool) -> None:
        """A node fails or is back: it is cordoned while it is down."""
        (self.down.add if down else self.down.discard)(name)
        self.nodes = Nodes(
            [
                n if n.name not in self.down else NodeRecord(n.name, n.labels, n.taints, True, n.allocatable)
                for n in self.by_name.values()
            ]
        )

    def gpus_of(self, name: str) -> int:
        """GPUs of a node."""
        return self.by_name[name].allocatable.get(GPU, 0)

    def product(self, name: str) -> str:
        """GPU product of a node, "" where groups have none."""
        return self.by_name[name].labels.get(PRODUCT, "")

    def products(self) -> Mapping[str, int]:
        """GPUs by product, in the order of the nodes' names."""
        found: dict[str, int] = {}
        for node in self.nodes.records:
            product = node.labels.get(PRODUCT, "")
            found[product] = found.get(product, 0) + node.allocatable.get(GPU, 0)
        return found
