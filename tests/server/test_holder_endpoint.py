"""POST /v1/holders: a pod that holds a device tells which one, and for itself only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.testclient import TestClient

from muster.core.views.view import Board
from muster.server.agent_orders import AgentOrders
from muster.server.holder_endpoint import MOST, HolderEndpoint, holder_route
from muster.types.holders import HolderRecord, HolderSaid
from tests.scenario import snapshot
from tests.server.reading import viewed
from tests.server.test_report_endpoint import Pods, token


@dataclass
class Muster:
    holders: dict[str, HolderRecord] = field(default_factory=dict)
    said: list[HolderSaid] = field(default_factory=list)
    orders: AgentOrders = field(default_factory=AgentOrders)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    client: Any = None

    def post(self, body: object, uid: str = "h1") -> tuple[int, Any]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.client.post(
            "/v1/holders", content=content, headers={"Authorization": f"Bearer {token(uid)}"}
        )
        return answer.status_code, answer.json()


@pytest.fixture
def muster() -> Iterator[Muster]:
    made = Muster({"h1": HolderRecord("h1", "n0"), "h2": HolderRecord("h2", "n0", "GPU-2")})
    board = Board(viewed(snapshot(nodes=1)))
    endpoint = HolderEndpoint(
        board, Pods(), made.orders, made.holders.get, made.said.append, made.registry, lambda: 100.0
    )
    made.orders.begin(1, 60.0, lambda: True)
    with TestClient(Starlette(routes=[holder_route(endpoint)])) as made.client:
        yield made


def test_what_it_tells_is_noted_until_it_is_recorded(muster: Muster) -> None:
    assert muster.post({"device": "GPU-1"}) == (200, {"recorded": False})
    assert muster.said == [HolderSaid("h1", "GPU-1")]
    muster.holders["h1"] = HolderRecord("h1", "n0", "GPU-1")
    assert muster.post({"device": "GPU-1"}) == (200, {"recorded": True})
    assert len(muster.said) == 1
    counted = muster.registry.get_sample_value
    assert [counted("muster_holder_requests_total", {"result": one}) for one in ("noted", "recorded")] == [
        1,
        1,
    ]


def test_what_nvml_tells_of_its_device_is_passed_on_whenever_it_comes(muster: Muster) -> None:
    seen = {"device": "GPU-2", "healthy": False, "processes": 2, "memory": 700}
    assert muster.post(seen, "h2") == (200, {"recorded": True})
    assert muster.said == [HolderSaid("h2", "GPU-2", True, False, 2, 700)]


NVML = {"device": "GPU-2", "healthy": True, "processes": 0, "memory": 0}


@pytest.mark.parametrize(
    ("body", "uid", "status", "words"),
    [
        ({**NVML, "healthy": 1}, "h2", 400, "healthy: expected true or false, found 1"),
        ({**NVML, "processes": -1}, "h2", 400, "processes: expected a whole number from 0"),
        ({**NVML, "memory": 1.5}, "h2", 400, "memory: expected a whole number from 0"),
        ({"device": "GPU-2", "processes": 1}, "h2", 400, "all of NVML or nothing of it"),
        ({"device": "GPU-9"}, "h2", 409, "expected GPU-2, as recorded, found GPU-9"),
        ({"device": "GPU-1"}, "a-training", 404, "holds no device of Muster's"),
        ({"device": "GPU-1"}, "", 401, "token"),
        ({"device": "GPU-1::3"}, "h1", 400, "the id of a whole device"),
        ({"device": "GPU-1,GPU-2"}, "h1", 400, "the id of a whole device"),
        ({"device": "void"}, "h1", 400, "gives it, found 'void'"),
        ({"device": "0"}, "h1", 400, "gives it, found '0'"),
        ({"device": ""}, "h1", 400, "1 to 128 printable characters"),
        ({"device": "GPU-1", "of": "h2"}, "h1", 400, 'a JSON object {"device": ID}'),
        (b"[", "h1", 400, "a JSON object"),
        (b" " * (MOST + 1), "h1", 413, "at most"),
    ],
)
def test_what_cant_be_is_refused_with_what_was_expected(
    muster: Muster, body: object, uid: str, status: int, words: str
) -> None:
    code, answer = muster.post(body, uid)
    assert (code, words in answer["error"]) == (status, True), answer
    assert muster.said == []


def test_who_does_not_lead_notes_nothing(muster: Muster) -> None:
    muster.orders.end()
    assert muster.post({"device": "GPU-1"})[0] == 421


def test_a_flood_is_refused(muster: Muster) -> None:
    codes = [muster.post({"device": "GPU-1"})[0] for _ in range(12)]
    assert codes == [200] * 10 + [429] * 2
