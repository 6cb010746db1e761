"""What of Muster's answers counts for an agent: its orders and its lease. Pure: times are given.

The messages are those of muster.types.devices, which a training image does not have; a test holds both together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

LAST_PART = 0.25
"""Of a lease: for the training's end. Whoever counts on the lease's end need not know how long that takes."""


class Device(NamedTuple):
    """A device as an order hands it out: its id (an NVIDIA UUID), the epoch of its assignment, and whether it is the
    second of two jobs that share it."""

    id: str
    epoch: int
    second: bool = False


@dataclass(frozen=True)
class Order:
    """Exactly these devices, for the child of one incarnation of an agent."""

    number: int
    incarnation: str
    devices: tuple[Device, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(device.id for device in self.devices)


@dataclass(frozen=True)
class Answer:
    """term: of the leader that answers; lease: seconds, from when the request was sent."""

    term: int
    lease: float
    order: Order | None = None


def read_answer(found: Mapping[str, Any]) -> Answer:
    """From decoded JSON. Raises ValueError that says what is no answer."""
    try:
        order = found.get("order")
        return Answer(
            int(found["term"]),
            float(found["lease"]),
            None
            if order is None
            else Order(
                int(order["number"]),
                str(order["incarnation"]),
                tuple(
                    sorted(
                        Device(str(one["id"]), int(one["epoch"]), one.get("second") is True)
                        for one in order["devices"]
                    )
                ),
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"expected term, lease and order, found {str(dict(found))[:200]}: {error!r}"
        ) from error


@dataclass(frozen=True)
class Standing:
    """Where an incarnation stands with Muster.

    until: when its lease ends, by the clock that `sent` and `now` are of; lease: its length, s; wanted: the order
    to carry out, None where there is none; done: number of the last one that was carried out; highest: of the highest
    that ever counted.
    """

    incarnation: str
    term: int = -1
    until: float = -math.inf
    wanted: Order | None = None
    done: int = 0
    highest: int = 0
    lease: float = 0.0
    epochs: Mapping[str, int] = field(default_factory=dict)

    @property
    def stop_by(self) -> float:
        """When the training must be asked to end without another answer, to have ended when the lease does."""
        return self.until - self.lease * LAST_PART

    def heard(self, answer: Answer, sent: float, now: float) -> Standing:
        """After an answer to the request that was sent at `sent`.

        Nothing of it counts where a later leader has answered before, or where the lease that it gives is over
        already: whoever froze us may have given the devices on. Its order counts for this incarnation only, above
        what was done, not below one that counted, and with no device's epoch below one that was seen.
        """
        until = sent + answer.lease
        if answer.term < self.term or now >= until:
            return self
        after = replace(self, term=answer.term, until=max(self.until, until), lease=answer.lease)
        order = answer.order
        if (
            order is None
            or order.incarnation != self.incarnation
            or order.number <= self.done
            or order.number < self.highest
            or any(device.epoch < self.epochs.get(device.id, 0) for device in order.devices)
        ):
            return after
        return replace(
            after,
            wanted=order,
            highest=order.number,
            epochs={**self.epochs, **{device.id: device.epoch for device in order.devices}},
        )

    def carried_out(self, order: Order) -> Standing:
        """After an order has been carried out; a newer one stays wanted."""
        newer = self.wanted if self.wanted is not None and self.wanted.number > order.number else None
        return replace(self, done=order.number, wanted=newer)

    def expired(self) -> Standing:
        """Without a lease: what was ordered under it is void until it is ordered again."""
        return replace(self, wanted=None)
