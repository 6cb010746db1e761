"""What the Coordinator learns of holders, and of what it had recorded on them."""

from __future__ import annotations

from dataclasses import replace

from muster.core.devices.coordinator import (
    Assign,
    Coordinator,
    HeldDevice,
    forget,
    heal,
    seat,
    settle,
)
from muster.core.devices.transitions import DeviceEvent
from muster.types.devices import AgentKey
from muster.types.holders import HolderRecord


def holder_seen(memory: Coordinator, record: HolderRecord, now: float) -> None:
    """A holder as it is now. What is older than what is known changes no epoch and no user: epochs only rise."""
    if not record.device:
        if record.leaving:
            memory.pending.pop(record.uid, None)
        else:
            memory.pending[record.uid] = record.node
        return
    memory.pending.pop(record.uid, None)
    known = memory.devices.get(record.device)
    if known is not None and known.holder and known.holder != record.uid and record.leaving:
        return  # the last word of an earlier holder
    _seat_seen(memory, record, record.epoch, record.agent, now, second=False)
    if record.second is not None or seat(record.device, second=True) in memory.devices:
        _seat_seen(memory, record, record.second_epoch, record.second, now, second=True)


def _seat_seen(
    memory: Coordinator, record: HolderRecord, epoch: int, agent: AgentKey | None, now: float, *, second: bool
) -> None:
    device = memory.devices.get(seat(record.device, second=second))
    if device is None:
        device = HeldDevice(record.device, record.node, record.uid, second=second)
        event = DeviceEvent.FOUND
    else:
        device = memory.devices[device.key] = replace(device, holder=record.uid, node=record.node)
        event = None
    if epoch > device.epoch and agent is not None:
        ours = device.recording is not None and device.recording.epoch == epoch
        event = DeviceEvent.RECORDED if ours else DeviceEvent.INHERITED
        # Where it isn't ours, what we were writing fails: it was to be written on a version before this one.
        users = device.users | {agent}
        device = memory.moved(device, event, now, epoch=epoch, users=users, recording=None)
    elif event is not None:
        device = memory.moved(device, event, now)
    told = replace(device, healthy=record.healthy, leaving=record.leaving, noted=agent is not None)
    device = memory.devices[device.key] = told
    if not record.healthy or record.leaving:
        memory.moved(device, DeviceEvent.FAILED, now)
    else:
        heal(memory, device, now)


def holder_gone(memory: Coordinator, uid: str, now: float) -> None:
    """A holder's pod is gone. What somebody may still use is not forgotten: another holder may get it."""
    memory.pending.pop(uid, None)
    for device in [d for d in memory.devices.values() if d.holder == uid]:
        memory.moved(device, DeviceEvent.FAILED, now, holder="", leaving=False)
        forget(memory, device.key)


def recorded(memory: Coordinator, assign: Assign, now: float, *, written: bool) -> None:
    """What became of writing an assignment; where nobody knows (no answer), the watch will tell, and until then the
    next one fails on the record's version."""
    device = memory.devices.get(assign.key)
    if device is None or device.recording != assign:
        return
    if written:
        users = device.users | {assign.agent}
        memory.moved(
            device,
            DeviceEvent.RECORDED,
            now,
            epoch=max(assign.epoch, device.epoch),
            users=users,
            recording=None,
            noted=True,
        )
        if assign.clears:
            cleared(memory, seat(assign.device, second=not assign.second))
    else:
        memory.moved(device, DeviceEvent.REFUSED, now, recording=None)
        settle(memory, device.key, now)


def cleared(memory: Coordinator, key: str) -> None:
    """A seat's record names nobody any more."""
    device = memory.devices.get(key)
    if device is not None:
        memory.devices[key] = replace(device, noted=False)
