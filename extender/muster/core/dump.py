"""A View as plain values, and back: what /debug/snapshot sends and replay reads.

`load(dump(view))` is the same snapshot, so that the same cycle gives the same plan: a user's dump becomes a
test. Fields that have their default are left out. Shapes, which many pods share, are listed once and named by
number.

What it leaves out: pods that are not ours (they are in `free`) and a plugin's memory that is no plain value.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from muster.core.view import View
from muster.errors import UsageError
from muster.points import Profile
from muster.types import Job, JobKey, NodeRecord, Nodes, Port, Shape, Snapshot

VERSION = 1
"""Raised when a dump can no longer be read by the code before."""


def dump(view: View) -> dict[str, Any]:
    """The whole snapshot and the plan as plain values that JSON carries exactly."""
    shapes: dict[Shape, int] = {}
    snapshot = view.snapshot
    jobs = [_plain(job, shapes) for job in snapshot.jobs.values()]
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
            "nodes": [_plain(node, shapes) for node in snapshot.nodes.records],
            "resources": list(snapshot.nodes.resources),
            "free": snapshot.free.tolist(),
            "ours_on": snapshot.ours_on.tolist(),
            "ports": [[row, [list(p) for p in sorted(ports)]] for row, ports in snapshot.ports.items()],
            "barred": [[list(key), role, dict(until)] for (key, role), until in snapshot.barred.items()],
            "jobs": jobs,
            "shapes": [_fields(shape, shapes) for shape in shapes],
        },
        "plan": _fields(view.plan, shapes),
        "free": view.free.tolist(),
    }


def load(plain: Mapping[str, Any]) -> tuple[Snapshot, str]:
    """The snapshot of a dump, and the name of the profile that was in force.

    Raises UsageError where `plain` is no dump of a version that can be read.
    """
    if plain.get("version") != VERSION:
        raise UsageError(f"not a snapshot of version {VERSION}: version is {plain.get('version')!r}")
    try:
        return _snapshot(plain["snapshot"]), str(plain["profile"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(f"the snapshot can't be read: {type(error).__name__}: {error}") from error


def _snapshot(plain: Mapping[str, Any]) -> Snapshot:
    shapes = [_built(shape, Shape, ()) for shape in plain["shapes"]]
    nodes = Nodes([_built(node, NodeRecord, shapes) for node in plain["nodes"]])
    if list(nodes.resources) != list(plain["resources"]):
        raise ValueError("columns do not match the nodes' resources")
    jobs = [_built(job, Job, shapes) for job in plain["jobs"]]
    return Snapshot(
        now=float(plain["now"]),
        shared_at=float(plain.get("shared_at", 0.0)),
        nodes=nodes,
        free=np.array(plain["free"], dtype=np.int64).reshape(len(nodes), len(nodes.resources)),
        jobs={job.key: job for job in jobs},
        ports={row: frozenset(Port(*p) for p in ports) for row, ports in plain["ports"]},
        barred={(JobKey(*key), role): until for key, role, until in plain["barred"]},
        ours_on=np.array(plain["ours_on"], dtype=np.int64),
    )


CORE = (
    *("order", "patience", "timeout", "evidence", "owner_pause", "placement", "binder", "preemption"),
    *("resize", "round", "topology_levels"),
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
        "core": {name: _plain(getattr(profile, name), {}) for name in CORE},
    }


def _parameters(plugin: Any) -> dict[str, Any]:
    """Fields of a plugin that differ from their default and can be written down."""
    if not dataclasses.is_dataclass(plugin):
        return {}
    return {name: value for name, value in _fields(plugin, {}).items() if value is not None}


def plain(value: Any) -> Any:
    """One value of `muster.types` without shapes, as plain values; fields that have their default are left out."""
    return _plain(value, {})


def built(found: Any, kind: Any) -> Any:
    """The value of a type of `muster.types` from plain ones. Raises KeyError, TypeError or ValueError."""
    return _built(found, kind, ())


# ---- values by their types: the declarations in muster.types are the format ----


@cache
def _hints(kind: Any) -> dict[str, Any]:
    names = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        return {f.name: names[f.name] for f in dataclasses.fields(kind) if f.init}
    return names


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {
        f.name: f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        for f in dataclasses.fields(kind)
        if f.init
    }


def _fields(value: Any, shapes: dict[Shape, int]) -> dict[str, Any]:
    """The fields of a dataclass that differ from their default."""
    kind: Any = type(value)
    result = {}
    for name, default in _defaults(kind).items():
        found = getattr(value, name)
        if found is not default and found != default:
            result[name] = _plain(found, shapes)
    return result


def _plain(value: Any, shapes: dict[Shape, int]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Shape):
        return shapes.setdefault(value, len(shapes))
    if isinstance(value, Mapping):
        if all(type(key) is str for key in value):
            return {key: _plain(kept, shapes) for key, kept in value.items()}
        return [[_plain(key, shapes), _plain(kept, shapes)] for key, kept in value.items()]
    if dataclasses.is_dataclass(value):
        return _fields(value, shapes)
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(part, shapes) for part in value]
    return None  # a plugin's own kind of memory: see the module's head


def _built(plain: Any, hint: Any, shapes: Sequence[Shape]) -> Any:
    kind: Any = _present(hint)
    if plain is None or kind is object or kind is Any:
        return plain
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_built(part, arguments[0], shapes) for part in plain)
        return tuple(_built(part, inner, shapes) for part, inner in zip(plain, arguments, strict=True))
    if origin is not None:  # Mapping
        pairs = plain.items() if isinstance(plain, Mapping) else plain  # keys that are no text: pairs
        return {_built(key, arguments[0], shapes): _built(kept, arguments[1], shapes) for key, kept in pairs}
    if kind is Shape and isinstance(plain, int):
        return shapes[plain]
    if hasattr(kind, "__dataclass_fields__"):
        hints = _hints(kind)
        return kind(**{name: _built(part, hints[name], shapes) for name, part in plain.items()})
    if hasattr(kind, "_fields"):  # NamedTuple
        parts = zip(plain, _hints(kind).values(), strict=True)
        return kind(*(_built(part, inner, shapes) for part, inner in parts))
    if kind is bytes:
        return base64.b64decode(plain)
    return kind(plain)


def _present(hint: Any) -> Any:
    """X of `X | None`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(a for a in typing.get_args(hint) if a is not type(None))
    return hint
