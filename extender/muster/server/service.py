"""The service port: /healthz, /readyz, /metrics, /v1/jobs and /debug/snapshot.

/v1 and /debug need a bearer token whose owner may list gangs (server/access.py); probes and metrics don't.
Everything is read from the newest View when somebody asks. One answer is rendered at a time, and the same
question within half a second gets the same bytes, so that a crowd of readers costs as much as one.

Errors are {"error": "..."}: 400 not understood, 401 no or unknown token, 403 no right, 429 too many callers,
503 the API server can't be asked, or nothing is known yet.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Annotated

import msgspec
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Header, Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.exceptions import HTTPException

from muster.core import dump, standing
from muster.core.view import Board, View
from muster.errors import ClusterError
from muster.server.access import Access, FloodError, Verdict
from muster.server.metrics import ViewCollector

FRESH = 0.5
"""Seconds for which a rendered answer is given again."""
THREADS = 4
"""Questions to the API server at a time."""
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

Missing = Callable[[], Sequence[str]]
"""What is still missing before this replica is ready; empty when nothing is."""


@dataclass(frozen=True, slots=True)
class _Rendered:
    view: View
    at: float
    body: bytes


class _Answers:
    """Rendered answers by question. A new View, or half a second, makes them old."""

    def __init__(self, board: Board, fresh: float) -> None:
        self._board = board
        self._fresh = fresh
        self._kept: dict[tuple[str, ...], _Rendered] = {}
        self._turn = asyncio.Lock()

    async def get(self, question: tuple[str, ...], render: Callable[[View], bytes]) -> bytes:
        """The answer; rendered in a thread where there is none that is fresh."""
        async with self._turn:
            now, view = monotonic(), self._board.view
            kept = self._kept.get(question)
            if kept is not None and (kept.view is view or now - kept.at < self._fresh):
                return kept.body
            body = await to_thread.run_sync(render, view)
            self._kept = {q: r for q, r in self._kept.items() if now - r.at < self._fresh}
            self._kept[question] = _Rendered(view, now, body)
            return body


def make_service_app(
    board: Board,
    access: Access,
    registry: CollectorRegistry | None = None,
    missing: Missing | None = None,
    fresh: float = FRESH,
) -> FastAPI:
    """The app for the service port.

    registry: where the extender's and other metrics are; the View's own are added to it. missing: what
    /readyz names while the View is not synced. fresh: seconds for which an answer is given again.
    """
    app = FastAPI(title="muster", openapi_url=None, docs_url=None, redoc_url=None)
    registry = registry or CollectorRegistry()
    registry.register(ViewCollector(board))
    answers = _Answers(board, fresh)
    limiter = CapacityLimiter(THREADS)

    async def may(authorization: str | None, namespace: str | None) -> Verdict:
        """The caller's right in a namespace, or everywhere. Raises 401 where he is nobody."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized("a bearer token is needed: Authorization: Bearer <token>")
        try:
            verdict = await to_thread.run_sync(access.may_list, token, namespace, limiter=limiter)
        except FloodError as error:
            raise HTTPException(429, str(error), {"Retry-After": "1"}) from error
        except ClusterError as error:
            raise HTTPException(503, f"your rights can't be checked now: {error}") from error
        if verdict is Verdict.UNKNOWN:
            raise _unauthorized("the API server does not know this token")
        return verdict

    @app.exception_handler(HTTPException)
    async def failed(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        lacks = _lacks(board.view, missing)
        if lacks:
            return JSONResponse({"status": "not ready", "missing": lacks}, 503)
        return JSONResponse({"status": "ready", "missing": []})

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/jobs")
    async def jobs(
        authorization: Annotated[str | None, Header()] = None,
        namespace: Annotated[str | None, Query()] = None,
    ) -> Response:
        if namespace is not None and not NAMESPACE.fullmatch(namespace):
            raise HTTPException(400, f"namespace: must be the name of a namespace; found {namespace[:80]!r}")
        everywhere = await may(authorization, None) is Verdict.ALLOWED
        if not everywhere:
            if namespace is None:
                raise _forbidden("in all namespaces; name one of yours: /v1/jobs?namespace=NAME")
            if await may(authorization, namespace) is not Verdict.ALLOWED:
                raise _forbidden(f"in namespace {namespace}")
        _synced(board.view, missing)

        def render(view: View) -> bytes:
            def sees(other: str) -> bool:
                return everywhere or other == namespace

            items = [standing.item(s) for s in standing.standings(view, sees, namespace)]
            return msgspec.json.encode({"items": items})

        body = await answers.get(("jobs", namespace or "", str(everywhere)), render)
        return Response(body, media_type="application/json")

    @app.get("/debug/snapshot")
    async def snapshot(authorization: Annotated[str | None, Header()] = None) -> Response:
        if await may(authorization, None) is not Verdict.ALLOWED:
            raise _forbidden("in all namespaces, and a snapshot holds them all")
        _synced(board.view, missing)
        body = await answers.get(("snapshot",), _dumped)
        return Response(body, media_type="application/json")

    return app


def _dumped(view: View) -> bytes:
    return json.dumps(dump.dump(view), allow_nan=False, separators=(",", ":")).encode()


def _lacks(view: View, missing: Missing | None) -> list[str]:
    if view.synced:
        return []
    return list(missing() if missing else ()) or ["the first list of every watch"]


def _synced(view: View, missing: Missing | None) -> None:
    lacks = _lacks(view, missing)
    if lacks:
        raise HTTPException(503, f"not ready; missing: {', '.join(lacks)}", {"Retry-After": "1"})


def _unauthorized(why: str) -> HTTPException:
    return HTTPException(401, why, {"WWW-Authenticate": "Bearer"})


def _forbidden(where: str) -> HTTPException:
    return HTTPException(403, f"you may not list gangs.muster.dev {where}")
