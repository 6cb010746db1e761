"""What is counted of devices in place, for /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from muster.core.devices.coordinator import Change, Coordinator, whole
from muster.core.devices.transitions import DeviceState
from muster.types.devices import AgentKey

UNUSED = {
    DeviceState.IDLE: "free",  # nobody is to have it, or whoever is to have it is not ready
    DeviceState.RESERVED: "recording",  # being written on its holder, or waiting for the others of one order
}
STARTING = "starting"
COUNTED = 1.0
"""Seconds between two counts of all devices: of 4,000 it takes 20 ms, for which orders would wait each time."""


class DeviceMetrics:
    """Fed by the live driver, which calls `look` whenever it decides."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._devices = Gauge(
            "muster_devices",
            "Devices that Muster knows of in place, by state.",
            ["state"],
            registry=registry,
        )
        self._strangers = Gauge(
            "muster_devices_used_ungranted",
            "Devices that Muster holds for nobody and that processes use, as NVML counts them there (muster hold).",
            registry=registry,
        )
        self._handed = Counter(
            "muster_devices_handed_over",
            "Devices that went from one pod to another by a record on their holder.",
            registry=registry,
        )
        self._unused = Counter(
            "muster_device_unused_seconds",
            "Device-seconds that Muster held and no training used, by why.",
            ["cause"],
            registry=registry,
        )
        self._hand_over = Histogram(
            "muster_hand_over_seconds",
            "From when a pod was to give or get devices of another one until its agent had carried that out.",
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )
        self._idle = Histogram(
            "muster_hand_over_idle_seconds",
            "How long the device that idled longest did so until a pod that got it from another one used it.",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )
        self._seconds = Histogram(
            "muster_agent_order_seconds",
            "From an order to the agent's word that it is carried out.",
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )
        for state in DeviceState:
            if state is not DeviceState.NEW:
                self._devices.labels(str(state))
        for cause in (*UNUSED.values(), STARTING):
            self._unused.labels(cause)
        self._at: float | None = None
        self._ordered: dict[AgentKey, tuple[int, float]] = {}
        self._changes: dict[str, Change] = {}

    def handed_over(self) -> None:
        """One device stands in the record of another pod than before."""
        self._handed.inc()

    def look(self, known: Coordinator | None, now: float, strangers: int = 0) -> None:
        """How it stands, None where another replica leads. now: of the Coordinator's clock; strangers: devices that
        are nobody's and are used."""
        self._strangers.set(strangers)
        if known is not None:
            self._orders(known, now)
            self._hand_overs(known)
        if known is None or self._at is None or now - self._at >= COUNTED:
            self._count(known, now)

    def _count(self, known: Coordinator | None, now: float) -> None:
        since, self._at = self._at, now if known is not None else None
        counts = dict.fromkeys(DeviceState, 0)
        for device in whole(known.devices).values() if known is not None else ():
            counts[device.state] += 1
            if since is not None and (cause := _unused(known, device.state, device.id, device.users)):
                self._unused.labels(cause).inc(max(0.0, now - since))
        for state, count in counts.items():
            if state is not DeviceState.NEW:
                self._devices.labels(str(state)).set(count)

    def _hand_overs(self, known: Coordinator) -> None:
        for pod, change in known.changes.items():
            if change is not self._changes.get(pod) and change.handed:
                self._hand_over.observe(change.took)
                if change.count > change.before:
                    self._idle.observe(change.idle)
        self._changes = dict(known.changes)

    def _orders(self, known: Coordinator, now: float) -> None:
        for key, agent in known.agents.items():
            if agent.order is None:
                continue
            number, at = self._ordered.get(key, (0, now))
            if agent.order.number != number:
                self._ordered[key] = agent.order.number, now
            elif agent.settled and at >= 0.0:
                self._seconds.observe(now - at)
                self._ordered[key] = number, -1.0  # told once
        for key in self._ordered.keys() - known.agents.keys():
            del self._ordered[key]


def _unused(known: Coordinator | None, state: DeviceState, device: str, users: frozenset[AgentKey]) -> str:
    if state is not DeviceState.IN_USE or known is None:
        return UNUSED.get(state, "")
    told = [known.agents[user].report.devices for user in users if user in known.agents]
    return "" if not told or any(device == one.id for devices in told for one in devices) else STARTING
