"""In place: a job as it trains, by the GPUs that its pods use at this moment. What is measured and attained counts
them; what is granted stands in `core.devices.slots`."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from muster.core.devices.coordinator import HeldDevice, seat
from muster.core.devices.granted import PARTS, Grants, Uses
from muster.core.devices.slots import SLOT, slots_of
from muster.core.devices.transitions import DeviceState
from muster.types import Job, JobKey, Member, Phase


def uses_of(devices: Mapping[str, HeldDevice]) -> dict[str, dict[str, int]]:
    """`Uses` of the Coordinator's devices: what an order may have named, until its agent has let it go."""
    found: dict[str, dict[str, int]] = {}
    for device in devices.values():
        if device.state is DeviceState.IN_USE:
            for pod in {user.pod for user in device.users}:
                on = found.setdefault(pod, {})
                on[device.node] = on.get(device.node, 0) + 1
    return found


def neighbours_of(devices: Mapping[str, HeldDevice]) -> dict[str, str]:
    """By pod that shares a device which both use: the other pod."""
    found: dict[str, str] = {}
    for device in devices.values():
        other = devices.get(seat(device.id, second=False)) if device.second else None
        if other is None or {device.state, other.state} != {DeviceState.IN_USE}:
            continue
        for one in device.users:
            for two in other.users - {one}:
                found |= {one.pod: two.pod, two.pod: one.pod}
    return found


def changing(granted: Grants, uses: Uses, adjusting: AbstractSet[str]) -> set[JobKey]:
    """Jobs of which a pod uses another number of GPUs than it is to, or is on its way to that number.
    adjusting: pods that were on their way when `uses` was looked at."""
    return {
        key
        for key, grants in granted.items()
        for one in grants
        if uses.get(one.pod, {}).get(one.node) != one.uses or one.pod in adjusting
    }


def as_it_trains(job: Job, sizes: tuple[int, ...], uses: Uses) -> Job:
    """The job with its GPUs in the place of its pods: as many replicas as it uses, each on the node of its pod, on
    their way out with it. sizes: numbers that each pod can train on, rising."""
    (pods,) = job.roles
    members = tuple(
        Member(
            f"{pod.uid}{PARTS}{i}",
            "",
            Phase.ENDING if pod.phase is Phase.ENDING else Phase.BOUND,
            SLOT,
            index=i,
            node=node,
        )
        for pod in pods.on
        for node, count in uses.get(pod.uid, {}).items()
        for i in range(count)
    )
    number = max(1, pods.max, sum(pod.phase is not Phase.ENDING for pod in pods.on))
    slots = slots_of(pods, tuple(number * size for size in sizes), members)
    return replace(job, roles=(slots,))
