"""Pods of a job in place and their GPUs: each pod has as many, all of its own node (`core.devices.slots`).

Such a job's slots are a role of one GPU each. They are no pods that could stand anywhere: what the planner places is
a pod with its GPUs, or GPUs beside a pod that has its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.core.devices.granted import PARTS
from muster.core.placement.capacity import AnyCapacity
from muster.types import GPU, Job, Phase, Role


@dataclass(frozen=True, slots=True)
class Need:
    """`count` more replicas of a role."""

    role: Role
    count: int


Assignment = tuple[str, int, int]
"""Role name, node row, replicas there."""


def joined(needs: Sequence[Need]) -> Sequence[Need]:
    """Needs of pods and of as many slots for each of them are needs of pods that request GPUs; else the same."""
    slots = [need for need in needs if need.role.devices and need.count]
    pods = [need for need in needs if not need.role.devices and need.count]
    each, rest = divmod(sum(need.count for need in slots), sum(need.count for need in pods) or 1)
    if not slots or not pods or rest:
        return needs
    return [Need(with_gpus(need.role, each), need.count) for need in pods]


def with_gpus(role: Role, count: int) -> Role:
    """A role whose replicas request so many GPUs."""
    others = tuple(request for request in role.shape.requests if request[0] != GPU)
    return replace(role, shape=replace(role.shape, requests=(*others, (GPU, count))))


def place_together(
    capacity: AnyCapacity,
    job: Job,
    needs: Sequence[Need],
    own: Mapping[int, int],
    place_pods: Callable[[Sequence[Need]], list[Assignment] | None],
) -> list[Assignment] | None:
    """Spots for needs of which some are slots, or None with the room as before. GPUs go to pods without any (those of
    the needs, too), else to all pods alike. own: pods that have a place, by node row; place_pods: places those that
    have none."""
    pods = [need for need in needs if not need.role.devices]
    (slots,) = [need for need in needs if need.role.devices]
    index = capacity.nodes.index
    stay = Counter(own) - Counter(index[node] for node in _ending(job) if node in index)
    receivers = stay - Counter(index[node] for node in _with_slots(slots.role) if node in index)
    number = receivers.total() + sum(need.count for need in pods)
    if not number:
        receivers, number = stay, stay.total()
    if not number:
        return None
    each, rest = divmod(slots.count, number)
    if rest or not each:
        return None
    mark = capacity.mark()
    found: list[Assignment] = []
    for row, count in sorted(receivers.items()):
        if int(capacity.fits(slots.role.shape)[row]) < each * count:
            capacity.undo(mark)
            return None
        capacity.take(row, slots.role.shape, each * count)
        found.append((slots.role.name, row, each * count))
    placed = place_pods([Need(with_gpus(need.role, each), need.count) for need in pods]) if pods else []
    if placed is None:
        capacity.undo(mark)
        return None
    for name, row, count in placed:
        found += [(name, row, count), (slots.role.name, row, each * count)]
    return found


def _with_slots(role: Role) -> list[str]:
    """The node of each pod that has slots."""
    return list({member.uid.rpartition(PARTS)[0]: member.node for member in role.members}.values())


def _ending(job: Job) -> list[str]:
    """The node of each pod that is about to leave it."""
    return [m.node for role in job.roles if not role.devices for m in role.on if m.phase is Phase.ENDING]
