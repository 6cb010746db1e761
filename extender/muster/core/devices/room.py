"""GPUs of nodes beside those that holders have: what jobs in place could have, and what is to be given up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.types import GPU, PODS, Plan, Reservation, Role, Shape, Snapshot

UNSAID = 1 << 30
"""Pods of a node that says no number."""


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


def early(snapshot: Snapshot, plan: Plan, role: Role, then: Iterable[Reservation]) -> list[Reservation]:
    """The pods' places, if what they ask for is free there now, beside all that this plan places; else none."""
    nodes = snapshot.nodes
    free: dict[str, dict[str, int]] = {}
    for hold in then:
        row = nodes.index[hold.node]
        free[hold.node] = dict(zip(nodes.resources, (int(n) for n in snapshot.free[row]), strict=True))

    def take(node: str, shape: Shape) -> bool:
        for name, amount in (*shape.requests, (PODS, 1)):
            free[node][name] = free[node].get(name, 0 if name != PODS else UNSAID) - amount
        return all(free[node][name] >= 0 for name, amount in (*shape.requests, (PODS, 1)) if amount)

    for key, places in plan.reservations.items():
        job = snapshot.jobs[key]
        shapes = {part.name: part.shape for part in job.roles}
        for place in places:
            if place.node in free and place not in job.reservations:
                take(place.node, shapes[place.role])
    found = []
    for hold, member in zip(then, (m for m in role.members if m.ready), strict=False):
        if not take(hold.node, role.shape):
            return []
        found.append(replace(hold, uid=member.uid, pod=member.pod))
    return found
