# Over 300 lines: each answer of one endpoint, asked over real connections.
"""POST /v1/agents: whose it is, what it is told, when, and what is never answered."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from muster.core.views.view import Board
from muster.server.agent_endpoint import MOST, POD_BURST, AgentEndpoint, agent_route
from muster.server.agent_orders import WAITING, AgentHeard, AgentOrders, Unanswered
from muster.types.devices import AgentKey, AgentReport, AgentState, Device, Order
from tests.scenario import job, snapshot
from tests.server.on_loopback import serving
from tests.server.reading import viewed
from tests.server.test_report_endpoint import Pods, token

PATIENT = 60.0
"""Seconds for what takes milliseconds."""
READY = {"incarnation": "i1", "state": "ready", "devices": [], "gpus": [1, 2]}
GPU = Device("GPU-1", 7)


@dataclass
class Muster:
    """The route on a port of loopback, and whoever decides: it takes in nothing by itself."""

    port: int = 0
    hold: float = PATIENT
    orders: AgentOrders = field(default_factory=AgentOrders)
    heard: list[AgentHeard] = field(default_factory=list)
    came: threading.Condition = field(default_factory=threading.Condition)
    leads: bool = True
    pod: str = ""
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32))
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def app(self) -> Starlette:
        now = snapshot(nodes=1, jobs=[job("train", worker=1, gpus=1, on=["n0"])])
        self.pod = next(m.uid for one in now.jobs.values() for role in one.roles for m in role.members)
        board = Board(viewed(now))
        endpoint = AgentEndpoint(
            board, Pods(), self.orders, self.hear, self.registry, lambda: 100.0, self.hold
        )
        return Starlette(routes=[agent_route(endpoint)])

    def hear(self, heard: AgentHeard) -> None:
        with self.came:
            self.heard.append(heard)
            self.came.notify_all()

    def begin(self, number: int = 3) -> None:
        self.orders.begin(number, 60.0, lambda: self.leads)

    def wake(self) -> None:
        with self.came:
            self.came.notify_all()

    def key(self, incarnation: str = "i1") -> AgentKey:
        return AgentKey(self.pod, incarnation)

    def post(self, body: object = READY, bearer: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENT)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        bearer = token(self.pod) if bearer is None else bearer
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        connection.request("POST", "/v1/agents", content, headers)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    def asks(self, body: object = READY) -> Future[tuple[int, Any]]:
        """A request that is held, from when whoever decides has its report."""
        before = len(self.heard)
        asked = self.pool.submit(self.post, body)
        asked.add_done_callback(lambda _: self.wake())
        with self.came:
            assert self.came.wait_for(lambda: len(self.heard) > before or asked.done(), PATIENT)
        assert len(self.heard) > before, f"not held, but answered: {asked.result()}"
        return asked


@pytest.fixture
def muster(request: pytest.FixtureRequest) -> Iterator[Muster]:
    made = Muster(hold=getattr(request, "param", PATIENT))
    with serving(made.app()) as made.port:
        made.begin()
        yield made
        made.orders.end()
    made.pool.shutdown()


def order(number: int, incarnation: str = "i1") -> Order:
    return Order(number, incarnation, (GPU,))


TOLD = {"number": 9, "incarnation": "i1", "devices": [{"id": "GPU-1", "epoch": 7}]}


def test_an_order_that_comes_while_a_request_is_held_is_its_answer(muster: Muster) -> None:
    asked = muster.asks()
    assert muster.heard == [AgentHeard(1, muster.pod, AgentReport("i1", AgentState.READY, gpus=(1, 2)))]
    muster.orders.publish(1, {muster.key(): None})
    muster.orders.publish(1, {muster.key(): order(9)})
    assert asked.result(PATIENT) == (200, {"term": 3, "lease": 60.0, "order": TOLD})


def test_an_order_that_is_carried_out_is_not_told_again(muster: Muster) -> None:
    asked = muster.asks(READY | {"state": "running", "order": 9})
    muster.orders.publish(1, {muster.key(): order(9)})
    held = next(iter(muster.orders._held.values()))
    assert muster.orders.look(held, patient=True) is Unanswered.WAITS
    muster.orders.publish(1, {muster.key(): order(10)})
    assert asked.result(PATIENT)[1]["order"]["number"] == 10


def test_a_request_is_held_for_a_part_of_the_lease_at_most(muster: Muster) -> None:
    muster.orders.begin(4, 0.6, lambda: True)
    asked = muster.asks()
    muster.orders.publish(1, {muster.key(): None})
    assert asked.result(PATIENT / 2) == (200, {"term": 4, "lease": 0.6, "order": None})


def test_ended_is_held_only_until_it_was_taken_in(muster: Muster) -> None:
    asked = muster.asks(READY | {"state": "ended"})
    muster.orders.publish(1, {muster.key(): None})
    assert asked.result(PATIENT) == (200, {"term": 3, "lease": 60.0, "order": None})


@pytest.mark.parametrize("muster", [0.3], indirect=True)
def test_a_request_without_news_gets_the_lease_when_its_time_is_over(muster: Muster) -> None:
    muster.orders.publish(1, {muster.key(): None})  # as if it were taken in as soon as it comes
    assert muster.post() == (200, {"term": 3, "lease": 60.0, "order": None})


def test_who_is_taken_in_without_news_is_told_what_it_has_not_carried_out(muster: Muster) -> None:
    muster.orders.publish(0, {muster.key(): order(9)})
    asked = muster.asks()
    muster.orders.took_in(1)
    assert asked.result(PATIENT)[1]["order"]["number"] == 9


@pytest.mark.parametrize("muster", [0.3], indirect=True)
def test_what_was_not_taken_in_gets_no_lease(muster: Muster) -> None:
    """Whoever decides might give its devices on at that moment."""
    muster.orders.publish(0, {muster.key(): order(9)})
    status, found = muster.post()
    assert (status, found) == (503, {"error": "this report was not taken in yet"})


def test_an_agent_that_is_not_known_gets_no_lease(muster: Muster) -> None:
    asked = muster.asks()
    muster.orders.publish(1, {muster.key("another"): order(9, "another")})
    status, found = asked.result(PATIENT)
    assert status == 503
    assert "this agent gets no orders" in found["error"]


@pytest.mark.parametrize("how", ["end", "begin", "lease"])
def test_who_is_held_when_the_term_ends_gets_no_lease(muster: Muster, how: str) -> None:
    asked = muster.asks()
    if how == "end":
        muster.orders.end()
    elif how == "begin":
        muster.begin(4)
    else:
        muster.leads = False
        muster.orders.publish(1, {muster.key(): order(9)})
    status, found = asked.result(PATIENT)
    assert (status, found["error"][:42]) == (421, "this replica of Muster does not lead: try ")


def test_a_replica_that_does_not_lead_says_so_and_hands_nothing_on(muster: Muster) -> None:
    muster.leads = False
    assert muster.post()[0] == 421
    assert muster.heard == []


def test_a_newer_request_of_an_agent_overtakes_the_one_that_is_held(muster: Muster) -> None:
    first = muster.asks()
    second = muster.asks(READY | {"state": "running", "order": 9})
    assert first.result(PATIENT) == (409, {"error": "this agent has sent a newer request"})
    muster.orders.publish(2, {muster.key(): order(10)})
    assert second.result(PATIENT)[0] == 200


def test_a_pod_has_so_many_agents_waiting_and_no_more(muster: Muster) -> None:
    held = [muster.asks(READY | {"incarnation": f"i{n}"}) for n in range(WAITING)]
    status, found = muster.post(READY | {"incarnation": "one-more"})
    assert (status, found) == (429, {"error": "as many agents of this pod as may wait do so already"})
    keys = [muster.key(f"i{n}") for n in range(WAITING)]
    muster.orders.publish(WAITING, {key: order(9, key.incarnation) for key in keys})
    assert [one.result(PATIENT)[1]["order"]["incarnation"] for one in held] == [k.incarnation for k in keys]
    assert muster.orders._held == {}, "what was answered does not wait"


def test_a_pod_asks_so_often_and_no_more(muster: Muster) -> None:
    for _ in range(int(POD_BURST)):
        assert muster.post(b"{}")[0] == 400
    status, found = muster.post(b"{}")
    assert (status, found["error"]) == (429, "this pod's agents ask more than 10 times a second")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"no json", "body"),
        ([], "body"),
        ({**READY, "incarnation": ""}, "incarnation"),
        (READY | {"state": "asleep"}, "state"),
        (READY | {"order": -1}, "order"),
        (READY | {"devices": [{"id": "GPU-1::2", "epoch": 1}]}, "devices[0].id"),
        (READY | {"pod": "another"}, "pod"),
    ],
)
def test_a_body_that_cant_be_names_its_field(muster: Muster, body: object, field: str) -> None:
    status, found = muster.post(body)
    assert (status, found["field"]) == (400, field)
    assert found["error"] == f"{field}: expected {found['expected']}, found {found['found']}"
    assert muster.heard == []


@pytest.mark.parametrize(
    ("bearer", "status"),
    [("", 401), (token("somebody"), 404), ("e30.e30.good", 401)],
)
def test_who_is_no_pod_of_ours_is_refused(muster: Muster, bearer: str, status: int) -> None:
    assert muster.post(bearer=bearer)[0] == status
    assert muster.heard == []


def test_a_signature_that_is_wrong_is_refused(muster: Muster) -> None:
    assert muster.post(bearer=token(muster.pod, signature="bad"))[0] == 401


def test_a_long_body_is_refused(muster: Muster) -> None:
    assert muster.post(b" " * (MOST + 1))[0] == 413


def test_a_thousand_held_requests_cost_no_threads() -> None:
    async def held() -> tuple[int, set[int]]:
        orders = AgentOrders()
        orders.begin(1, 60.0, lambda: True)
        before = threading.active_count()
        heard: list[AgentHeard] = []
        now = snapshot(nodes=1, jobs=[job("train", worker=1000, gpus=0, on=["n0"] * 1000)])
        pods = [m.uid for one in now.jobs.values() for role in one.roles for m in role.members]
        desk = AgentEndpoint(
            Board(viewed(now)), Pods(), orders, heard.append, CollectorRegistry(), time.monotonic
        )
        tasks = [asyncio.create_task(desk._answered(pod, AgentReport("i", AgentState.READY))) for pod in pods]
        while len(heard) < len(pods):
            await asyncio.sleep(0)
        more = threading.active_count() - before
        told = {AgentKey(pod, "i"): Order(n, "i", (GPU,)) for n, pod in enumerate(pods, 1)}
        await asyncio.to_thread(orders.publish, len(pods), told)
        answers = await asyncio.gather(*tasks)
        return more, {one.order.number for one in answers if one.order}

    assert asyncio.run(held()) == (0, set(range(1, 1001)))


def test_orders_without_a_term_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="expected a term that has begun, found none"):
        AgentOrders().publish(0, {})


def test_a_caller_that_goes_away_before_its_report_has_come_is_counted_and_is_no_fault(
    muster: Muster, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /v1/agents HTTP/1.1\r\nHost: m\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection(("127.0.0.1", muster.port), timeout=PATIENT) as caller:
        caller.sendall(head + b'{"incarnation"')
    deadline = time.monotonic() + PATIENT
    while muster.registry.get_sample_value("muster_agent_requests_total", {"result": "gone"}) != 1.0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not [record for record in caplog.records if record.exc_info]


def test_the_round_trip_of_an_order_ends_with_the_first_request_after_its_answer(muster: Muster) -> None:
    now = [10.0]
    muster.orders._clock = lambda: now[0]

    def counted() -> tuple[float | None, float | None]:
        name = "muster_agent_round_trip_seconds"
        return tuple(muster.registry.get_sample_value(f"{name}_{part}") for part in ("count", "sum"))  # type: ignore[return-value]

    first = muster.asks()
    muster.orders.publish(1, {muster.key(): order(9)})
    assert first.result(PATIENT)[1]["order"] == TOLD
    assert counted() == (0.0, 0.0), "it was sent, and may not have arrived"
    now[0] = 10.25
    second = muster.asks({**READY, "state": "stopping"})
    assert counted() == (1.0, 0.25)
    muster.orders.publish(2, {muster.key(): order(9)})
    assert second.result(PATIENT)[0] == 200
    now[0] = 11.0
    third = muster.asks({**READY, "order": 9})
    assert counted() == (1.0, 0.25), "one order counts once"
    muster.orders.publish(3, {muster.key(): order(10)})
    assert third.result(PATIENT)[0] == 200
    now[0] = 11.5
    muster.asks({**READY, "order": 9})
    assert counted() == (2.0, 0.75)
