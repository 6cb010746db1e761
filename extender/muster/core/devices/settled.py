"""Nodes about which there is nothing to decide: all that a decision looks at there is that nothing changed.

A node's steps (core.devices.node_steps) depend on what is listed here and on nothing else. Once they changed nothing
and came to nothing, they do so again for as long as all of it is equal: a decision with such nodes left out is the
one with all nodes (tests/core/devices/test_settled.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from muster.core.devices.coordinator import Coordinator, HeldDevice
from muster.core.devices.givers import Givers
from muster.core.devices.on_node import Want
from muster.types import JobKey
from muster.types.devices import AgentKey, Order

Speaker = tuple[AgentKey | None, Order | None, bool, int, float | None]
"""Of a pod's agent: its key, its newest order, whether it takes devices, the order carried out; and since when the
pod is to have other devices."""


class Inputs(NamedTuple):
    """What a node's steps depend on. wants: in the plan's order; gang: for each, whether all agents of its job are
    ready; pending: holders without a device."""

    devices: tuple[HeldDevice, ...]
    wants: tuple[Want, ...]
    gang: tuple[bool, ...]
    vacate: int
    pending: int


class Bearing(NamedTuple):
    """What a node's orders depend on beside that: of its pods, whether each gives and whether its agent stands in any
    record; of its wants, whether each one's job has all that it is to have."""

    gives: tuple[bool, ...]
    recorded: tuple[bool, ...]
    whole: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """A node whose steps came to nothing. pods: those of its wants, and others that use something there; speakers: of
    each; givers, incomplete: what it means for other nodes; until: when an idle device has been kept for long
    enough."""

    inputs: Inputs
    pods: tuple[str, ...]
    speakers: tuple[Speaker, ...]
    givers: Givers
    incomplete: AbstractSet[JobKey]
    bearing: Bearing
    until: float

    def holds(self, memory: Coordinator, inputs: Inputs, now: float) -> bool:
        """Whether there is nothing to decide still, as far as the node alone goes."""
        return now < self.until and self.inputs == inputs and self.speakers == speakers(memory, self.pods)


def speakers(memory: Coordinator, pods: Sequence[str]) -> tuple[Speaker, ...]:
    """Of each of the pods."""
    return tuple(_speaker(memory, pod) for pod in pods)


def _speaker(memory: Coordinator, pod: str) -> Speaker:
    asked = memory.asked.get(pod)
    agent = memory.speaker(pod)
    if agent is None:
        return None, None, False, 0, asked
    return agent.key, agent.order, agent.ready, agent.report.order, asked


def bearing(
    memory: Coordinator,
    pods: Sequence[str],
    wants: Sequence[Want],
    gives: AbstractSet[str],
    whole: AbstractSet[JobKey],
    recorded: AbstractSet[AgentKey],
) -> Bearing:
    """gives: pods that give now; whole: jobs that have all that they are to have; recorded: who is in any record."""
    return Bearing(
        tuple(pod in gives for pod in pods),
        tuple(memory.current.get(pod) in recorded for pod in pods),
        tuple(want.job in whole for want in wants),
    )
