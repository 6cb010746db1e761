"""Speeds by number of replicas, from one JSON object: the AFS artifact's models.json, or one of our own.

    {"ResNet-50": {"time_per_iter_s": [0.94, 0.47, 0.37, 0.26], "max_gpus": 4},
     "VGG":       {"iterations_per_s": [1.0, 1.9, 2.7]}}

Item k-1 is for k replicas; max_gpus (default: all) is where the model stops gaining. Nothing is smoothed: measured
curves are not concave.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.sim.submission import Curve, Model
from muster.sim.traces.json_text import parsed
from muster.sim.traces.source import UnreadableError, read_text


def read(path: Path) -> Mapping[str, Model]:
    """The models of a file. Raises UnreadableError with line and reason."""
    text = read_text(path)
    plain = parsed(path, text)
    try:
        return curves(plain)
    except ValueError as error:
        raise UnreadableError(path, _line(text, str(error)), str(error)) from error


def curves(plain: Any) -> dict[str, Model]:
    """Models by name. ValueError with the reason where one can't be used."""
    if not isinstance(plain, dict) or not plain:
        raise ValueError("must be an object of models by name")
    return {name: _curve(name, model) for name, model in plain.items()}


def plain(model: Curve) -> dict[str, Any]:
    """The same as it is written."""
    if model.seconds:
        return {"time_per_iter_s": list(model.seconds)}
    return {"iterations_per_s": list(model.speeds)}


def _curve(name: str, model: Any) -> Model:
    if not isinstance(model, dict):
        raise ValueError(f"{name}: must be an object")
    times, speeds = model.get("time_per_iter_s"), model.get("iterations_per_s")
    if (times is None) == (speeds is None):
        raise ValueError(f"{name}: must have one of time_per_iter_s and iterations_per_s")
    values = times if times is not None else speeds
    if not isinstance(values, list) or not values or not all(_above_zero(v) for v in values):
        raise ValueError(f"{name}: must list numbers above 0, the first for 1 replica")
    most = model.get("max_gpus", len(values))
    if not isinstance(most, int) or not 1 <= most <= len(values):
        raise ValueError(f"{name}: max_gpus must be from 1 to {len(values)}; found {most!r}")
    used = tuple(float(v) for v in values[:most])
    if times is not None:
        return Curve(name, tuple(1.0 / v for v in used), seconds=used)
    return Curve(name, used)


def _above_zero(value: Any) -> bool:
    """Whether it is a number of iterations or seconds, and one through it is, too."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and sys.float_info.min <= value <= 1.0 / sys.float_info.min
    )


def _line(text: str, reason: str) -> int:
    """Where a model's name first stands; 1 where it can't be found."""
    place = text.find(json.dumps(reason.split(":")[0]))
    return text.count("\n", 0, place) + 1 if place >= 0 else 1
