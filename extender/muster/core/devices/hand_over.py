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

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from muster.core.devices.agents import expire
from muster.core.devices.coordinator import Assign, Clear, Coordinator, HeldDevice
from muster.core.devices.givers import who_gives
from muster.core.devices.node_steps import NodeSteps
from muster.core.devices.on_node import Want
from muster.core.devices.settled import Inputs, Settled, Speaker, bearing, speakers
from muster.core.devices.transitions import DeviceState
from muster.types import JobKey
from muster.types.devices import AgentKey


@dataclass(frozen=True, slots=True)
class Decisions:
    """What is to be done on the API; orders stand with the agents (`Agent.order`), who ask for them.

    assigns: records to be written; clears: to be taken off; create: holders to be made, by node; leave: uids of
    holders that are to go; told: pods with a new order; wake: when to decide about all nodes again though nothing
    happens; idle: when about one, of each that was looked at and has an idle device.
    """

    assigns: tuple[Assign, ...] = ()
    create: Mapping[str, int] = field(default_factory=dict)
    leave: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    clears: tuple[Clear, ...] = ()
    wake: float | None = None
    idle: Mapping[str, float] = field(default_factory=dict, compare=False)


def decide(
    memory: Coordinator,
    wants: Sequence[Want],
    now: float,
    vacate: Mapping[str, int] | None = None,
    aside: AbstractSet[str] = frozenset(),
    settled: dict[str, Settled] | None = None,
    only: AbstractSet[str] | None = None,
) -> Decisions:
    """The next steps of every hand-over. wants: in the plan's order; the first is served first, the last gives
    first. A pod that isn't among them is to have none. vacate: devices that each node is to give up for pods that
    aren't in place. aside: pods about which nothing is decided; they keep what they have. settled: nodes about which
    the last decision came to nothing, which are left out as long as nothing changes there; afterwards those of this
    one. What is decided does not depend on it. only: nodes to look at, where nothing is new of any other, and neither
    a time of `wake` nor of its `idle` has come (core.devices.fresh); None: all."""
    # 1 who was not heard of for too long has lost its devices
    if only is None:
        expire(memory, now, aside)
    else:
        wants = [want for want in wants if want.node in only]
    # 2 by node, since a device never changes its node; nodes where nothing changed are left out
    gang = _gang(memory, wants)
    at = _by_node(memory, wants, gang, vacate or {}, aside, only)
    before = {} if aside or settled is None else settled
    left_out = {
        name: known
        for name, inputs in at.items()
        if (known := before.get(name)) is not None and known.holds(memory, inputs, now)
    }
    each = {
        name: NodeSteps(memory, inputs.devices, inputs.wants, inputs.vacate, now, gang)
        for name, inputs in at.items()
        if name not in left_out
    }
    assigns: list[Assign] = []
    quiet: dict[str, tuple[Speaker, ...]] = {}
    for name, node in each.items():
        steps, spoken = memory.steps, speakers(memory, node.pods)
        # 3 what is reserved and not wanted any more
        node.withdraw()
        # 4 idle devices go to pods whose agent is ready
        assigns += node.assign()
        if memory.steps == steps and speakers(memory, node.pods) == spoken:
            quiet[name] = spoken
    gives = {name: node.givers() for name, node in each.items()}
    incomplete = {name: node.incomplete() for name, node in each.items()}
    givers = who_gives(
        [(want.job, want.pod) for want in wants],
        [left_out[name].givers if name in left_out else gives[name] for name in at],
    )
    parts = [*incomplete.values(), *(known.incomplete for known in left_out.values())]
    whole = {want.job for want in wants}.difference(*parts)
    recorded = set(memory.used_by)
    create: dict[str, int] = {}
    spare: list[HeldDevice] = []
    told: list[str] = []
    clears: list[Clear] = []
    unwanted: list[str] = []
    now_settled: dict[str, Settled] = {}
    idle: dict[str, float] = {}
    for name, inputs in at.items():
        known = left_out.get(name)
        pods = each[name].pods if known is None else known.pods
        bears = bearing(memory, pods, inputs.wants, givers, whole, recorded)
        if known is not None and known.bearing == bears:
            now_settled[name], idle[name] = known, known.until
            continue
        node = each.get(name) or NodeSteps(memory, inputs.devices, inputs.wants, inputs.vacate, now, gang)
        # 5 orders: fewer for who gives, more for who has it all
        orders = node.order(givers, whole, recorded)
        told += orders
        # 6 holders: what is missing is made, what nobody is to have goes
        if (missing := node.missing() - inputs.pending) > 0:
            create[name] = missing
        elif missing < 0:
            here = sorted(uid for uid, where in memory.pending.items() if where == name)
            unwanted += here[missing:]
        spares = node.spare()
        spare += spares
        # 7 seats that were let go beside others
        cleared = node.clear()
        clears += cleared
        idle[name] = node.idle_until()
        if missing or orders or spares or cleared or aside:
            continue
        if known is not None:
            now_settled[name] = replace(known, bearing=bears)
        elif name in quiet:
            now_settled[name] = Settled(
                inputs, pods, quiet[name], gives[name], incomplete[name], bears, idle[name]
            )
    if settled is not None:
        for name in set(settled) if only is None else only:
            settled.pop(name, None)
        settled.update(now_settled)
    gone = [d for d in memory.devices.values() if d.state is DeviceState.LOST and _done_with(memory, d)]
    leave = tuple(sorted({*unwanted, *(d.holder for d in (*spare, *gone) if d.holder)}))
    idle = {name: until for name, until in idle.items() if until < math.inf}
    return Decisions(
        tuple(assigns), create, leave, tuple(told), tuple(clears), _wake(memory, recorded, now), idle
    )


