"""POST /v1/agents: where an agent beside training stands, and what it is ordered (types/devices.py is the protocol).

The bearer token is the pod's own, as for reports: it says whose agent speaks. Checked in this order, cheapest first:

    413 a body above MOST bytes         421 this replica does not lead: another connection may reach the one that does
    401 no token, one for another audience, or nobody's         404 a pod of no job of Muster's
    429 more of this pod, or of all, than may come (Retry-After), or more agents of it than may wait
    400 a field that is not known, or a value that can't be: the field, what is expected, what was found

Then it is held until there is a newer order than it names, HOLD s and a sixth of the lease at most; "ended" only
until it was taken in.

    200 term, lease, and the order, if there is one         409 the same agent has sent a newer request
    421 the term ended meanwhile         503 not taken in, or of no agent that is given orders (Retry-After)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from muster.core.views.view import Board
from muster.server.agent_orders import AgentHeard, AgentOrders, Held, Unanswered
from muster.server.pod_callers import Callers, Clock, Pods, Rates, Refusal, flood, read_body
from muster.types.devices import (
    HELD_PART,
    HOLD,
    AgentAnswer,
    AgentReport,
    MalformedError,
    plain_answer,
    read_agent_report,
)

MOST = 32768
"""Bytes of a body: one with 128 devices has 16 kB to 24 kB."""
POD_RATE, POD_BURST = 10.0, 40.0
"""Requests of a pod: a second, and at once. While an order is carried out an agent asks 5 times a second, and at
each of its own changes."""
ALL_RATE = 5000.0
"""Requests a second of all together, with a burst of the same number: 1,000 agents whose orders are carried out."""

ELSEWHERE = "this replica of Muster does not lead: try again on a new connection"

Hear = Callable[[AgentHeard], None]


class AgentEndpoint:
    """Holds requests of agents. Of one event loop."""

    def __init__(
        self,
        board: Board,
        pods: Pods,
        orders: AgentOrders,
        hear: Hear,
        registry: CollectorRegistry,
        clock: Clock = time.monotonic,
        hold: float = HOLD,
    ) -> None:
        """hear: where reports go, in the order of their serial numbers; clock: of rates; hold: s."""
        self._orders, self._hear, self._hold = orders, hear, hold
        self._callers = Callers(board, pods, clock)
        self._of_pod = Rates(POD_RATE, POD_BURST, clock)
        self._of_all = Rates(ALL_RATE, ALL_RATE, clock)
        self._count = Counter(
            "muster_agent_requests",
            "Requests of agents by what became of them: answered, or why not.",
            ["result"],
            registry=registry,
        )
        self._round_trip = Histogram(
            "muster_agent_round_trip_seconds",
            "From an order to the agent's first request after it was answered with that: it has arrived by then.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20),
            registry=registry,
        )

    async def post(self, request: Request) -> Response:
        """One request."""
        try:
            pod, report = await self._read(request)
            answer = await self._answered(pod, report)
        except Refusal as refusal:
            self._count.labels(refusal.result).inc()
            return refusal.response
        self._count.labels("answered").inc()
        return JSONResponse(plain_answer(answer))

    async def _read(self, request: Request) -> tuple[str, AgentReport]:
        """The pod's uid, and what its agent tells. Raises Refusal."""
        body = await read_body(request, MOST)
        if not self._orders.leading:
            raise Refusal(421, "elsewhere", ELSEWHERE)
        uid, _, _ = await self._callers.pod(request.headers.get("authorization", ""))
        if (wait := self._of_pod.wait(uid)) > 0.0:
            raise flood(f"this pod's agents ask more than {POD_RATE:g} times a second", wait, "flood-pod")
        if (wait := self._of_all.wait(None)) > 0.0:
            raise flood("all agents together ask more often than Muster takes in", wait, "flood")
        try:
            return uid, read_agent_report(_decoded(body))
        except MalformedError as error:
            more = {"field": error.field, "expected": error.expected, "found": error.found}
            raise Refusal(400, "malformed", str(error), more) from error

    async def _answered(self, pod: str, report: AgentReport) -> AgentAnswer:
        """When there is an answer, or none is to be had. Raises Refusal."""
        held = self._orders.hold(pod, report)
        if held is None:
            if not self._orders.leading:
                raise Refusal(421, "elsewhere", ELSEWHERE)
            raise flood("as many agents of this pod as may wait do so already", 1.0, "flood-pod")
        if held.round_trip is not None:
            self._round_trip.observe(held.round_trip)
        try:
            self._hear(AgentHeard(held.serial, pod, report))
            found = await self._news(held)
        finally:
            self._orders.let_go(held)
        if isinstance(found, AgentAnswer):
            return found
        raise _refused(found)

    async def _news(self, held: Held) -> AgentAnswer | Unanswered:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._hold, held.term.lease / HELD_PART)):
                while (found := self._orders.look(held, patient=True)) is Unanswered.WAITS:
                    await held.news.wait()
                    held.news.clear()
                return found
        return self._orders.look(held, patient=False)


def agent_route(endpoint: AgentEndpoint) -> Route:
    """The route for the service port."""
    return Route("/v1/agents", endpoint.post, methods=["POST"])


def _refused(found: Unanswered) -> Refusal:
    if found is Unanswered.OVER:
        return Refusal(421, "elsewhere", ELSEWHERE)
    if found is Unanswered.OVERTAKEN:
        return Refusal(409, "overtaken", "this agent has sent a newer request")
    why = "this report was not taken in yet"
    if found is Unanswered.UNKNOWN:
        why = "this agent gets no orders: its pod is not one in place, or too many agents of it are known"
    result = "unknown-agent" if found is Unanswered.UNKNOWN else "unavailable"
    return Refusal(503, result, why, headers={"Retry-After": "1"})


def _decoded(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedError("body", "a JSON object", body[:80].decode("utf-8", "replace")) from error
