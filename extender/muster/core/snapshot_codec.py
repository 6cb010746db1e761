"""A View as plain values (`core.plain_values`), and back: what /debug/snapshot sends and replay reads.

`load(dump(view))` is the same snapshot, so that the same cycle gives the same plan: a user's dump becomes a
test. Fields that have their default are left out. Shapes, which many pods share, are listed once and named by
number.

The plan is the one that the cycle made: GPUs in place are in it as replicas, as they are in the snapshot.

What it leaves out: pods that are not ours (they are in `free`) and a plugin's memory that is no plain value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from muster.core.plain_values import built_of, fields_of, plain_of
from muster.core.views.view import View
from muster.errors import UsageError
from muster.points import Profile
from muster.types import DEVICES, DeviceNames, Job, JobKey, NodeRecord, Nodes, Port, Shape, Snapshot, Use

VERSION = 2
"""Raised when a dump can no longer be read by the code before."""


def dump(view: View) -> dict[str, Any]:
    """The whole snapshot and the plan as plain values that JSON carries exactly."""
    shapes: dict[Shape, int] = {}
    snapshot = view.snapshot
    jobs = [plain_of(job, shapes) for job in snapshot.jobs.values()]
    return {
        "version": VERSION,
        "profile": view.profile.name,
        "order": view.profile.order,
        "recipe": recorded(view.profile),
        "leading": view.leading,
        "synced": view.synced,
        "snapshot": {
            "now": snapshot.now,
            "shared_at": snapshot.shared_at,
            "nodes": [plain_of(node, shapes) for node in snapshot.nodes.records],
            "resources": list(snapshot.nodes.resources),
            **(
                {"devices": plain_of(devices, shapes)}
                if (devices := snapshot.nodes.devices) != DEVICES
                else {}
            ),
            "free": snapshot.free.tolist(),
            **({"use": plain_of(snapshot.use, shapes)} if snapshot.use is not None else {}),
            "ours_on": snapshot.ours_on.tolist(),
            "ports": [[row, [list(p) for p in sorted(ports)]] for row, ports in snapshot.ports.items()],
            "node_backoffs": [
                [list(key), role, dict(until)] for (key, role), until in snapshot.node_backoffs.items()
            ],
            "jobs": jobs,
            "shapes": [fields_of(shape, shapes) for shape in shapes],
        },
        "plan": fields_of(dataclasses.replace(view.made or view.plan, failed=()), shapes),
        "free": view.free.tolist(),
    }


def load(plain: Mapping[str, Any]) -> tuple[Snapshot, str]:
    """The snapshot of a dump, and the name of the profile that was in force.

    Raises UsageError where `plain` is no dump of a version that can be read.
    """
    if plain.get("version") not in range(1, VERSION + 1):
        raise UsageError(
            f"not a snapshot of version {VERSION} or before: version is {plain.get('version')!r}"
        )
    try:
        return _snapshot(plain["snapshot"]), str(plain["profile"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise UsageError(f"the snapshot can't be read: {type(error).__name__}: {error}") from error


def _snapshot(plain: Mapping[str, Any]) -> Snapshot:
    shapes = [built_of(shape, Shape, ()) for shape in plain["shapes"]]
    devices = built_of(plain["devices"], DeviceNames, ()) if "devices" in plain else DEVICES
    nodes = Nodes([built_of(node, NodeRecord, shapes) for node in plain["nodes"]], devices)
    if list(nodes.resources) != list(plain["resources"]):
        raise ValueError("columns do not match the nodes' resources")
    jobs = [built_of(job, Job, shapes) for job in plain["jobs"]]
    return Snapshot(
        now=float(plain["now"]),
        shared_at=float(plain.get("shared_at", 0.0)),
        nodes=nodes,
        free=np.array(plain["free"], dtype=np.int64).reshape(len(nodes), len(nodes.resources)),
        jobs={job.key: job for job in jobs},
        ports={row: frozenset(Port(*p) for p in ports) for row, ports in plain["ports"]},
        node_backoffs={
            (JobKey(*key), role): until
            for key, role, until in plain.get("node_backoffs", plain.get("barred", ()))
        },
        ours_on=np.array(plain["ours_on"], dtype=np.int64).reshape(len(nodes)),
        use=built_of(plain["use"], Use, ()) if "use" in plain else None,
    )


CORE = (
    *("order", "patience", "timeout", "evidence", "owner_pause", "placement", "binder", "preemption"),
    *("resize", "round", "topology_levels", "conserving"),
)
"""Settings of the core that a plan depends on."""


def recorded(profile: Profile) -> dict[str, Any]:
    """A profile as plain values: which plugin stands at which point, their parameters, and the core's settings."""
    names = {id(plugin): name for name, plugin in profile.named}

    def name_of(plugin: object) -> str:
        return names.get(id(plugin), type(plugin).__name__)

    return {
        "points": {
            "sort": names.get(id(profile.sort), ""),
            "filters": [name_of(plugin) for plugin in profile.filters],
            "scores": [[name_of(plugin), weight] for plugin, weight in profile.scores],
            "shares": [name_of(plugin) for plugin in profile.shares],
            "rebalance": [name_of(plugin) for plugin in profile.rebalance],
            "estimate": names.get(id(profile.estimate), ""),
        },
        "arguments": {name: _parameters(plugin) for name, plugin in profile.named if _parameters(plugin)},
        "core": {name: plain_of(getattr(profile, name), {}) for name in CORE},
    }


def _parameters(plugin: Any) -> dict[str, Any]:
    """Fields of a plugin that differ from their default and can be written down."""
    if not dataclasses.is_dataclass(plugin):
        return {}
    return {name: value for name, value in fields_of(plugin, {}).items() if value is not None}
