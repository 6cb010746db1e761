"""What pods hold on nodes: those on it until they have ended, and ours that are planned for it, by their pin."""

from __future__ import annotations

from dataclasses import dataclass, field

from e2e.cluster import MARK
from e2e.referee.objects import NodeSeen, PodSeen


@dataclass
class Capacity:
    """nodes: by name. `saw` and `node` say what became too much by it: of ours only, since what others put on a
    node by hand Muster learns of later."""

    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    _bound: dict[str, dict[str, PodSeen]] = field(default_factory=dict)
    _pinned: dict[str, dict[str, PodSeen]] = field(default_factory=dict)
    _others: dict[str, None] = field(default_factory=dict)
    """Nodes that hold too much by what is not ours, or because they were made smaller."""

    def gone(self, pod: PodSeen) -> None:
        """It holds nothing any more."""
        for places in (self._bound, self._pinned):
            for held in places.values():
                held.pop(pod.uid, None)

    def saw(self, pod: PodSeen) -> str:
        """A pod as it is now. A sentence where it is ours, and a node holds more than it has since."""
        node = pod.node or (pod.pin if pod.ours and not pod.deleted else "")
        before = self.too_much(node, planned=False)
        self.gone(pod)
        if pod.ended or not node:
            return ""
        (self._bound if pod.node else self._pinned).setdefault(node, {})[pod.uid] = pod
        if not pod.ours:
            if self.too_much(node, planned=True):
                self._others[node] = None
            return ""
        found = self.too_much(node, planned=False)
        if not found or before or not pod.node or node in self._others:
            return ""
        return f"{found}; {pod.namespace}/{pod.name} is what is too much"

    def node(self, node: NodeSeen | None, name: str) -> None:
        """A node as it is now, or none of that name."""
        if node is None:
            self.nodes.pop(name, None)
            return
        self.nodes[name] = node
        if self.too_much(name, planned=True):
            self._others[name] = None

    def over_planned(self, name: str) -> str:
        """A sentence where what is planned is too much for this node, and no one else's doing."""
        found = self.too_much(name, planned=True)
        if not found:
            self._others.pop(name, None)
        return "" if name in self._others else found

    def where(self, uid: str) -> set[str]:
        """Nodes on which this pod counts."""
        return {
            node for places in (self._bound, self._pinned) for node, here in places.items() if uid in here
        }

    def too_much(self, name: str, *, planned: bool) -> str:
        """A sentence on what is more than the node has; "" where all fits, or nothing of the node is known."""
        node = self.nodes.get(name)
        if node is None:
            return ""
        used: dict[str, int] = {}
        here = dict(self._bound.get(name, {}))
        if planned:
            here |= self._pinned.get(name, {})
        for pod in here.values():
            for resource, value in pod.requests.items():
                used[resource] = used.get(resource, 0) + value
        found = [
            f"{value} of {node.allocatable.get(resource, 0)} {resource}"
            for resource, value in sorted(used.items())
            if resource != MARK and value > node.allocatable.get(resource, 0)
        ]
        how = "hold or are planned for" if planned else "hold"
        return f"pods {how} {', '.join(found)} of {name}" if found else ""
