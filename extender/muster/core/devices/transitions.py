"""States of devices and of pods that use them, as tables: state x event -> state.

After adaptive-gpu-scheduler-sidecar, Tables II (in use, reserved) and III (submitted, initialized, running,
adjusting, completed). A device is *in use* from the moment in which an order that names it may reach an agent,
until that agent has let it go or can't have it any more; so a device that is idle or reserved is used by nobody.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from muster.errors import InvariantError


class DeviceState(enum.StrEnum):
    """Of a device that a holder keeps for Muster (Table II). NEW: none does yet."""

    NEW = "new"
    IDLE = "idle"
    RESERVED = "reserved"
    IN_USE = "in use"
    LOST = "lost"


class DeviceEvent(enum.StrEnum):
    """What becomes known of a device."""

    FOUND = "Found"  # a holder has it, and its record names nobody
    INHERITED = "Inherited"  # its holder's record names an agent, by a word that is not this leader's
    CHOSEN = "Chosen"  # for an agent that is ready: the record is being written
    RECORDED = "Recorded"  # that agent stands in the record
    REFUSED = "Refused"  # the record was not written
    WITHDRAWN = "Withdrawn"  # that agent is not to have it after all; it was told nothing
    ORDERED = "Ordered"  # an order names it
    RELEASED = "Released"  # its agent carried out an order without it, or has ended
    EXPIRED = "Expired"  # its agent was not heard of for lease + grace
    FAILED = "Failed"  # it is unhealthy, or its holder leaves
    HEALED = "Healed"  # healthy again, and used by nobody


class PodState(enum.StrEnum):
    """Of a pod in place (Table III)."""

    SUBMITTED = "submitted"  # its agent is not heard of
    INITIALIZED = "initialized"  # its agent is ready and has no device
    RUNNING = "running"  # its child runs on the devices that it is to have
    ADJUSTING = "adjusting"  # an order is not carried out yet
    COMPLETED = "completed"  # it has ended


class PodEvent(enum.StrEnum):
    """What becomes known of a pod in place."""

    READY = "Ready"  # its agent is heard of
    ORDERED = "Ordered"  # it is to have other devices
    STARTED = "Started"  # its newest order is carried out: the child runs on its devices
    EMPTIED = "Emptied"  # likewise, and the order named none
    LEFT = "Left"  # its agent has ended, or was not heard of for lease + grace, and no other speaks for it
    ENDED = "Ended"  # none of its processes is left


_D, _E = DeviceState, DeviceEvent
DEVICES: Mapping[tuple[DeviceState, DeviceEvent], DeviceState] = MappingProxyType(
    {
        (_D.NEW, _E.FOUND): _D.IDLE,
        (_D.NEW, _E.INHERITED): _D.IN_USE,
        (_D.IDLE, _E.INHERITED): _D.IN_USE,
        (_D.IDLE, _E.CHOSEN): _D.RESERVED,
        (_D.IDLE, _E.FAILED): _D.LOST,
        (_D.RESERVED, _E.INHERITED): _D.IN_USE,
        (_D.RESERVED, _E.RECORDED): _D.RESERVED,
        (_D.RESERVED, _E.REFUSED): _D.IDLE,
        (_D.RESERVED, _E.WITHDRAWN): _D.IDLE,
        (_D.RESERVED, _E.ORDERED): _D.IN_USE,
        (_D.RESERVED, _E.RELEASED): _D.IDLE,
        (_D.RESERVED, _E.EXPIRED): _D.IDLE,
        (_D.RESERVED, _E.FAILED): _D.LOST,
        (_D.IN_USE, _E.INHERITED): _D.IN_USE,
        (_D.IN_USE, _E.ORDERED): _D.IN_USE,
        (_D.IN_USE, _E.RELEASED): _D.IDLE,
        (_D.IN_USE, _E.EXPIRED): _D.IDLE,
        (_D.IN_USE, _E.FAILED): _D.LOST,
        (_D.LOST, _E.INHERITED): _D.LOST,
        (_D.LOST, _E.RECORDED): _D.LOST,
        (_D.LOST, _E.REFUSED): _D.LOST,
        (_D.LOST, _E.WITHDRAWN): _D.LOST,
        (_D.LOST, _E.RELEASED): _D.LOST,
        (_D.LOST, _E.EXPIRED): _D.LOST,
        (_D.LOST, _E.FAILED): _D.LOST,
        (_D.LOST, _E.HEALED): _D.IDLE,
    }
)

_NOT_FOUND = "nothing else is known of a device before a holder has it"
_NOBODY = "nobody is to have an idle device, so nobody can lose it"
_ONCE = "a device is found once, and chosen only while it is idle"
_ORDERED = "an order names it, so only its agent's word or its lease take it back"
_WELL = "only what was lost heals"
IMPOSSIBLE_DEVICES: Mapping[tuple[DeviceState, DeviceEvent], str] = MappingProxyType(
    {
        **{(_D.NEW, event): _NOT_FOUND for event in DeviceEvent if event not in (_E.FOUND, _E.INHERITED)},
        **{
            (_D.IDLE, event): _NOBODY
            for event in (_E.RECORDED, _E.REFUSED, _E.WITHDRAWN, _E.ORDERED, _E.RELEASED, _E.EXPIRED)
        },
        **{(state, _E.FOUND): _ONCE for state in DeviceState if state is not _D.NEW},
        **{(state, _E.CHOSEN): _ONCE for state in (_D.RESERVED, _D.IN_USE, _D.LOST)},
        **{(_D.IN_USE, event): _ORDERED for event in (_E.RECORDED, _E.REFUSED, _E.WITHDRAWN)},
        (_D.LOST, _E.ORDERED): "no order names a device that is lost",
        **{(state, _E.HEALED): _WELL for state in (_D.IDLE, _D.RESERVED, _D.IN_USE)},
    }
)
"""Pairs that can't be, and why."""

