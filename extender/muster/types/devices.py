"""In place: what Muster and the agents beside training tell each other about devices, and how it is written as JSON.

An agent asks `POST /v1/agents` with its pod's report token, which says whose it is, and this body (`AgentReport`):

    {"incarnation": "0f8c...", "state": "running", "order": 4294967299, "gpus": [1, 2, 4],
     "devices": [{"id": "GPU-6a...", "epoch": 4294967298}]}

A device that two jobs share has `"second": true` in the order of the one on its second seat: its lock is another one.

The answer (`AgentAnswer`) comes at once, or up to HOLD seconds (a sixth of the lease, if that is less) later where
there is no order newer than `order`:

    {"term": 1, "lease": 60.0, "order": {"number": 4294967303, "incarnation": "0f8c...", "devices": [...]}}

All of it is level-based: an order names exactly the devices that the child is to have, and only the newest counts.
Numbers of orders and epochs come of one sequence that rises through all leaders (`numbered`).

The agent ignores an order of another incarnation, of a lower term than it has seen, with a number not above its last,
or with an epoch below one that it has seen for that device. Its lease runs from when it *sent* the request that was
answered; an answer that comes after that lease has run out counts for nothing, its order included. Without a lease
the agent ends its child by itself, and starts it again by a newer order only.

RELEASED(epoch) of a device is a report whose `order` is the number of the newest order, and whose `devices` lack it:
since that order leaves it out, or since the lease ran out. "ended" is for good: this incarnation starts no child
again, and what `devices` lack is released whatever `order` says.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from muster.errors import UsageError

HOLD = 20.0
"""Seconds that a request waits at most for a newer order."""
HELD_PART = 6
"""And for a sixth of the lease at most: that runs from when the request was sent, and the training is stopped when a
quarter of it is left. So an agent that is cut off for a quarter of its lease loses nothing."""
DEVICES = 128
"""Devices of one pod: no node has more, and a report of so many is 16 kB."""
ID_LENGTH = 128
"""Characters of a device's id: UUIDs of GPUs have 40, of MIG devices 70."""
INCARNATION_LENGTH = 64
"""Characters: a UUID has 36."""
HIGHEST = 2**53 - 1
"""The highest number or epoch: what every reader of JSON keeps exactly."""
PER_TERM = 2**32
"""Numbers that one term may give out: at 1,000 a second they last 49 days, and Leases pass sooner than that or Muster
takes a new term."""


class AgentState(enum.StrEnum):
    """Where an agent's child stands."""

    READY = "ready"  # the agent runs, and waits for its first devices (or has none any more)
    RUNNING = "running"  # the child runs on `devices`
    STOPPING = "stopping"  # the child is being stopped; `devices` are what it may still use
    ENDED = (
        "ended"  # the command has ended, or the pod is asked to end: this incarnation starts no child again
    )


class Device(NamedTuple):
    """A device as an order hands it out: its id (an NVIDIA UUID), the epoch of its assignment, and whether that is of
    its second seat."""

    id: str
    epoch: int
    second: bool = False


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What an agent tells: `order` = the number of the last order that is fully carried out, 0 = none. devices: what
    its child uses now, by id. gpus: numbers of devices that its pod can train on, as annotated."""

    incarnation: str
    state: AgentState
    order: int = 0
    devices: tuple[Device, ...] = ()
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """Exactly these devices, by id, for the child of one incarnation of an agent."""

    number: int
    incarnation: str
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """term: of the leader that answers, it rises with each; lease: seconds, from when the request was sent."""

    term: int
    lease: float
    order: Order | None = None


class AgentKey(NamedTuple):
    """One run of an agent: its pod's uid, and the incarnation that it gave itself."""

    pod: str
    incarnation: str


class MalformedError(UsageError):
    """A message that can't be: which field of it, what is expected there, what was found."""

    def __init__(self, field: str, expected: str, found: object) -> None:
        text = repr(found)
        self.field, self.expected = field, expected
        self.found = text if len(text) <= 80 else f"{text[:77]}..."
        super().__init__(f"{field}: expected {expected}, found {self.found}")


def numbered(term: int, count: int) -> int:
    """The count-th number (from 1) of a term: above all of every earlier term. Raises ValueError beyond PER_TERM."""
    if not 1 <= count < PER_TERM or term < 0:
        raise ValueError(
            f"expected a term from 0 and a count from 1 to {PER_TERM - 1}, found {term}, {count}"
        )
    return term * PER_TERM + count


# ---- JSON ----


