"""PodDisruptionBudgets of namespaces where one of them refused an eviction: listed now and then, while that lasts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from muster.cluster.api import Api, message
from muster.cluster.paths import path
from muster.errors import ClusterError
from muster.types import Budget, BudgetsSeen

AGAIN = 3.0
"""Seconds after which the budgets of a namespace are read again: a job waits to become smaller."""
SYNC_FAILED = "SyncFailed"

Json = Mapping[str, Any]


def budgets(api: Api) -> Callable[[tuple[str]], tuple[BudgetsSeen, float]]:
    """For a Reader: the budgets of a namespace, none where they may not be read."""

    def read(key: tuple[str]) -> tuple[BudgetsSeen, float]:
        (namespace,) = key
        status, data = api.request("GET", path("policy/v1", "poddisruptionbudgets", namespace))
        if status in (401, 403, 404):
            return BudgetsSeen(namespace, ()), AGAIN
        if status != 200:
            raise ClusterError(message(data), status)
        found = [budget(item) for item in json.loads(data)["items"]]
        return BudgetsSeen(namespace, tuple(sorted(found))), AGAIN

    return read


def budget(item: Json) -> Budget:
    """One object. What its controller has not worked out yet counts as 0."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    number = spec.get("minAvailable")
    failed = next(
        (
            str(condition.get("message") or SYNC_FAILED)
            for condition in status.get("conditions") or ()
            if condition.get("reason") == SYNC_FAILED and condition.get("status") == "False"
        ),
        "",
    )
    return Budget(
        name=str(item["metadata"]["name"]),
        desired=int(status.get("desiredHealthy") or 0),
        healthy=int(status.get("currentHealthy") or 0),
        expected=int(status.get("expectedPods") or 0),
        allowed=int(status.get("disruptionsAllowed") or 0),
        number=number if isinstance(number, int) else -1,
        failed=failed,
    )
