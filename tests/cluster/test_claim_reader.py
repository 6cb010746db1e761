"""Reading a claim: what counts as a volume that any node can use."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from muster.cluster.api import Api
from muster.cluster.claim_reader import seen
from muster.errors import ClusterError
from muster.types import ClaimSeen

CLAIM = ("team", "data")
BOUND: dict[str, Any] = {
    "spec": {"volumeName": "pv-1", "accessModes": ["ReadWriteMany"]},
    "status": {"phase": "Bound"},
}
AFFINITY: dict[str, Any] = {"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}}


class FakeApi:
    """Objects by path; a number is a status without an object."""

    def __init__(self, **objects: Any) -> None:
        self.objects = {
            "/api/v1/namespaces/team/persistentvolumeclaims/data": objects.get("claim", BOUND),
            "/api/v1/persistentvolumes/pv-1": objects.get("volume", {"spec": {}}),
        }

    def request(self, method: str, path: str) -> tuple[int, bytes]:
        assert method == "GET"
        found = self.objects.get(path, 404)
        return (found, b"{}") if isinstance(found, int) else (200, json.dumps(found).encode())


def read(**objects: Any) -> ClaimSeen:
    return seen(cast(Api, FakeApi(**objects)), CLAIM)


@pytest.mark.parametrize(
    ("objects", "anywhere"),
    [
        ({}, True),
        ({"claim": BOUND | {"status": {"phase": "Pending"}}}, False),
        ({"claim": BOUND | {"spec": {"volumeName": "pv-1", "accessModes": ["ReadWriteOncePod"]}}}, False),
        ({"claim": 404}, False),
        ({"claim": 403}, False),
        ({"volume": 403}, False),
        ({"volume": {"spec": {"nodeAffinity": AFFINITY}}}, False),
        ({"volume": {"spec": {}, "metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}}}, False),
        ({"volume": {"spec": {}, "metadata": {"labels": {"team": "a"}}}}, True),
    ],
)  # fmt: skip
def test_a_bound_claim_of_a_volume_without_a_place_of_its_own_can_be_used_anywhere(
    objects: dict[str, Any], anywhere: bool
) -> None:
    assert read(**objects).anywhere is anywhere


@pytest.mark.parametrize(("claim", "missing"), [(404, True), (403, False), ({"status": {}}, False)])
def test_a_claim_is_missing_where_the_server_knows_none_of_that_name(claim: Any, missing: bool) -> None:
    assert read(claim=claim) == ClaimSeen(*CLAIM, anywhere=False, missing=missing)


def test_a_name_that_no_claim_can_have_is_missing() -> None:
    found = seen(cast(Api, FakeApi()), ("team", "../../healthz"))
    assert found == ClaimSeen("team", "../../healthz", anywhere=False, missing=True)


def test_a_server_that_has_no_answer_is_asked_again() -> None:
    with pytest.raises(ClusterError):
        read(claim=503)
