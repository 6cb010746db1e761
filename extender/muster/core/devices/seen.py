"""In place, as it is shown to readers: devices, who is to have how many of them where, and the last hand-overs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from muster.core.devices.coordinator import Change, Coordinator, HeldDevice, whole
from muster.core.devices.holders import holder_seen
from muster.core.devices.on_node import Want
from muster.types import JobKey
from muster.types.holders import HolderRecord

KEPT = 50
"""Hand-overs that are kept for readers, the newest."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """A pod's devices changed, and some of them went to another pod or came from one.

    at: Unix s when it was seen that its agent had carried that out; change: how many it had and has, and how long
    that took.
    """

    job: JobKey
    node: str
    at: float
    change: Change


@dataclass(frozen=True, slots=True)
class InPlaceSeen:
    """devices: by id; wants: what the plan grants each pod; held: GPUs of holders that are charged, by node;
    changes: the last one of each pod's devices and when that was, Unix s; hand_overs: since this leader took over,
    the oldest first; decided: whether this replica decides, else it only reads holders, and `wants` is empty."""

    devices: Mapping[str, HeldDevice] = field(default_factory=dict)
    wants: tuple[Want, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, tuple[Change, float]] = field(default_factory=dict)
    hand_overs: tuple[HandOver, ...] = ()
    decided: bool = True


def looked_on(holders: Iterable[HolderRecord], charged: Callable[[str], bool]) -> InPlaceSeen:
    """What holders' records tell a replica that does not lead. charged: whether a holder's GPU counts, by uid."""
    found = Coordinator(0, 0.0, 0.0, 0.0, 0.0)
    held: dict[str, int] = {}
    for record in holders:
        holder_seen(found, record, 0.0)
        if charged(record.uid):
            held[record.node] = held.get(record.node, 0) + 1
    return InPlaceSeen(whole(found.devices), held=held, decided=False)
