"""What a configuration counts in GPUs (deviceResources), put into the shapes of pods and of owners' templates.

They are decoded as Muster counts without a configuration; where it has another list, each Shape is made again as it
comes in, once. A device that counts is bounded as GPUs are: what is beyond makes the pod's job Invalid.
"""

from __future__ import annotations

from dataclasses import replace

from muster.cached import MIB, Cache
from muster.core.bounds import GPUS
from muster.types import DEVICES, DeviceNames, OwnerRecord, PodRecord, Shape

SHAPES = 16 * MIB
"""Bytes of shapes that are kept: pods of one template share one."""


class Counting:
    """Records as they are counted; with Muster's own list they are what they were."""

    def __init__(self, devices: DeviceNames) -> None:
        self._devices = devices
        self._shapes: Cache[Shape, tuple[Shape, str]] = Cache(SHAPES)

    def pod(self, pod: PodRecord) -> PodRecord:
        """A pod with its GPUs."""
        if self._devices == DEVICES or not pod.shape.requests:
            return pod
        shape, beyond = self._counted(pod.shape)
        return replace(pod, shape=shape, beyond=pod.beyond or beyond)

    def owner(self, owner: OwnerRecord) -> OwnerRecord:
        """An owner with the GPUs of its templates."""
        if self._devices == DEVICES or not owner.roles:
            return owner
        roles = tuple(replace(role, shape=self._counted(role.shape)[0]) for role in owner.roles)
        return replace(owner, roles=roles)

    def _counted(self, shape: Shape) -> tuple[Shape, str]:
        found: tuple[Shape, str] | None = self._shapes.get(shape)
        if found is None:
            amounts, beyond = [], ""
            for name, amount in shape.requests:
                if amount > GPUS.most and self._devices.has(name):
                    beyond = beyond or GPUS.beyond(f"requests of {name}", amount)
                    amount = GPUS.most
                amounts.append((name, amount))
            found = replace(shape, requests=tuple(amounts), devices=self._devices), beyond
            self._shapes.put(shape, found)
        return found
