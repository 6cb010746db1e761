"""What a pod asks for as kube-scheduler counts it: exact, cpu in millis, the rest in whole units."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity


def requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """What kube-scheduler counts: the containers and sidecars together, or one init container with the sidecars
    before it where that is more; a request of the whole pod replaces these."""
    sums: dict[str, int] = {}
    for container in spec.get("containers") or []:
        _add(sums, _of(container))
    peak: dict[str, int] = {}
    beside: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        asked = _of(container)
        if container.get("restartPolicy") == "Always":
            _add(sums, asked)
            _add(beside, asked)
            asked = beside
        else:
            asked = {name: asked.get(name, 0) + beside.get(name, 0) for name in asked.keys() | beside.keys()}
        peak = {name: max(peak.get(name, 0), asked.get(name, 0)) for name in peak.keys() | asked.keys()}
    found = {name: max(sums.get(name, 0), peak.get(name, 0)) for name in sums.keys() | peak.keys()}
    found |= _of({"resources": spec.get("resources") or {}})
    _add(found, {name: measure(name, value) for name, value in (spec.get("overhead") or {}).items()})
    return found | {"pods": 1}


def measure(resource: str, value: str | int) -> int:
    """A quantity in millis of cpu or in whole units, rounded up."""
    exact = Decimal(parse_quantity(value)) * (1000 if resource == "cpu" else 1)
    return int(exact.to_integral_value(rounding=ROUND_CEILING))


def _of(container: Mapping[str, Any]) -> dict[str, int]:
    given = container.get("resources") or {}
    merged = {**(given.get("limits") or {}), **(given.get("requests") or {})}
    return {name: measure(name, value) for name, value in merged.items()}


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        sums[name] = sums.get(name, 0) + value
