"""ResourceQuotas of namespaces where pods of a job do not appear: listed now and then, while that lasts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from muster.cluster.api import Api, message
from muster.cluster.paths import path
from muster.cluster.quantities import quantity
from muster.errors import ClusterError
from muster.types import PODS, Quota, QuotasSeen

log = logging.getLogger(__name__)

AGAIN = 10.0
"""Seconds after which the quotas of a namespace are read again."""

Json = Mapping[str, Any]


def quotas(api: Api) -> Callable[[tuple[str]], tuple[QuotasSeen, float]]:
    """For a Reader: the quotas of a namespace. Where they may not be read it says so, and the log has it once."""
    refused: set[str] = set()

    def read(key: tuple[str]) -> tuple[QuotasSeen, float]:
        (namespace,) = key
        status, data = api.request("GET", path("v1", "resourcequotas", namespace))
        if status == 403:
            if namespace not in refused:
                log.warning(
                    "resourcequotas of %s: %s; until they may be read nobody there gets more GPUs in place",
                    namespace,
                    message(data),
                )
                refused.add(namespace)
            return QuotasSeen(namespace, (), refused=True), AGAIN
        refused.discard(namespace)
        if status == 404:
            return QuotasSeen(namespace, ()), AGAIN
        if status != 200:
            raise ClusterError(message(data), status)
        found = sorted(json.loads(data)["items"], key=lambda item: str(item["metadata"]["name"]))
        return QuotasSeen(namespace, tuple(q for item in found for q in limits(item))), AGAIN

    return read


def limits(item: Json) -> list[Quota]:
    """What a ResourceQuota says of pods' requests, one entry a resource.

    A limit counts from when it is declared, also before the controller manager has counted what is used of it.
    Left out: quotas with scopes, which may not be about the pod, and limits.*, which the planner does not read.
    """
    spec, status = item.get("spec", {}), item.get("status", {})
    if spec.get("scopes") or spec.get("scopeSelector"):
        return []
    used = status.get("used", {})
    result = []
    declared = {**spec.get("hard", {}), **status.get("hard", {})}
    for name, hard in sorted(declared.items()):
        resource = resource_of(name)
        if resource:
            result.append(
                Quota(
                    item["metadata"]["name"],
                    name,
                    resource,
                    quantity(resource, hard),
                    quantity(resource, used.get(name, 0)),
                )
            )
    return result


def resource_of(name: str) -> str:
    """The resource that pods request, of a quota's name for it; "" where it is about something else."""
    if name in (PODS, "count/pods"):
        return PODS
    if name in ("cpu", "memory", "ephemeral-storage"):
        return name
    return name.removeprefix("requests.") if name.startswith("requests.") else ""
