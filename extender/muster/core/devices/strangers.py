"""In place: devices that somebody uses whom nobody granted them (`muster hold` counts who is there by NVML)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass
class Looks:
    """What holders told last of their devices by NVML. of: by device."""

    of: dict[str, HolderSaid] = field(default_factory=dict)

    def told(self, said: HolderSaid) -> None:
        """What doesn't come from NVML says nothing of who is there."""
        if said.looked:
            self.of[said.device] = said

    def gone(self, holder: str) -> None:
        """The holder with that uid is no more."""
        self.of = {device: said for device, said in self.of.items() if said.uid != holder}

    def again(self, seats: Mapping[str, HeldDevice]) -> list[float]:
        """When to look at devices again that were let go of."""
        return [seats[device].idle_since + LEFT for device in self.of if device in seats]

    def strangers(self, seats: Mapping[str, HeldDevice], now: float) -> set[Stranger]:
        """Devices that are nobody's and are used all the same."""
        found = set()
        for look in self.of.values():
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