def _by_node(
    memory: Coordinator,
    wants: Sequence[Want],
    gang: AbstractSet[JobKey],
    vacate: Mapping[str, int],
    aside: AbstractSet[str],
    only: AbstractSet[str] | None,
) -> dict[str, Inputs]:
    """What each node's steps depend on, by the nodes' names in their order."""
    devices: dict[str, list[HeldDevice]] = {}
    for device in memory.devices.values():
        if only is not None and device.node not in only:
            continue
        if not (aside and any(device.of_pod(pod) for pod in aside)):
            devices.setdefault(device.node, []).append(device)
    of: dict[str, list[Want]] = {}
    for want in wants:
        if want.pod not in aside:
            of.setdefault(want.node, []).append(want)
    pending = Counter(memory.pending.values())
    found = {}
    names = devices.keys() | of.keys() | pending.keys()
    for name in sorted(names if only is None else names & only):
        here = tuple(of.get(name, ()))
        ready = tuple(want.job in gang for want in here)
        found[name] = Inputs(tuple(devices.get(name, ())), here, ready, vacate.get(name, 0), pending[name])
    return found


def _gang(memory: Coordinator, wants: Sequence[Want]) -> set[JobKey]:
    """Jobs of which every pod's agent is ready."""
    ready = Counter(w.job for w in wants if (agent := memory.speaker(w.pod)) is not None and agent.ready)
    return {want.job for want in wants if ready[want.job] >= want.pods}


def _done_with(memory: Coordinator, device: HeldDevice) -> bool:
    """Whether nobody uses either seat of a lost one: its holder may go."""
    other = memory.other(device)
    return not device.pods and (other is None or not other.pods)


def _wake(memory: Coordinator, recorded: AbstractSet[AgentKey], now: float) -> float | None:
    """When the first agent has been silent for too long."""
    silent = memory.lease + memory.grace
    times = [agent.heard + silent for agent in memory.agents.values()]
    if not recorded <= memory.agents.keys():
        times.append(memory.since + silent)
    return min((time for time in times if time > now), default=None)
