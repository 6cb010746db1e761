"""Workloads of the papers, one module each: `workload(seed, **parameters)` gives jobs, models and cluster.

A module may have `OPTIONS` (the paper's overheads and rounds; the command line's own win) and says in the first
line of its docstring what it is, below it which inputs the paper leaves open and what was assumed.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from muster.errors import UsageError, did_you_mean
from muster.sim.options import Options
from muster.sim.workload import Workload


def names() -> tuple[str, ...]:
    """What presets there are; a module name's _ is a - here."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.replace("_", "-") for name in found if not name.startswith("_")))


def load(name: str, seed: int, parameters: Mapping[str, Any]) -> Workload:
    """The workload of a preset. Raises UsageError naming what is not known."""
    found = parameters_of(name)
    for given in parameters:
        if given not in found:
            raise UsageError(
                f"preset {name}: {given!r} is not a parameter; it has: {', '.join(found) or 'none'}"
                f"{did_you_mean(given, found)}"
            )
    try:
        made: Workload = _module(name).workload(seed=seed, **parameters)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"preset {name}: {error}") from error
    return made


def options(name: str) -> Options:
    """The paper's overheads and rounds."""
    found: Options = getattr(_module(name), "OPTIONS", Options())
    return found


def parameters_of(name: str) -> Mapping[str, Any]:
    """Parameters of a preset with their defaults."""
    found = inspect.signature(_module(name).workload).parameters
    return {p.name: p.default for p in found.values() if p.name != "seed" and p.kind is not p.VAR_KEYWORD}


def title(name: str) -> str:
    """One line: what it is."""
    return (inspect.getdoc(_module(name)) or "").partition("\n")[0]


def _module(name: str) -> ModuleType:
    if name not in names():
        there = ", ".join(names()) or "none"
        raise UsageError(f"preset {name!r} is not known; there are: {there}{did_you_mean(name, names())}")
    return import_module(f"{__name__}.{name.replace('-', '_')}")
