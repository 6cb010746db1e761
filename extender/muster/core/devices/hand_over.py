"""Who is to have which device next: from what the plan wants of each pod to records, orders and holders.

The order of the paper (III-A, "Workflow for incoming job"): B's pod is up and its agent ready, then A is told to
go on with fewer, then A has let go, then B stands in the record, then B is told to start. Nothing is taken from A
before B is ready, and where B never gets ready A never notices. A pod changes in one step, from one of its sizes to
another: it gives all of its surplus at once, and takes what it is to have once all of it is there.

A job of several pods does so whole: no device is taken for it before the agents of all of its pods are ready, none of
them starts or grows before all have what they are to have, and they give together: where one has to, the others, too.
A pod that is to share a device with its partner takes the other seat of one that its partner sits on, and no other;
the pair is apart again once the plan says so, and then the later one in its order takes another device, or none.

Everything is decided afresh from what is known, so a crash or a change of mind at any point needs no undoing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from muster.core.devices.agents import expire, expires
from muster.core.devices.coordinator import Agent, Assign, Coordinator, HeldDevice, withdraw
from muster.core.devices.givers import Givers, who_gives
from muster.core.devices.on_node import OnNode, Want
from muster.core.devices.transitions import DeviceEvent, DeviceState, PodEvent
from muster.types import JobKey
from muster.types.devices import Device, Order


@dataclass(frozen=True, slots=True)
class Decisions:
    """What is to be done on the API; orders stand with the agents (`Agent.order`), who ask for them.

    assigns: records to be written; create: holders to be made, by node; leave: uids of holders that are to go;
    told: pods with a new order; wake: when to decide again though nothing happens.
    """

    assigns: tuple[Assign, ...] = ()
    create: Mapping[str, int] = field(default_factory=dict)
    leave: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    wake: float | None = None


def decide(
    memory: Coordinator,
    wants: Sequence[Want],
    now: float,
    vacate: Mapping[str, int] | None = None,
    aside: AbstractSet[str] = frozenset(),
) -> Decisions:
    """The next steps of every hand-over. wants: in the plan's order; the first is served first, the last gives
    first. A pod that isn't among them is to have none. vacate: devices that each node is to give up for pods that
    aren't in place. aside: pods about which nothing is decided; they keep what they have."""
    # 1 who was not heard of for too long has lost its devices
    expire(memory, now, aside)
    # 2 by node, since a device never changes its node
    nodes: dict[str, list[HeldDevice]] = {}
    for device in memory.devices.values():
        if not (aside and any(device.of_pod(pod) for pod in aside)):
            nodes.setdefault(device.node, []).append(device)
    of: dict[str, list[Want]] = {}
    for want in (want for want in wants if want.pod not in aside):
        of.setdefault(want.node, []).append(want)
    assigns: list[Assign] = []
    create: dict[str, int] = {}
    spare: list[HeldDevice] = []
    told: list[str] = []
    waiting = Counter(memory.pending.values())
    unwanted: list[str] = []
    ready = Counter(w.job for w in wants if (agent := memory.speaker(w.pod)) is not None and agent.ready)
    gang = {want.job for want in wants if ready[want.job] >= want.pods}
    each = {
        name: _Node(memory, nodes.get(name, []), of.get(name, []), (vacate or {}).get(name, 0), now, gang)
        for name in sorted(nodes.keys() | of.keys() | waiting.keys())
    }
    for node in each.values():
        # 3 what is reserved and not wanted any more
        node.withdraw()
        # 4 idle devices go to pods whose agent is ready
        assigns += node.assign()
    givers = who_gives([(want.job, want.pod) for want in wants], [node.givers() for node in each.values()])
    whole = {want.job for want in wants} - {job for node in each.values() for job in node.incomplete()}
    for name, node in each.items():
        # 5 orders: fewer for who gives, more for who has it all
        told += node.order(givers, whole)
        # 6 holders: what is missing is made, what nobody is to have goes
        if (missing := node.missing() - waiting[name]) > 0:
            create[name] = missing
        elif missing < 0:
            here = sorted(uid for uid, where in memory.pending.items() if where == name)
            unwanted += here[missing:]
        spare += node.spare()
    gone = [d for d in memory.devices.values() if _done_with(memory, d)]
    leave = tuple(sorted({*unwanted, *(d.holder for d in (*spare, *gone) if d.holder)}))
    return Decisions(tuple(assigns), create, leave, tuple(told), _wake(memory, now))


def _done_with(memory: Coordinator, device: HeldDevice) -> bool:
    """Whether it is lost and nobody uses either seat of it: its holder may go."""
    other = memory.other(device)
    return not device.usable and not device.pods and (other is None or not other.pods)


def _wake(memory: Coordinator, now: float) -> float | None:
    users = {user for device in memory.devices.values() for user in device.users}
    times = [expires(memory, key) for key in memory.agents.keys() | users]
    times += [d.idle_since + memory.keep for d in memory.devices.values() if d.state is DeviceState.IDLE]
    return min((time for time in times if time > now), default=None)


class _Node:
    """One node's devices and the pods that are to have them. gang: jobs of which every pod's agent is ready."""

    def __init__(
        self,
        memory: Coordinator,
        devices: list[HeldDevice],
        wants: list[Want],
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

    def _ready(self, want: Want) -> Agent | None:
        """Its agent, where that can be told to start."""
        agent = self._memory.speaker(want.pod)
        return agent if agent is not None and agent.ready else None

    def _takes(self, want: Want) -> bool:
        """Whether devices may be taken from others for it."""
        return want.job in self._gang and self._ready(want) is not None

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
            if needed > 0:
                kept -= max(0, freed - needed)
                needed -= freed
                give.add(want.pod)
            elif kept > 0:
                kept -= freed  # they use it as long as whoever is to have it can't
                keep.add(want.pod)
            else:
                free.add(want.pod)
        return Givers(give, keep, free)

    def order(self, givers: AbstractSet[str], whole: AbstractSet[JobKey]) -> list[str]:
        """Newest orders of agents of this node; pods that have another one than before. whole: jobs of which every
        pod has what it is to have."""
        told = []
        for want in self._wants:
            agent = self._ready(want)
            if agent is None:
                continue
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
        if agent.order is None and not any(agent.key in d.users for d in self._memory.devices.values()):
            return False  # it stands in no record, so no leader ever told it to use anything
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
