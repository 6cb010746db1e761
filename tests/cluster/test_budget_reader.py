"""PodDisruptionBudgets as the API tells them."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from muster.cluster.api import Api
from muster.cluster.budget_reader import AGAIN, budget, budgets
from muster.cluster.decode import workload
from muster.errors import ClusterError
from muster.types import Budget, BudgetsSeen

COUNTED = {"desiredHealthy": 4, "currentHealthy": 4, "expectedPods": 8, "disruptionsAllowed": 0}
SYNC_FAILED = {
    "type": "DisruptionAllowed",
    "status": "False",
    "reason": "SyncFailed",
    "message": "jobs.batch does not implement the scale subresource",
}


def item(spec: dict[str, Any], status: dict[str, Any] | None) -> dict[str, Any]:
    return {"metadata": {"name": "keep"}, "spec": spec} | ({} if status is None else {"status": status})


def test_a_number_is_told_from_a_percentage_and_from_max_unavailable() -> None:
    assert budget(item({"minAvailable": 4}, COUNTED)) == Budget("keep", 4, 4, 8, 0, number=4)
    assert budget(item({"minAvailable": "50%"}, COUNTED)) == Budget("keep", 4, 4, 8, 0)
    assert budget(item({"maxUnavailable": 1}, COUNTED)) == Budget("keep", 4, 4, 8, 0)


def test_a_budget_that_can_not_be_worked_out_says_why_and_a_new_one_nothing() -> None:
    failed = budget(item({"maxUnavailable": 1}, {"conditions": [SYNC_FAILED]}))
    assert failed == Budget("keep", 0, 0, 0, 0, failed="jobs.batch does not implement the scale subresource")
    assert budget(item({"minAvailable": 4}, None)) == Budget("keep", 0, 0, 0, 0, number=4)


class Listing:
    def __init__(self, status: int, body: object) -> None:
        self._answer = status, json.dumps(body).encode()
        self.path = ""

    def request(self, method: str, path: str) -> tuple[int, bytes]:
        self.path = f"{method} {path}"
        return self._answer


def test_the_budgets_of_a_namespace_are_listed() -> None:
    api = Listing(200, {"items": [item({"minAvailable": 4}, COUNTED)]})
    seen, again = budgets(cast(Api, api))(("team",))
    assert api.path == "GET /apis/policy/v1/namespaces/team/poddisruptionbudgets"
    assert (seen, again) == (BudgetsSeen("team", (Budget("keep", 4, 4, 8, 0, number=4),)), AGAIN)


def test_budgets_that_may_not_be_read_are_none_and_a_server_in_trouble_is_asked_again() -> None:
    assert budgets(cast(Api, Listing(403, {})))(("team",))[0] == BudgetsSeen("team", ())
    with pytest.raises(ClusterError):
        budgets(cast(Api, Listing(500, {"message": "no"})))(("team",))


@pytest.mark.parametrize(
    ("spec", "whole", "prefix"),
    [
        ({"completionMode": "Indexed"}, True, 0),
        ({"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}, False, 1),
        ({"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0-2"}]}}, False, 3),
        ({}, False, 0),
    ],
)
def test_what_a_job_needs_to_end_is_read_from_its_success_policy(
    spec: dict[str, Any], whole: bool, prefix: int
) -> None:
    metadata = {"name": "train", "namespace": "team", "uid": "u"}
    record = workload("Job", "batch/v1")(json.dumps({"metadata": metadata, "spec": spec}).encode())
    assert (record.whole, record.prefix) == (whole, prefix)
