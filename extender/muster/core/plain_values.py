"""Values of `muster.types` as plain values that JSON carries exactly, and back: their declarations are the format.

One codec for a dump, and for a job's facts and grant in its Gang: a field that is added there is in both. A job's
Track (`core.progress.history`) and lessons (`core.progress.learned`) have a second, by hand, for three reasons:

- size: they are written again and again, to an object that is bounded. They are rows without names, rounded to the
  digits that are measured. By declaration a Track of four sizes is 1.7 times as long, and a dump must not be rounded;
- trust: a tenant may edit a Gang, and 500 lessons of many tenants stand in one ConfigMap. Each number is checked
  and what is wrong is dropped alone; a dump that is wrong anywhere is refused whole, since its plan would be another;
- what is left out: a Track has a form number and forgets what the next few reports tell again.
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

from muster.types import Grant, Job, Shape

OLD_NAMES: Mapping[type, Mapping[str, str]] = {
    Job: {
        "holds": "reservations",
        "keeps": "shrink_blocked_by",
        "want": "grant",
        "coming": "returning",
        "anew": "restarting",
        "aside": "quarantined",
    },
    Grant: {"anew": "restart"},
}
"""Fields as version 1 and Gangs written by it have them."""


def plain(value: Any) -> Any:
    """One value of `muster.types` without shapes, as plain values; fields that have their default are left out."""
    return plain_of(value, {})


def built(found: Any, kind: Any) -> Any:
    """The value of a type of `muster.types` from plain ones. Raises KeyError, TypeError or ValueError."""
    return built_of(found, kind, ())


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


def fields_of(value: Any, shapes: dict[Shape, int]) -> dict[str, Any]:
    """The fields of a dataclass that differ from their default."""
    kind: Any = type(value)
    result = {}
    for name, default in _defaults(kind).items():
        found = getattr(value, name)
        if found is not default and found != default:
            result[name] = plain_of(found, shapes)
    return result


def plain_of(value: Any, shapes: dict[Shape, int]) -> Any:
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
            return {key: plain_of(kept, shapes) for key, kept in value.items()}
        return [[plain_of(key, shapes), plain_of(kept, shapes)] for key, kept in value.items()]
    if dataclasses.is_dataclass(value):
        return fields_of(value, shapes)
    if isinstance(value, tuple | list | set | frozenset):
        return [plain_of(part, shapes) for part in value]
    return None  # a plugin's own kind of memory: see the module's head


def built_of(plain: Any, hint: Any, shapes: Sequence[Shape]) -> Any:
    kind: Any = _present(hint)
    if kind is object or kind is Any or (plain is None and kind is not hint):
        return plain
    if plain is None:
        raise TypeError(f"expected {kind}, found null")
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(built_of(part, arguments[0], shapes) for part in plain)
        return tuple(built_of(part, inner, shapes) for part, inner in zip(plain, arguments, strict=True))
    if origin is not None:  # Mapping
        pairs = plain.items() if isinstance(plain, Mapping) else plain  # keys that are no text: pairs
        return {
            built_of(key, arguments[0], shapes): built_of(kept, arguments[1], shapes) for key, kept in pairs
        }
    if kind is Shape and isinstance(plain, int):
        return shapes[plain]
    if hasattr(kind, "__dataclass_fields__"):
        hints, old = _hints(kind), OLD_NAMES.get(kind, {})
        named = {old.get(name, name): part for name, part in plain.items()}
        return kind(**{name: built_of(part, hints[name], shapes) for name, part in named.items()})
    if hasattr(kind, "_fields"):  # NamedTuple
        parts = zip(plain, _hints(kind).values(), strict=True)
        return kind(*(built_of(part, inner, shapes) for part, inner in parts))
    if kind is bytes:
        return base64.b64decode(plain)
    return kind(plain)


def _present(hint: Any) -> Any:
    """X of `X | None`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(a for a in typing.get_args(hint) if a is not type(None))
    return hint
