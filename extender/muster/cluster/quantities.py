"""Times and quantities as the API writes them, and what a pod asks for of each resource."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from math import ceil

from kubernetes.utils.quantity import parse_quantity

from muster.cached import MIB, cached
from muster.cluster import api_types
from muster.core.bounds import AMOUNT, GPUS, Bound
from muster.core.workload import identity
from muster.types import DEVICES

Amounts = Mapping[str, str | int | float]


@cached("times", 8 * MIB)
def seconds(text: str | None) -> float:
    """Unix seconds of an RFC 3339 time, 0 for none, for one before 1970, and for what is no time."""
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp()) if text else 0.0
    except (ValueError, OverflowError):
        return 0.0


@cached("quantities", 16 * MIB)
def quantity(resource: str, text: str | int | float) -> int:
    """A resource quantity as a whole number, rounded up: cpu in millicores, the rest in units.

    No more than ENOUGH, whatever its exponent is; below 0 is 0 (no pod asks for that, and no node has it).
    """
    value: Decimal = parse_quantity(text)  # type: ignore[no-untyped-call]
    if not value.is_finite() or value <= 0:
        return 0
    if value.adjusted() > LARGEST:  # 10**(10**6) is not worked out
        return ENOUGH
    return min(ceil(value * 1000) if resource == "cpu" else ceil(value), ENOUGH)


LARGEST = 24

ENOUGH: int = 10**LARGEST
"""More than the API server keeps of a quantity (2**63 units)."""


def amounts(found: Amounts | None) -> dict[str, int]:
    return {name: quantity(name, value) for name, value in (found or {}).items()}


def bound_of(resource: str) -> Bound:
    return GPUS if DEVICES.has(resource) else AMOUNT


def _add(into: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        into[name] = into.get(name, 0) + value


def requests(spec: api_types.PodSpec) -> tuple[tuple[str, int], ...]:
    """What a pod takes, as kube-scheduler counts it, sorted by resource, each no more than its bound.

    Containers and sidecars together, or the largest init container with the sidecars started before it;
    pod-level requests replace those of the containers; overhead is added (k8s component-helpers PodRequests).
    Without the mark of an extender entry, which no node offers and kube-scheduler does not count either.
    """
    return bounded(summed(spec))[0]


def summed(spec: api_types.PodSpec) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _asked(container.resources))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers or ():
        own = _asked(container.resources)
        if container.restart_policy == "Always":
            _add(sidecars, own)
            now = dict(sidecars)
        else:
            now = dict(own)
            _add(now, sidecars)
        for name, value in now.items():
            peak[name] = max(peak.get(name, 0), value)
    _add(total, sidecars)
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    if spec.resources is not None:
        total |= _asked(spec.resources)
    _add(total, amounts(spec.overhead))
    return total


def bounded(total: Mapping[str, int]) -> tuple[tuple[tuple[str, int], ...], str]:
    """The amounts, sorted and bounded, and in words which of them was beyond its bound, "" = none."""
    amounts, beyond = [], ""
    for name, value in sorted(total.items()):
        if not value or name == identity.MARK:
            continue
        bound = bound_of(name)
        if value > bound.most:
            beyond = beyond or bound.beyond(f"requests of {name}{_UNITS.get(name, '')}", value)
            value = bound.most
        amounts.append((name, value))
    return tuple(amounts), beyond


_UNITS = {"cpu": " (millicores)", "memory": " (bytes)", "ephemeral-storage": " (bytes)"}


def _asked(resources: api_types.Resources) -> dict[str, int]:
    """Requests; where only a limit is set, it is the request (the API server defaults so too)."""
    return amounts(resources.limits) | amounts(resources.requests)