_P, _F = PodState, PodEvent
_ROWS: Mapping[PodEvent, tuple[PodState, tuple[PodState, ...]]] = {
    _F.READY: (_P.INITIALIZED, (_P.SUBMITTED,)),
    _F.ORDERED: (_P.ADJUSTING, (_P.INITIALIZED, _P.RUNNING, _P.ADJUSTING)),
    _F.STARTED: (_P.RUNNING, (_P.ADJUSTING,)),
    _F.EMPTIED: (_P.INITIALIZED, (_P.ADJUSTING,)),
    _F.LEFT: (_P.SUBMITTED, (_P.INITIALIZED, _P.RUNNING, _P.ADJUSTING)),
    _F.ENDED: (_P.COMPLETED, (_P.SUBMITTED, _P.INITIALIZED, _P.RUNNING, _P.ADJUSTING)),
}
PODS: Mapping[tuple[PodState, PodEvent], PodState] = MappingProxyType(
    {(before, event): to for event, (to, states) in _ROWS.items() for before in states}
)
_WHY: Mapping[PodEvent, str] = {
    _F.READY: "an agent is heard of for the first time once, until it leaves",
    _F.ORDERED: "orders go to agents that are heard of, and that have not ended",
    _F.STARTED: "only an order that is out can be carried out",
    _F.EMPTIED: "only an order that is out can be carried out",
    _F.LEFT: "an agent that was not heard of can't leave, and with a pod's end its agents are forgotten",
    _F.ENDED: "an end is told once",
}
IMPOSSIBLE_PODS: Mapping[tuple[PodState, PodEvent], str] = MappingProxyType(
    {(state, event): why for event, why in _WHY.items() for state in PodState if (state, event) not in PODS}
)
"""Pairs that can't be, and why."""


def device_after(what: str, state: DeviceState, event: DeviceEvent) -> DeviceState:
    """The state after an event. Raises InvariantError for a pair that can't be; `what` names the device."""
    if (state, event) not in DEVICES:
        why = IMPOSSIBLE_DEVICES[state, event]
        raise InvariantError(f"device {what}: {event} while it is {state}, but {why}")
    return DEVICES[state, event]


def pod_after(what: str, state: PodState, event: PodEvent) -> PodState:
    """The state after an event. Raises InvariantError for a pair that can't be; `what` names the pod."""
    if (state, event) not in PODS:
        raise InvariantError(f"pod {what}: {event} while it is {state}, but {IMPOSSIBLE_PODS[state, event]}")
    return PODS[state, event]
