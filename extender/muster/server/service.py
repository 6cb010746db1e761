"""The service port: /healthz, /readyz, /healthz/scheduler, /metrics, /v1/jobs, /v1/cluster, /debug/snapshot, the page
that draws it, and POST /v1/report (server/report_endpoint.py).

/v1 and /debug need a bearer token for the audience muster.dev whose owner may list gangs (server/access.py);
probes, metrics and the page itself, which holds no data, don't.
Everything is read from the newest View when somebody asks. One answer is rendered at a time, and the same
question within half a second gets the same bytes, so that a crowd of readers costs as much as one.

Errors are {"error": "..."}: 400 not understood, 401 no or unknown token, 403 no right, 429 too many callers,
503 the API server can't be asked, or nothing is known yet.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Header, Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.exceptions import HTTPException

from muster.core import snapshot_codec
from muster.core.views import job_status
from muster.core.views.view import Board, View
from muster.errors import ClusterError
from muster.server.access import AUDIENCE, Access, FloodError, Verdict, claimed
from muster.server.agent_endpoint import AgentEndpoint, Hear, agent_route
from muster.server.agent_orders import AgentOrders
from muster.server.answers import AsciiResponse
from muster.server.cluster_pages import add_pages, add_pictures
from muster.server.holder_endpoint import HolderEndpoint, Holders, holder_route
from muster.server.kube_scheduler import Beside
from muster.server.metrics import ViewCollector
from muster.server.pod_callers import Pods
from muster.server.report_endpoint import ReportEndpoint, Sink, report_route
from muster.server.response_cache import FRESH, Answers

log = logging.getLogger(__name__)

THREADS = 4
"""Questions to the API server at a time."""
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

Missing = Callable[[], Sequence[str]]
"""What is still missing before this replica is ready; empty when nothing is."""


def make_service_app(
    board: Board,
    access: Access,
    registry: CollectorRegistry | None = None,
    missing: Missing | None = None,
    closed: Missing | None = None,
    fresh: float = FRESH,
    reports: Sink | None = None,
    pods: Pods | None = None,
    agents: tuple[AgentOrders, Hear] | None = None,
    holders: Holders | None = None,
    beside: Beside | None = None,
    ailing: Missing | None = None,
) -> FastAPI:
    """The app for the service port.

    registry: where the extender's and other metrics are; the View's own are added to it. missing: what /readyz
    names while the View is not synced; closed: what after that, ports that are not open yet. fresh: seconds for
    which an answer is given again.
    reports: where accepted reports of training go, pods: who knows whose a token is; None: no /v1/report.
    agents: what agents beside training are ordered, and where their reports go; None: no /v1/agents.
    holders: what is known of pods that hold devices, and where it goes what they tell; None: no /v1/holders.
    beside: the kube-scheduler whose liveness is asked here, None: there is none. ailing: what /healthz names, of a
    process that does not do its work any more; nothing else is wrong with it than that it runs on.
    """
    app = FastAPI(title="muster", openapi_url=None, docs_url=None, redoc_url=None)
    registry = registry or CollectorRegistry()
    registry.register(ViewCollector(board))
    answers = Answers(board, fresh)
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
            raise _unauthorized(f"the API server does not know this token for the audience {AUDIENCE}")
        if verdict is Verdict.ELSEWHERE:
            found = ", ".join(claimed(token)[1] or ())[:200] or "none"
            raise _unauthorized(
                f"expected a token for the audience {AUDIENCE}, found one for {found}; "
                f"make one: kubectl create token NAME -n NAMESPACE --audience={AUDIENCE}"
            )
        return verdict

    @app.exception_handler(HTTPException)
    async def failed(_: Request, error: HTTPException) -> JSONResponse:
        return AsciiResponse({"error": error.detail}, error.status_code, error.headers)

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        found = ails()
        if found:
            log.error("not healthy: %s", "; ".join(found))
            return JSONResponse({"status": "failing", "failing": found}, 500)
        return JSONResponse({"status": "ok"})

    def ails() -> list[str]:
        return list(ailing() if ailing else ())

    def lacks() -> list[str]:
        return _lacks(board.view, missing) or list(closed() if closed else ())

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        return _probed(lacks())

    @app.get("/healthz/scheduler")
    async def scheduler() -> JSONResponse:
        if beside is None:
            raise HTTPException(404, "no kube-scheduler is in the pod of this muster")
        return _probed(ails() or lacks() or await beside.lacks())

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def readable(authorization: str | None, namespace: str | None, path: str) -> bool:
        """Whether the caller reads all namespaces; raises 403 where he may not read what he asks for."""
        if namespace is not None and not NAMESPACE.fullmatch(namespace):
            raise HTTPException(400, f"namespace: must be the name of a namespace; found {namespace[:80]!r}")
        if await may(authorization, None) is Verdict.ALLOWED:
            return True
        if namespace is None:
            raise _forbidden(f"in all namespaces; name one of yours: {path}?namespace=NAME")
        if await may(authorization, namespace) is not Verdict.ALLOWED:
            raise _forbidden(f"in namespace {namespace}")
        return False

    @app.get("/v1/jobs")
    async def jobs(
        request: Request,
        authorization: Annotated[str | None, Header()] = None,
        namespace: Annotated[str | None, Query()] = None,
    ) -> Response:
        everywhere = await readable(authorization, namespace, "/v1/jobs")
        _synced(board.view, missing)

        def render(view: View) -> bytes:
            def sees(other: str) -> bool:
                return everywhere or other == namespace

            items = [job_status.item(s) for s in job_status.standings(view, sees, namespace)]
            return msgspec.json.encode({"items": items})

        return (await answers.get(("jobs", namespace or "", str(everywhere)), render)).response(request)

    if reports is not None and pods is not None:
        app.router.routes.insert(0, report_route(ReportEndpoint(board, pods, reports, registry)))

    if agents is not None and pods is not None:
        orders, hear = agents
        app.router.routes.insert(0, agent_route(AgentEndpoint(board, pods, orders, hear, registry)))
        if holders is not None:
            app.router.routes.insert(
                0, holder_route(HolderEndpoint(board, pods, orders, *holders, registry=registry))
            )

    add_pictures(app, answers, readable, lambda: _synced(board.view, missing))
    add_pages(app)

    @app.get("/debug/snapshot")
    async def snapshot(request: Request, authorization: Annotated[str | None, Header()] = None) -> Response:
        if await may(authorization, None) is not Verdict.ALLOWED:
            raise _forbidden("in all namespaces, and a snapshot holds them all")
        _synced(board.view, missing)
        return (await answers.get(("snapshot",), _dumped)).response(request)

    return app


def _probed(lacks: list[str]) -> JSONResponse:
    """What a probe is told."""
    if lacks:
        return JSONResponse({"status": "not ready", "missing": lacks}, 503)
    return JSONResponse({"status": "ready", "missing": []})


def _dumped(view: View) -> bytes:
    return json.dumps(snapshot_codec.dump(view), allow_nan=False, separators=(",", ":")).encode()


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
