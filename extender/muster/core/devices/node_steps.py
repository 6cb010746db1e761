"""One node's devices and the pods that are to have them: the steps of hand-overs there (core.devices.hand_over)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from muster.core.devices.coordinator import Agent, Assign, Clear, Coordinator, HeldDevice, withdraw
from muster.core.devices.givers import Givers
from muster.core.devices.on_node import OnNode, Want
from muster.core.devices.transitions import DeviceEvent, DeviceState, PodEvent
from muster.types import JobKey
from muster.types.devices import AgentKey, Device, Order


class NodeSteps:
    """gang: jobs of which every pod's agent is ready."""

    def __init__(
        self,
        memory: Coordinator,
        devices: Sequence[HeldDevice],
        wants: Sequence[Want],
        vacate: int,
        now: float,
        gang: AbstractSet[JobKey],
    ) -> None:
        self._memory, self._vacate, self._now, self._gang = memory, vacate, now, gang
        self._there = OnNode(memory, devices, wants)

    @property
    def _wants(self) -> list[Want]:
        return self._there.wants

    @property
    def _devices(self) -> list[HeldDevice]:
        return self._there.devices

    @property
    def pods(self) -> tuple[str, ...]:
        """Pods that are to have devices here, or use some."""
        return tuple(want.pod for want in self._wants)

    def idle_until(self) -> float:
        """When the first of its idle devices has been kept for long enough, or a pod that gave some back may have
        some again; what has been is left out."""
        kept = [device.idle_since + self._memory.keep for device in self._there.idle()]
        again = [self._waits_until(want) for want in self._wants]
        return min((until for until in (*kept, *again) if until > self._now), default=math.inf)

    def _waits_until(self, want: Want) -> float:
        return self._memory.gave_back.get(want.pod, (0.0, 0.0))[0]

    def _ready(self, want: Want) -> Agent | None:
        """Its agent, where that can be told to start."""
        agent = self._memory.speaker(want.pod)
        return agent if agent is not None and agent.ready else None

    def _takes(self, want: Want) -> bool:
        """Whether it gets devices now, and they may be taken from others for it."""
        ready = want.job in self._gang and self._ready(want) is not None
        return ready and self._waits_until(want) <= self._now

    def _mine(self, agent: Agent) -> list[HeldDevice]:
        """What stands in a record for it, and for nobody else."""
        return [d for d in self._devices if d.users == {agent.key} and d.recording is None]

    def incomplete(self) -> set[JobKey]:
        """Jobs of which a pod here has not all that it is to have."""
        return {
            want.job
            for want in self._wants
            if (agent := self._ready(want)) is None or len(self._mine(agent)) < want.count
        }

    # ---- steps ----

    def withdraw(self) -> None:
        """Reserved devices that stand in no order, of pods that have more than they are to have or are not to share
        them, or of an agent that speaks for its pod no more."""
        for want in self._wants:
            here = self._there.of(want)
            over = sum(self._there.fits(want, device) for device in here) - want.count
            for device in reversed(here):
                if device.state is not DeviceState.RESERVED or device.recording is not None:
                    continue
                fits = self._there.fits(want, device)
                replaced = self._memory.current.get(want.pod) not in device.users
                if over > 0 or replaced or not fits:
                    withdraw(self._memory, device, self._now)
                    over -= fits

    def assign(self) -> list[Assign]:
        """Records for pods that are short and whose agent is ready."""
        found = []
        idle = self._there.idle()
        idle = idle[: max(0, len(idle) - self._vacate)]
        for want in self._wants:
            agent = self._ready(want)
            if agent is None:
                continue
            if self._there.short(want):
                if not self._takes(want):
                    continue
                self._memory.asked.setdefault(want.pod, self._now)
            elif agent.settled:
                self._memory.asked.pop(want.pod, None)
            short = self._there.short(want)
            seats = self._there.sit_down(want, short, self._now)
            alone = [] if want.beside else idle[: short - len(seats)]
            idle = [device for device in idle if device not in alone]
            for device in (*seats, *alone):
                assign = Assign(
                    device.holder,
                    device.id,
                    self._memory.number(),
                    agent.key,
                    second=device.second,
                    clears=device in alone and self._memory.other(device) is not None,
                )
                self._memory.moved(device, DeviceEvent.CHOSEN, self._now, recording=assign)
                found.append(assign)
        return found

    def clear(self) -> list[Clear]:
        """Records of seats that nobody is on, beside somebody."""
        return [
            Clear(device.holder, device.id, device.second)
            for device in self._devices
            if device.noted
            and device.state is DeviceState.IDLE
            and (other := self._memory.other(device)) is not None
            and other.users
            and other.recording is None
        ]

    def givers(self) -> Givers:
        """Pods with a surplus, by what becomes of it."""
        ready = self._vacate + sum(self._there.short(want) for want in self._wants if self._takes(want))
        later = sum(self._there.short(want) for want in self._wants if not self._takes(want))
        idle = len(self._there.idle())
        needed, kept = max(0, ready - idle), max(0, later - max(0, idle - ready))
        give: set[str] = set()
        keep: set[str] = set()
        free: set[str] = set()
        for want in reversed(self._wants):
            if not self._there.surplus(want):
                continue
            freed = self._there.freed(want)
            if want.kept and not freed:  # nobody else gets it: it is measured with fewer
                free.add(want.pod)
            elif needed > 0:
                kept -= max(0, freed - needed)
                needed -= freed
                give.add(want.pod)
            elif kept > 0:
                kept -= freed  # they use it as long as whoever is to have it can't
                keep.add(want.pod)
            else:
                free.add(want.pod)
        return Givers(give, keep, free)

    def order(
        self, givers: AbstractSet[str], whole: AbstractSet[JobKey], recorded: AbstractSet[AgentKey]
    ) -> list[str]:
        """Newest orders of agents of this node; pods that have another one than before. whole: jobs of which every
        pod has what it is to have; recorded: who stands in any record."""
        told = []
        for want in self._wants:
            agent = self._ready(want)
            if agent is None:
                continue
            if agent.order is None and agent.key not in recorded:
                continue  # no leader ever told it to use anything
            if self._order(want, agent, gives=want.pod in givers, grows=want.pods == 1 or want.job in whole):
                told.append(want.pod)
        return told

    def _order(self, want: Want, agent: Agent, *, gives: bool, grows: bool) -> bool:
        mine = self._mine(agent)
        fitting = [d for d in mine if self._there.fits(want, d)]
        apart = len(mine) > len(fitting) >= want.count
        mine = fitting if apart else mine
        known = {d.id for d in agent.order.devices} if agent.order is not None else None
        present = [d for d in mine if (d.id in known if known is not None else d.state is DeviceState.IN_USE)]
        if apart:  # it lets go of what it is not to share (any more), and takes others in one step
            chosen = [*present, *(d for d in mine if d not in present)][: want.count]
        elif gives:
            chosen = present[: want.count]
        elif grows and len(mine) >= want.count > len(present):
            more = [d for d in mine if d not in present]
            chosen = [*present, *more[: want.count - len(present)]]
        else:
            chosen = present
        chosen = chosen[: _allowed(want, len(chosen))]
        devices = tuple(sorted(Device(d.id, d.epoch, d.second) for d in chosen))
        if agent.order is not None and agent.order.devices == devices:
            return False
        for device in chosen:
            self._memory.moved(self._memory.devices[device.key], DeviceEvent.ORDERED, self._now)
        order = Order(self._memory.number(), agent.key.incarnation, devices)
        self._memory.agents[agent.key] = replace(agent, order=order)
        self._memory.pod_moved(want.pod, PodEvent.ORDERED)
        self._memory.asked.setdefault(want.pod, self._now)
        return True

    def missing(self) -> int:
        """Holders to be made: what pods are short of, beyond what idles, what others are to give, and seats beside
        their partners."""
        alone = [want for want in self._wants if not want.beside]
        short = sum(max(0, self._there.short(want) - len(self._there.beside(want))) for want in alone)
        surplus = self._there.coming_free()
        return max(0, short + self._vacate - len(self._there.idle()) - surplus) if short else 0

    def spare(self) -> list[HeldDevice]:
        """Idle devices that go: those to be vacated at once, others that nobody waits for after `keep`."""
        idle = self._there.idle()[::-1]
        now, rest = idle[: self._vacate], idle[self._vacate :]
        unneeded = max(0, len(rest) - sum(self._there.short(want) for want in self._wants if not want.beside))
        late = [d for d in rest if d.idle_since + self._memory.keep <= self._now]
        return [*now, *late[:unneeded]]


def _allowed(want: Want, count: int) -> int:
    """The largest number of devices that a pod can train on, of at most `count`; any, of a pod that is to have
    none."""
    if not want.sizes:
        return count
    return max((size for size in want.sizes if size <= count), default=0)
