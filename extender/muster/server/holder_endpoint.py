"""POST /v1/holders: which device the container of a pod that holds one got, where its status doesn't say so.

    {"device": "GPU-6a...", and of NVML, if it is there, all of "healthy": true, "processes": 0, "memory": 0 (MiB)}
                                200 {"recorded": true or false}: whether it stands on the pod; ask again until it does

The bearer token is the pod's own: a holder speaks for itself only. Checked in this order:

    413 a body above MOST bytes     421 this replica does not lead: another connection may reach the one that does
    401 no token, one for another audience, or nobody's     404 a pod that holds no device of Muster's
    429 more often than may be (Retry-After)    400 not the id of one whole device: what is expected, what was found
    409 another device stands on the pod
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from muster.core.views.view import Board
from muster.server.agent_endpoint import ELSEWHERE
from muster.server.agent_orders import AgentOrders
from muster.server.pod_callers import Callers, Clock, Pods, Rates, Refusal, flood, read_body
from muster.types.devices import MalformedError, device_id
from muster.types.holders import HolderRecord, HolderSaid

MOST = 1024
"""Bytes of a body."""
LOOKED = ("healthy", "processes", "memory")
LARGEST = 1 << 30
RATE, BURST = 1.0, 10.0
"""Requests of a pod: a second, and at once."""
NO_DEVICE = frozenset({"all", "none", "void"})
"""What NVIDIA's toolkit reads instead of devices: `void` is written where it gives them by CDI."""

Holders = tuple[Callable[[str], HolderRecord | None], Callable[[HolderSaid], None]]
"""What is known of a pod that holds a device, by uid; where it goes what one tells."""


class HolderEndpoint:
    """holder: what is known of a pod that holds a device, by uid; say: where it goes what one tells."""

    def __init__(
        self,
        board: Board,
        pods: Pods,
        orders: AgentOrders,
        holder: Callable[[str], HolderRecord | None],
        say: Callable[[HolderSaid], None],
        registry: CollectorRegistry,
        clock: Clock = time.monotonic,
    ) -> None:
        """orders: say whether this replica leads; clock: of rates."""
        self._orders, self._holder, self._say = orders, holder, say
        self._callers, self._rates = Callers(board, pods, clock), Rates(RATE, BURST, clock)
        self._count = Counter(
            "muster_holder_requests",
            "Requests of pods that hold devices by what became of them: recorded, noted, or why not.",
            ["result"],
            registry=registry,
        )

    async def post(self, request: Request) -> Response:
        """One request."""
        try:
            recorded = await self._post(request)
        except Refusal as refusal:
            self._count.labels(refusal.result).inc()
            return refusal.response
        self._count.labels("recorded" if recorded else "noted").inc()
        return JSONResponse({"recorded": recorded})

    async def _post(self, request: Request) -> bool:
        body = await read_body(request, MOST)
        if not self._orders.leading:
            raise Refusal(421, "elsewhere", ELSEWHERE)
        uid = await self._callers.caller(request.headers.get("authorization", ""), self._known)
        if (wait := self._rates.wait(uid)) > 0.0:
            raise flood(f"this pod asks more than {RATE:g} times a second", wait, "flood-pod")
        try:
            told = read_holder(body, uid)
        except MalformedError as error:
            more = {"field": error.field, "expected": error.expected, "found": error.found}
            raise Refusal(400, "malformed", str(error), more) from error
        record = self._known(uid)
        if record.device and record.device != told.device:
            raise Refusal(
                409, "another", f"device: expected {record.device}, as recorded, found {told.device}"
            )
        if not record.device or told.looked:
            self._say(told)
        return bool(record.device)

    def _known(self, uid: str) -> HolderRecord:
        record = self._holder(uid)
        if record is None:
            why = "this pod holds no device of Muster's, or is not known yet"
            raise Refusal(404, "unknown", why, headers={"Retry-After": "1"})
        return record


def read_holder(body: bytes, uid: str) -> HolderSaid:
    """What a holder tells. Raises MalformedError."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        shown = body[:80].decode("utf-8", "replace")
        raise MalformedError("body", "a JSON object", shown) from error
    if not isinstance(found, dict) or found.keys() not in ({"device"}, {"device", *LOOKED}):
        raise MalformedError("body", 'a JSON object {"device": ID}, with all of NVML or nothing of it', found)
    device = device_id("device", found["device"])
    if device in NO_DEVICE or device.isdigit():
        raise MalformedError(
            "device", "the id of one device, as the strategy envvar of a device plugin gives it", device
        )
    if len(found) == 1:
        return HolderSaid(uid, device)
    healthy, processes, memory = (found[name] for name in LOOKED)
    if not isinstance(healthy, bool):
        raise MalformedError("healthy", "true or false", healthy)
    for name, value in (("processes", processes), ("memory", memory)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise MalformedError(name, f"a whole number from 0 to {LARGEST}", value)
    return HolderSaid(uid, device, True, healthy, processes, memory)


def holder_route(endpoint: HolderEndpoint) -> Route:
    """The route for the service port."""
    return Route("/v1/holders", endpoint.post, methods=["POST"])
