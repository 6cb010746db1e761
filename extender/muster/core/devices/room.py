"""GPUs of nodes beside those that holders have: what jobs in place could have, and what is to be given up."""

from __future__ import annotations

from collections.abc import Mapping

from muster.types import GPU, Snapshot


def could_have(found: Snapshot, held: Mapping[str, int], nodes: set[str]) -> dict[str, int]:
    """GPUs that jobs in place could have on these nodes: those of holders, and what is free."""
    column, index = found.nodes.resource_index.get(GPU), found.nodes.index
    if column is None:
        return {}
    return {node: int(found.free[index[node], column]) + held.get(node, 0) for node in nodes & index.keys()}


def to_vacate(snapshot: Snapshot) -> dict[str, int]:
    """GPUs that holders are to give up, by node: beside them, pods that are not in place need more than is left. Of
    the snapshot as the Ledger has it, where holders are charged and slots are not."""
    nodes = snapshot.nodes
    if GPU not in nodes.resources:
        return {}
    left = snapshot.free[:, nodes.resources.index(GPU)]
    return {name: -int(left[row]) for name, row in nodes.index.items() if left[row] < 0}
