"""What the Coordinator learns of agents: their reports, their silence, and the end of their pods."""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from dataclasses import replace

from muster.core.devices.coordinator import Agent, Change, Coordinator, HeldDevice, drop_user
from muster.core.devices.transitions import DeviceEvent, DeviceState, PodEvent, PodState
from muster.types.devices import AgentAnswer, AgentKey, AgentReport, AgentState

INCARNATIONS = 8
"""Agents of one pod that are remembered at once: a container that restarts in a loop has one a minute."""
PAUSE_FIRST, PAUSE_MOST = 1.0, 64.0
"""Seconds for which a pod gets no device that gave back what it was told to use: the first time, doubling up to the
most. Each time costs a write on every holder."""


def heard(memory: Coordinator, pod: str, report: AgentReport, now: float) -> Agent | None:
    """A report of a pod's agent, which is about to be answered; None where the pod has too many agents."""
    key = AgentKey(pod, report.incarnation)
    known = memory.agents.get(key)
    if known is None:
        if sum(other.pod == pod for other in memory.agents) >= INCARNATIONS:
            return None
        agent = Agent(key, now, report)
    else:
        newest = known.report if _overtaken(known.report, report) else report
        agent = replace(known, heard=max(known.heard, now), report=newest)
    memory.agents[key] = agent
    state = memory.pods.get(pod, PodState.SUBMITTED)
    if agent.ready and state is not PodState.COMPLETED and (known is None or pod not in memory.current):
        memory.current[pod] = key
        if state is PodState.SUBMITTED:
            memory.pod_moved(pod, PodEvent.READY)
    if report.state is AgentState.ENDED:
        # It starts nothing any more; what it still lists, a training that is asked to end may be using.
        _let_go(memory, key, now, DeviceEvent.RELEASED, {device.id for device in report.devices})
        _no_speaker(memory, key)
    elif agent.order is not None and report.order == agent.order.number:
        _carried_out(memory, agent, report, now)
    return memory.agents[key]


def answer_to(memory: Coordinator, agent: Agent) -> AgentAnswer:
    """What its agent is told now: its order, where that is not carried out."""
    return AgentAnswer(memory.term, memory.lease, None if agent.settled else agent.order)


def pod_ended(memory: Coordinator, pod: str, now: float) -> None:
    """A pod in a terminal phase, as its kubelet tells: none of its processes is left."""
    for key in {key for key in _keys(memory) if key.pod == pod}:
        _let_go(memory, key, now, DeviceEvent.RELEASED)
        memory.agents.pop(key, None)
    memory.current.pop(pod, None)
    memory.gave_back.pop(pod, None)
    _no_changes(memory, pod)
    if memory.pods.get(pod, PodState.SUBMITTED) is not PodState.COMPLETED:
        memory.pod_moved(pod, PodEvent.ENDED)


def pod_gone(memory: Coordinator, pod: str) -> None:
    """Nothing is left of a pod on the API. Its agent may still run (a deletion by force): its lease decides."""
    memory.pods.pop(pod, None)
    memory.current.pop(pod, None)
    memory.gave_back.pop(pod, None)
    _no_changes(memory, pod)


def expire(memory: Coordinator, now: float, aside: AbstractSet[str] = frozenset()) -> None:
    """Agents that were not heard of for lease + grace have lost their devices; not those of pods put aside."""
    for key in [key for key in _keys(memory) if key.pod not in aside and expires(memory, key) <= now]:
        _let_go(memory, key, now, DeviceEvent.EXPIRED)
        memory.agents.pop(key, None)
        _no_speaker(memory, key)


def expires(memory: Coordinator, key: AgentKey) -> float:
    """When an agent that isn't heard of until then has ended its child by itself."""
    agent = memory.agents.get(key)
    return (memory.since if agent is None else agent.heard) + memory.lease + memory.grace


def _keys(memory: Coordinator) -> set[AgentKey]:
    return memory.agents.keys() | memory.used_by.keys()


def _no_speaker(memory: Coordinator, key: AgentKey) -> None:
    """An agent speaks for its pod no more; the one that was heard last does, if there is one."""
    if memory.current.get(key.pod) != key:
        return
    others = [a for a in memory.agents.values() if a.key.pod == key.pod and a.ready]
    if others:
        memory.current[key.pod] = max(others, key=lambda a: (a.heard, a.key)).key
    else:
        del memory.current[key.pod]
        memory.pod_moved(key.pod, PodEvent.LEFT)
        del memory.pods[key.pod]
        _no_changes(memory, key.pod)


def _no_changes(memory: Coordinator, pod: str) -> None:
    memory.asked.pop(pod, None)
    memory.changes.pop(pod, None)


def _overtaken(before: AgentReport, after: AgentReport) -> bool:
    """Whether a report that comes after another one was sent before it; an end is for good."""
    if AgentState.ENDED in (before.state, after.state):
        return before.state is AgentState.ENDED
    return after.order < before.order


def _carried_out(memory: Coordinator, agent: Agent, report: AgentReport, now: float) -> None:
    """Its newest order is carried out: what its child does not use now is released. That may be a device of that
    order, too, where the agent was without a lease for a while: it needs a newer order to use it again."""
    assert agent.order is not None
    kept = {device.id for device in report.devices}
    _given_back(memory, agent, kept, now)
    for device in _used_by(memory, agent.key):
        # What is reserved for it stands in no order yet.
        if device.id not in kept and device.state is not DeviceState.RESERVED:
            drop_user(memory, device, agent.key, now, DeviceEvent.RELEASED)
    if memory.current.get(agent.key.pod) == agent.key and memory.pods[agent.key.pod] is PodState.ADJUSTING:
        memory.pod_moved(agent.key.pod, PodEvent.STARTED if agent.order.devices else PodEvent.EMPTIED)
        pod = agent.key.pod
        before = memory.changes.get(pod)
        since = before.at if before is not None else -math.inf
        taken = [device for device in _used_by(memory, agent.key) if device.idle_since > since]
        gave = before is not None and len(agent.order.devices) < before.count
        memory.changes[pod] = Change(
            at=now,
            took=now - memory.asked.pop(pod, now),
            idle=max((now - device.idle_since for device in taken), default=0.0),
            count=len(agent.order.devices),
            handed=gave or any(device.last not in ("", pod) for device in taken),
            before=before.count if before is not None else 0,
        )


def _given_back(memory: Coordinator, agent: Agent, kept: AbstractSet[str], now: float) -> None:
    """Whether it uses what its order names. It has for as long as it last had to wait: that is forgotten."""
    assert agent.order is not None
    pod, named = agent.key.pod, {device.id for device in agent.order.devices}
    until, length = memory.gave_back.get(pod, (-math.inf, 0.0))
    has = {device.id for device in _used_by(memory, agent.key)}
    if named & has - kept:
        length = min(2.0 * length, PAUSE_MOST) if length else PAUSE_FIRST
        memory.gave_back[pod] = now + length, length
    elif named and named <= kept and now >= until + length:
        memory.gave_back.pop(pod, None)


def _used_by(memory: Coordinator, key: AgentKey) -> list[HeldDevice]:
    return [memory.devices[device] for device in memory.used_by.get(key, ())]


def _let_go(
    memory: Coordinator, key: AgentKey, now: float, event: DeviceEvent, kept: AbstractSet[str] = frozenset()
) -> None:
    for device in _used_by(memory, key):
        if device.id not in kept:
            drop_user(memory, device, key, now, event)
