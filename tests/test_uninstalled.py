"""`muster uninstalled`, the chart's last hook, before an API server that is played: what it asks and says."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from muster.cluster.api import Api
from muster.errors import ClusterError
from muster.uninstalled import delete_lease, disown_definition


class Played:
    """Answers each request with this status, and keeps what was asked."""

    def __init__(self, status: int) -> None:
        self.status, self.asked, self.said = status, list[tuple[Any, ...]](), list[str]()

    def request(self, *what: Any) -> tuple[int, bytes]:
        self.asked.append(what)
        return self.status, json.dumps({"message": "no such right"}).encode()

    @property
    def api(self) -> Api:
        return cast(Api, self)


def test_the_definition_is_given_up_in_one_request_that_holds_for_this_release_only() -> None:
    server = Played(200)
    disown_definition(server.api, "muster-system", "muster", server.said.append)
    name, space = (f"/metadata/annotations/meta.helm.sh~1release-{part}" for part in ("name", "namespace"))
    assert server.asked == [
        (
            "PATCH",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gangs.muster.dev",
            [
                {"op": "test", "path": name, "value": "muster"},
                {"op": "test", "path": space, "value": "muster-system"},
                {"op": "remove", "path": name},
                {"op": "remove", "path": space},
            ],
            "application/json-patch+json",
        )
    ]
    said = "gangs.muster.dev stays with its Gangs, and any release may have it now (Helm 3: --take-ownership)"
    assert server.said == [said]


@pytest.mark.parametrize(
    ("status", "said"),
    [(422, ["gangs.muster.dev is not of release muster-system/muster: left as it is"]), (404, [])],
)
def test_a_definition_of_another_release_or_none_is_no_matter(status: int, said: list[str]) -> None:
    server = Played(status)
    disown_definition(server.api, "muster-system", "muster", server.said.append)
    assert server.said == said


def test_the_lease_is_deleted_by_its_name() -> None:
    server = Played(200)
    delete_lease(server.api, "muster-system", "muster-scheduler", server.said.append)
    where = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster-scheduler"
    assert server.asked == [("DELETE", where)]
    assert server.said == ["Lease muster-system/muster-scheduler deleted"]
    delete_lease(Played(404).api, "muster-system", "muster-scheduler", server.said.append)


def test_what_is_refused_is_an_error_in_the_api_servers_words() -> None:
    with pytest.raises(ClusterError, match="Lease muster-system/mine stays: no such right"):
        delete_lease(Played(403).api, "muster-system", "mine", print)
    with pytest.raises(ClusterError, match=r"gangs\.muster\.dev stays of release a/b: no such right"):
        disown_definition(Played(403).api, "a", "b", print)