def read_agent_report(found: object) -> AgentReport:
    """A report from decoded JSON. Raises MalformedError."""
    body = _mapping("body", found, {"incarnation", "state", "order", "devices", "gpus"})
    state = body.get("state")
    if state not in tuple(AgentState):
        raise MalformedError("state", f"one of {', '.join(AgentState)}", state)
    gpus = _sequence("gpus", body.get("gpus"))
    return AgentReport(
        _text("incarnation", body.get("incarnation"), INCARNATION_LENGTH),
        AgentState(str(state)),
        _number("order", body.get("order", 0), 0),
        _devices("devices", body.get("devices")),
        tuple(_number(f"gpus[{i}]", one, 1, DEVICES) for i, one in enumerate(gpus)),
    )


def read_agent_answer(found: object) -> AgentAnswer:
    """An answer from decoded JSON. Raises MalformedError."""
    body = _mapping("body", found, {"term", "lease", "order"})
    lease = body.get("lease")
    if isinstance(lease, bool) or not isinstance(lease, int | float) or not 0.0 < lease <= 3600.0:
        raise MalformedError("lease", "seconds, above 0 and at most 3600", lease)
    order = body.get("order")
    return AgentAnswer(
        _number("term", body.get("term"), 0),
        float(lease),
        None if order is None else read_order("order", order),
    )


def read_order(field: str, found: object) -> Order:
    """An order from decoded JSON, `field` its name in errors. Raises MalformedError."""
    body = _mapping(field, found, {"number", "incarnation", "devices"})
    return Order(
        _number(f"{field}.number", body.get("number"), 1),
        _text(f"{field}.incarnation", body.get("incarnation"), INCARNATION_LENGTH),
        _devices(f"{field}.devices", body.get("devices"), ordered=True),
    )


def plain_report(report: AgentReport) -> dict[str, Any]:
    """As JSON has it."""
    return {
        "incarnation": report.incarnation,
        "state": str(report.state),
        "order": report.order,
        "devices": [{"id": device.id, "epoch": device.epoch} for device in report.devices],
        "gpus": list(report.gpus),
    }


def plain_answer(answer: AgentAnswer) -> dict[str, Any]:
    """As JSON has it."""
    order = answer.order
    told = order and {
        "number": order.number,
        "incarnation": order.incarnation,
        "devices": [_plain_device(device) for device in order.devices],
    }
    return {"term": answer.term, "lease": answer.lease, "order": told}


def _plain_device(device: Device) -> dict[str, Any]:
    plain: dict[str, Any] = {"id": device.id, "epoch": device.epoch}
    return {**plain, "second": True} if device.second else plain


def _mapping(field: str, found: object, names: set[str]) -> Mapping[str, object]:
    if not isinstance(found, Mapping):
        raise MalformedError(field, "a JSON object", found)
    for name in found:
        if name not in names:
            inner = str(name) if field == "body" else f"{field}.{name}"
            raise MalformedError(inner[:80], f"one of the fields {', '.join(sorted(names))}", name)
    return found


def _sequence(field: str, found: object) -> Sequence[object]:
    if not isinstance(found, list) or len(found) > DEVICES:
        raise MalformedError(field, f"a list of at most {DEVICES}", found)
    return found


def _number(field: str, found: object, least: int, most: int = HIGHEST) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise MalformedError(field, f"a whole number from {least} to {most}", found)
    return found


def _text(field: str, found: object, most: int, fits: Callable[[str], bool] = str.isprintable) -> str:
    if not isinstance(found, str) or not 1 <= len(found) <= most or not fits(found):
        raise MalformedError(field, f"1 to {most} printable characters", found)
    return found


def _devices(field: str, found: object, *, ordered: bool = False) -> tuple[Device, ...]:
    devices = []
    for i, one in enumerate(_sequence(field, found)):
        body = _mapping(f"{field}[{i}]", one, {"id", "epoch", "second"} if ordered else {"id", "epoch"})
        second = body.get("second", False)
        if not isinstance(second, bool):
            raise MalformedError(f"{field}[{i}].second", "true or false", second)
        devices.append(
            Device(
                device_id(f"{field}[{i}].id", body.get("id")),
                _number(f"{field}[{i}].epoch", body.get("epoch"), 1),
                second,
            )
        )
    twice = [a.id for a, b in zip(sorted(devices), sorted(devices)[1:], strict=False) if a.id == b.id]
    if twice:
        raise MalformedError(field, "each device once", twice[0])
    return tuple(sorted(devices))


def device_id(field: str, found: object) -> str:
    """The id of a whole device. Raises MalformedError: one with "::" is a part of a device that a plugin slices by
    time, and a comma or a blank would be another list in CUDA_VISIBLE_DEVICES."""
    text = _text(field, found, ID_LENGTH)
    if "::" in text or "," in text or any(c.isspace() for c in text):
        raise MalformedError(field, 'the id of a whole device (no "::", commas or blanks)', found)
    return text
