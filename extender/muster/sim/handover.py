"""Changes under way: which of them can be carried out now, so that no GPU is ever used by two jobs.

A change is *ready* when its preparation is over. Changes hang together where one job's new replicas go to a node
that another's leave. What is ready and takes only what is free goes at once; the rest of a group goes
together, when the last of the group is ready: until then those that give something up train on as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from muster.sim.physics import Cost
from muster.sim.running_job import Places, Training


@dataclass(frozen=True, slots=True)
class Pending:
    """A decided change of one training. ready: when its preparation is over (s)."""

    kind: str
    cost: Cost
    ready: float
    places: Places
    batch: int


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What is taken (above 0) or left (below 0) on each node."""
    result = dict(after)
    for node, count in before.items():
        result[node] = result.get(node, 0) - count
    return {node: count for node, count in result.items() if count}


def due(
    pending: Mapping[Training, Pending], now: float, free: Callable[[str], int]
) -> list[list[tuple[Training, Pending]]]:
    """Changes to be carried out now, in groups of those that go together; free: GPUs that nobody uses on a node."""
    if all(p.ready <= now for p in pending.values()):
        return [list(pending.items())] if pending else []
    result: list[list[tuple[Training, Pending]]] = []
    taken: dict[str, int] = {}
    for group in groups(pending):
        if all(pending[training].ready <= now for training in group):
            result.append([(training, pending[training]) for training in group])
            continue
        for training in group:
            change = pending[training]
            delta = difference(training.at.gpus, change.places.gpus)
            if change.ready > now or any(count < 0 for count in delta.values()):
                continue
            if all(free(node) - taken.get(node, 0) >= count for node, count in delta.items()):
                result.append([(training, change)])
                for node, count in delta.items():
                    taken[node] = taken.get(node, 0) + count
    return result


def groups(pending: Mapping[Training, Pending]) -> list[Sequence[Training]]:
    """Jobs that hang together by the nodes that they take or leave, each group in the trace's order."""
    found: dict[str, list[Training]] = {}
    member: dict[Training, list[Training]] = {}
    for training, change in pending.items():
        group = [training]
        for node in difference(training.at.gpus, change.places.gpus):
            other = found.get(node)
            if other is not None and other is not group:
                group, other = (other, group) if len(other) > len(group) else (group, other)
                group += other
                for name, listed in found.items():
                    if listed is other:
                        found[name] = group
            found[node] = group
        for each in group:
            member[each] = group
    distinct = {id(group): group for group in member.values()}
    return [sorted(group, key=lambda t: t.index) for group in distinct.values()]
