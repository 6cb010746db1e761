"""What a ResourceQuota says of pods' requests."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from muster.cluster.api import Api
from muster.cluster.quota_reader import limits, quotas
from muster.errors import ClusterError
from muster.types import GPU, Quota, QuotasSeen


def quota(name: str, hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec, "status": {"hard": hard, "used": used or {}}}


def test_requests_and_pods_are_read_in_the_planners_units() -> None:
    hard = {
        f"requests.{GPU}": "8",
        "pods": "10",
        "cpu": "2",
        "requests.memory": "1Gi",
        "limits.cpu": "4",
        "configmaps": "3",
    }
    assert limits(quota("q", hard, {"cpu": "500m"})) == [
        Quota("q", "cpu", "cpu", 2000, 500),
        Quota("q", "pods", "pods", 10, 0),
        Quota("q", "requests.memory", "memory", 1 << 30, 0),
        Quota("q", f"requests.{GPU}", GPU, 8, 0),
    ]


def test_a_quota_with_a_scope_may_not_be_about_the_pod() -> None:
    assert limits(quota("q", {"pods": "0"}, scopes=["BestEffort"])) == []
    assert limits(quota("q", {"pods": "0"}, scopeSelector={"matchExpressions": []})) == []


def test_a_limit_counts_before_what_is_used_of_it_was_counted() -> None:
    made = {"metadata": {"name": "q"}, "spec": {"hard": {f"requests.{GPU}": "2"}}}
    assert limits(made) == [Quota("q", f"requests.{GPU}", GPU, 2, 0)]


def test_quotas_that_may_not_be_read_are_not_known_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FakeApi:
        def __init__(self, status: int, *items: Any) -> None:
            self.answer = status, json.dumps({"items": items}).encode()

        def request(self, method: str, path: str) -> tuple[int, bytes]:
            assert (method, path) == ("GET", "/api/v1/namespaces/team/resourcequotas")
            return self.answer

    read = quotas(cast(Api, FakeApi(403)))
    assert read(("team",))[0] == read(("team",))[0] == QuotasSeen("team", (), refused=True)
    (said,) = caplog.messages
    assert said.startswith("resourcequotas of team: ")
    assert said.endswith("until they may be read nobody there gets more GPUs in place")
    assert quotas(cast(Api, FakeApi(404)))(("team",))[0] == QuotasSeen("team", ())
    with pytest.raises(
        ClusterError
    ):  # asked again soon: a token that is not known yet says nothing of quotas
        quotas(cast(Api, FakeApi(401)))(("team",))
    read = quotas(cast(Api, FakeApi(200, quota("b", {"pods": "1"}), quota("a", {"pods": "2"}))))
    assert [q.name for q in read(("team",))[0].quotas] == ["a", "b"]
