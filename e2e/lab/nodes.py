"""Fake nodes of a cluster, as they were made."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from e2e.lab import shape as shapes
from e2e.lab.api import Api
from e2e.lab.shape import Shape

Manifest = dict[str, Any]


def restore(
    kubeconfig: Path,
    shape: Shape,
    keep: Collection[str],
    made: Callable[[Manifest], Manifest] = lambda it: it,
) -> None:
    """Nodes as made: deleted ones again, strange ones away but for `keep`; taints, labels, cordons, conditions.

    made: what is changed on the shape's manifest where they are created."""
    wanted = {node.name: node for node in shapes.nodes(shape)}
    with Api(kubeconfig) as api:
        there = {item["metadata"]["name"]: item for item in api.get("/api/v1/nodes")["items"]}

        def restore_one(node: shapes.NodeSpec) -> None:
            path, manifest = f"/api/v1/nodes/{node.name}", made(node.manifest(now()))
            if node.name in there:  # most were only cordoned
                spec = {"unschedulable": None, "taints": manifest["spec"]["taints"] or None}
                if not node.differs(
                    api.patch(path, {"metadata": {"labels": dict(node.labels)}, "spec": spec})
                ):
                    return
                api.delete(path)
            api.post("/api/v1/nodes", manifest)

        for name in there.keys() - wanted.keys() - set(keep):
            api.delete(f"/api/v1/nodes/{name}")
        changed = [n for n in wanted.values() if n.name not in there or n.differs(there[n.name])]
        with ThreadPoolExecutor(8) as several:
            list(several.map(restore_one, changed))


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
