"""Nodes about which there may be something to decide: those of which anything is new, and those with something open.

What a node's steps depend on (core.devices.settled) changes by what is heard of its holders and of the agents of its
pods, by a plan, and by time. So a decision looks at these nodes alone, with all that jobs of several pods tie to
them, at those where an idle device was kept for long enough, and at all nodes once time may have changed more. It is
the decision about all nodes (tests/core/devices/test_fresh.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from muster.core.devices.coordinator import HeldDevice
from muster.core.devices.on_node import Want
from muster.types import JobKey
from muster.types.holders import (
    AssignHolder,
    ClearSeat,
    CreateHolder,
    DeleteHolder,
    HolderEvent,
    HolderGone,
    HolderOutcome,
    HolderSaid,
    HolderSeen,
    NameDevice,
    TrainingEnded,
    TrainingGone,
)

EVERY = 10.0
"""Seconds after which all nodes are looked at again, whatever is known of them."""


@dataclass
class Fresh:
    """nodes: of which something is new; open: where the last decision came to something; every: whether any node may
    have changed; until: when time may change something anywhere, None: never; idle: when at a node, for devices there
    that nobody uses; at: nodes where a pod is to have devices, or may
    have one; looked: when all nodes were looked at last."""

    nodes: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    every: bool = True
    until: float | None = None
    idle: dict[str, float] = field(default_factory=dict)
    at: dict[str, set[str]] = field(default_factory=dict)
    looked: float = 0.0
    _wants: Sequence[Want] = ()
    _of: Mapping[str, Sequence[Want]] = field(default_factory=dict)
    _vacate: Mapping[str, int] = field(default_factory=dict)
    _together: Mapping[JobKey, set[str]] = field(default_factory=dict)
    """Nodes of each job of several pods."""

    def learn(
        self, event: HolderEvent, node_of: Callable[[str], str], devices: Mapping[str, HeldDevice]
    ) -> None:
        """An event that is about to be taken in. node_of: of a holder that is known, by uid, else ""; devices: seats,
        by their keys."""
        match event:
            case HolderSeen(record):
                found = [record.node, node_of(record.uid), *_where(devices, record.device)]
                for agent in (record.agent, record.second):
                    if agent is not None:
                        self.uses(agent.pod, record.node)
            case HolderSaid(uid) | HolderGone(uid):
                found = [node_of(uid)]
            case HolderOutcome(CreateHolder(_, node)):
                found = [node]
            case HolderOutcome(AssignHolder(uid) as action):
                found = [node_of(uid), *_where(devices, action.device)]
            case HolderOutcome(NameDevice(uid) | ClearSeat(uid) | DeleteHolder(uid)):
                found = [node_of(uid)]
            case TrainingEnded(pod) | TrainingGone(pod):
                found = []
                self.pod(pod)
        self.nodes |= {node for node in found if node}

    def pod(self, pod: str) -> None:
        """Something is new of a pod or of its agent. Where it has and is to have nothing, nothing depends on that."""
        self.nodes |= self.at.get(pod, set())

    def uses(self, pod: str, node: str) -> None:
        """A pod may use a device there."""
        self.at.setdefault(pod, set()).add(node)

    def forget(self, pods: AbstractSet[str]) -> None:
        """Of others nothing is heard, and they have nothing: pods, and those that the plan wants something for, are
        all there are."""
        known = pods | {want.pod for want in self._wants}
        self.at = {pod: nodes for pod, nodes in self.at.items() if pod in known}

    def look(
        self, wants: Sequence[Want], vacate: Mapping[str, int], aside: AbstractSet[str], now: float
    ) -> set[str] | None:
        """Nodes that a decision is to look at; None: all of them."""
        self._planned(wants, vacate)
        if (
            self.every
            or aside
            or now >= self.looked + EVERY
            or (self.until is not None and self.until <= now)
        ):
            self.looked = now
            return None
        found = self.nodes | self.open | {node for node, at in self.idle.items() if at <= now}
        while True:
            tied = [nodes for nodes in self._together.values() if not nodes.isdisjoint(found)]
            more = set().union(*tied) - found
            if not more:
                return found
            found |= more

    def decided(
        self,
        looked: AbstractSet[str],
        settled: AbstractSet[str],
        until: float | None,
        idle: Mapping[str, float],
        aside: AbstractSet[str],
        *,
        whole: bool,
    ) -> None:
        """After a decision. settled: nodes where there was nothing to decide, of those looked at; until: when time
        may change something anywhere; idle: when at those looked at; whole: whether these were all."""
        kept = {} if whole else {node: at for node, at in self.idle.items() if node not in looked}
        self.idle = {**kept, **idle}
        self.open = set(looked - settled)
        self.nodes.clear()
        self.every, self.until = bool(aside), until

    @property
    def first(self) -> float | None:
        """When time may change something at a node first."""
        return min(self.idle.values(), default=None)

    def _planned(self, wants: Sequence[Want], vacate: Mapping[str, int]) -> None:
        """Where the plan wants something else than the last one."""
        if wants is not self._wants:
            of: dict[str, list[Want]] = {}
            together: dict[JobKey, set[str]] = {}
            for want in wants:
                of.setdefault(want.node, []).append(want)
                self.uses(want.pod, want.node)
                if want.pods > 1:
                    together.setdefault(want.job, set()).add(want.node)
            self.nodes |= {node for node in of.keys() | self._of.keys() if of.get(node) != self._of.get(node)}
            self._wants, self._of, self._together = wants, of, together
        if vacate != self._vacate:
            changed = vacate.keys() | self._vacate.keys()
            self.nodes |= {node for node in changed if vacate.get(node) != self._vacate.get(node)}
            self._vacate = dict(vacate)


def _where(devices: Mapping[str, HeldDevice], id_: str) -> list[str]:
    return [devices[id_].node] if id_ in devices else []
