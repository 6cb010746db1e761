"""What the Coordinator knows of devices and agents, and how it learns it.

Safety rests on four rules, and on nothing that a message could lose:

1. *Record, then order*: an agent stands in the record of a device's holder on the API, with an epoch that is higher
   than any before, before an order names that device. So a leader that takes over knows who may use what.
2. Whoever stands there may use it until he tells that he carried out an order of *this* leader without it
   (RELEASED), says that he has ended, or was not heard of for lease + grace.
3. Who was never heard of by this leader was last answered before it took over: lease + grace count from then.
4. Only what nobody may use is recorded for another one, on the version of the record that was read.

A device has two *seats*, of which each is all of the above for itself: its state, its epoch, its record on the
holder. One job sits alone on the first. A second seat is there once two jobs are to share a device, and is recorded
only for the partner of whoever sits on the other one; nobody else is given either of them while one is taken. The
record of one that was let go beside somebody is taken off: to the next leader its pod would still be there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.core.devices.transitions import (
    DeviceEvent,
    DeviceState,
    PodEvent,
    PodState,
    device_after,
    pod_after,
)
from muster.types.devices import AgentKey, AgentReport, AgentState, Order, numbered


@dataclass(frozen=True, slots=True)
class Assign:
    """To be recorded on a holder, on the version of it that was read: its device is `agent`'s from `epoch` on.
    second: on the second seat; clears: what is recorded of the other seat, on which nobody is, is taken off."""

    holder: str
    device: str
    epoch: int
    agent: AgentKey
    second: bool = False
    clears: bool = False

    @property
    def key(self) -> str:
        """Of its seat, in `Coordinator.devices`."""
        return seat(self.device, second=self.second)


@dataclass(frozen=True, slots=True)
class Clear:
    """To be taken off a holder: what is recorded of a seat on which nobody is, beside somebody."""

    holder: str
    device: str
    second: bool

    @property
    def key(self) -> str:
        """Of its seat, in `Coordinator.devices`."""
        return seat(self.device, second=self.second)


SECOND = "::2"
"""Ends the key of a second seat: no id of a device has it (types.devices.device_id)."""


def seat(device: str, *, second: bool) -> str:
    """The key of a seat in `Coordinator.devices`."""
    return device + SECOND if second else device


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """One seat of a device. users: agents that may use it, or stand in its record; epoch: of the record; noted:
    whether that names an agent, also one that has let it go; recording: what is being written; holder: "" = none has
    it any more; last: the pod that used it last, "" = none did; second: which seat."""

    id: str
    node: str
    holder: str
    state: DeviceState = DeviceState.NEW
    epoch: int = 0
    users: frozenset[AgentKey] = frozenset()
    recording: Assign | None = None
    idle_since: float = 0.0
    healthy: bool = True
    leaving: bool = False
    last: str = ""
    second: bool = False
    noted: bool = False

    @property
    def key(self) -> str:
        """In `Coordinator.devices`."""
        return seat(self.id, second=self.second)

    @property
    def pods(self) -> frozenset[str]:
        """Whose it is, or on its way to be."""
        bound_for = () if self.recording is None else (self.recording.agent.pod,)
        return frozenset((*bound_for, *(user.pod for user in self.users)))

    @property
    def usable(self) -> bool:
        """Whether anybody is to have it."""
        return self.state is not DeviceState.LOST

    def of_pod(self, pod: str) -> bool:
        """Whether it is a pod's, or on its way to it."""
        return pod in self.pods


def whole(seats: Mapping[str, HeldDevice]) -> dict[str, HeldDevice]:
    """Each device once, by its id: of one that two share with the users of both seats, in the state of one in use."""
    found = {}
    for device in seats.values():
        other = seats.get(seat(device.id, second=True))
        if device.second:
            continue
        if other is not None and other.pods:
            state = device.state if device.pods else other.state
            recording = device.recording or other.recording
            device = replace(device, state=state, users=device.users | other.users, recording=recording)
        found[device.id] = device
    return found


@dataclass(frozen=True, slots=True)
class Agent:
    """One that was heard of. heard: receipt of the newest request that was answered; report: the newest by
    the order carried out; order: this leader's newest."""

    key: AgentKey
    heard: float
    report: AgentReport
    order: Order | None = None

    @property
    def ready(self) -> bool:
        """Whether it takes devices."""
        return self.report.state is not AgentState.ENDED

    @property
    def settled(self) -> bool:
        """Whether it has carried out its newest order."""
        return self.order is not None and self.report.order == self.order.number


@dataclass(frozen=True, slots=True)
class Change:
    """The newest change of a pod's devices that its agent has carried out. at: when; took: s from when it was to be;
    idle: s for which a device of it was nobody's or not used yet, the longest; before, count: of its devices until
    then, and since; handed: whether it gave some, or took another pod's: else it took up what nobody had."""

    at: float
    took: float
    idle: float
    count: int
    handed: bool
    before: int = 0


