"""In place: devices that somebody uses whom nobody granted them (`muster hold` counts who is there by NVML)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from muster.core.devices.coordinator import HeldDevice, seat
from muster.core.devices.transitions import DeviceState
from muster.types.holders import HolderSaid

LEFT = 6.0
"""Seconds after a device was let go until what is told of it is about others: a look, and the way."""
CONTEXT = 256
"""MiB from which somebody is there whom the driver does not show: a CUDA context takes more."""


class Stranger(NamedTuple):
    """A device that is nobody's, and how many processes and MiB are on it all the same."""

    node: str
    device: str
    processes: int
    memory: int

    @property
    def words(self) -> str:
        """For owners of jobs on its node."""
        return (
            f"GPU {self.device} of {self.node} is granted to nobody and is used all the same: {self.processes} "
            f"processes, {self.memory} MiB; whose they are is not known"
        )


def strangers(seats: Mapping[str, HeldDevice], looks: Mapping[str, HolderSaid], now: float) -> set[Stranger]:
    """looks: the newest of each device, by its id."""
    found = set()
    for look in looks.values():
        device, other = (seats.get(seat(look.device, second=second)) for second in (False, True))
        if device is None or device.state is not DeviceState.IDLE or device.pods or not used(look):
            continue
        if other is not None and other.pods:
            continue
        left = max(device.idle_since, other.idle_since if other is not None else 0.0)
        if now >= left + LEFT:
            found.add(Stranger(device.node, device.id, look.processes, look.memory))
    return found


def used(look: HolderSaid) -> bool:
    """Whether anybody is on the device."""
    return look.processes > 0 or look.memory >= CONTEXT