@dataclass
class Coordinator:
    """All that is known, since this leader took over at `since`. All times are seconds of one clock
    that nobody sets and that goes on while the machine sleeps, as those of leases are (CLOCK_BOOTTIME).

    devices: seats, by their keys. term: rises with each leader; lease: how long an agent goes on without an answer;
    grace: what clocks may differ by over a lease; keep: how long an idle device stays. pending: node of each holder
    that has no device yet; current: the agent that speaks for a pod; asked: since when a pod whose agent is ready is
    to have other devices; gave_back: until when a pod gets none that gave some back, and how long that is.
    """

    term: int
    since: float
    lease: float
    grace: float
    keep: float
    devices: dict[str, HeldDevice] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    agents: dict[AgentKey, Agent] = field(default_factory=dict)
    current: dict[str, AgentKey] = field(default_factory=dict)
    pods: dict[str, PodState] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    gave_back: dict[str, tuple[float, float]] = field(default_factory=dict)
    given: int = 0  # numbers given out in this term
    steps: int = 0  # of devices and pods from a state to another: what is decided may depend on each
    _users: tuple[int, dict[AgentKey, list[str]]] = field(default=(-1, {}), init=False, compare=False)
    """Keys of the devices of each agent, after so many steps."""

    def number(self) -> int:
        """The next number of an order or epoch."""
        self.given += 1
        return numbered(self.term, self.given)

    def moved(self, device: HeldDevice, event: DeviceEvent, now: float, **changes: object) -> HeldDevice:
        """The device after an event, with other changes."""
        self.steps += 1
        state = device_after(device.id, device.state, event)
        idle = now if state is DeviceState.IDLE and device.state is not state else device.idle_since
        after = replace(device, state=state, idle_since=idle, **changes)  # type: ignore[arg-type]
        self.devices[device.key] = after
        return after

    def other(self, device: HeldDevice) -> HeldDevice | None:
        """The other seat of its device, None where there is none yet."""
        return self.devices.get(seat(device.id, second=not device.second))

    def seat_beside(self, device: HeldDevice, now: float) -> HeldDevice:
        """The other seat of a device, from now on where there was none."""
        if (known := self.other(device)) is not None:
            return known
        made = HeldDevice(device.id, device.node, device.holder, second=not device.second)
        return self.moved(made, DeviceEvent.FOUND, now)

    def pod_moved(self, pod: str, event: PodEvent) -> None:
        """A pod's state after an event."""
        self.steps += 1
        self.pods[pod] = pod_after(pod, self.pods.get(pod, PodState.SUBMITTED), event)

    def copy(self) -> Coordinator:
        """All that is known, kept apart from what is learnt from now on."""
        return replace(
            self,
            devices=dict(self.devices),
            pending=dict(self.pending),
            agents=dict(self.agents),
            current=dict(self.current),
            pods=dict(self.pods),
            asked=dict(self.asked),
            changes=dict(self.changes),
            gave_back=dict(self.gave_back),
        )

    def go_back_to(self, before: Coordinator) -> None:
        """What was known at the time of a copy. Numbers that were given out since are not given out again."""
        self.devices, self.pending, self.agents = before.devices, before.pending, before.agents
        self.current, self.pods, self.asked = before.current, before.pods, before.asked
        self.changes, self.gave_back = before.changes, before.gave_back
        self._users = (-1, {})

    @property
    def used_by(self) -> Mapping[AgentKey, Sequence[str]]:
        """Keys of devices by the agent that may use them, or stands in their record. Nobody comes or goes without a
        step, and with 1,000 agents most of what is heard is none."""
        if self._users[0] != self.steps:
            found: dict[AgentKey, list[str]] = {}
            for key, device in self.devices.items():
                for user in device.users:
                    found.setdefault(user, []).append(key)
            self._users = self.steps, found
        return self._users[1]

    def speaker(self, pod: str) -> Agent | None:
        """The agent that speaks for a pod, None where none is heard of."""
        return None if (key := self.current.get(pod)) is None else self.agents[key]


# ---- devices that somebody lets go ----


def drop_user(memory: Coordinator, device: HeldDevice, key: AgentKey, now: float, event: DeviceEvent) -> None:
    users = device.users - {key}
    if users:
        memory.steps += 1
        memory.devices[device.key] = replace(device, users=users)
    else:
        # Who let a reserved one go has not used it.
        last = device.last if device.state is DeviceState.RESERVED else key.pod
        memory.moved(device, event, now, users=users, last=last)
        settle(memory, device.key, now)


def withdraw(memory: Coordinator, device: HeldDevice, now: float) -> None:
    """A reserved device that stands in no order is nobody's again."""
    memory.moved(device, DeviceEvent.WITHDRAWN, now, users=frozenset())
    settle(memory, device.key, now)


def settle(memory: Coordinator, key: str, now: float) -> None:
    """A device that nobody uses any more: forgotten where it has no holder, healed where it is healthy."""
    device = memory.devices[key]
    if device.healthy and not device.leaving and device.holder:
        heal(memory, device, now)
    forget(memory, key)


def heal(memory: Coordinator, device: HeldDevice, now: float) -> None:
    if device.state is DeviceState.LOST and not device.users and device.recording is None:
        memory.moved(device, DeviceEvent.HEALED, now)


def forget(memory: Coordinator, key: str) -> None:
    device = memory.devices[key]
    if not device.holder and not device.users and device.recording is None:
        del memory.devices[key]
