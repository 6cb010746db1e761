"""GET /v1/cluster and /v1/jobs/{namespace}/{name}, and the page that draws them: GET / and /pages/...

The page is static files that lie beside this one: nothing is loaded from elsewhere, no script or style stands in
the document itself, and its policy says so to the browser. It holds no data; what it shows comes from /v1, with the
reader's own token and so with his rights.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from time import time
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Header, Query, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from muster.core.views import cluster_view
from muster.core.views.job_status import Sees
from muster.core.views.view import View
from muster.server.response_cache import Answers

PAGES = Path(__file__).parent / "pages"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content-Security-Policy: this origin only, nothing inline, and no text can become markup (Trusted Types)."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

LASTS = 5.0
"""Seconds for which an answer is given again while nothing happens: jobs go on meanwhile."""

Readable = Callable[[str | None, str | None, str], Awaitable[bool]]
"""Authorization header, namespace and path: whether the caller reads everything; raises where he reads nothing."""


def add_pictures(app: FastAPI, answers: Answers, readable: Readable, synced: Callable[[], None]) -> None:
    """The JSON behind the page. synced: raises 503 before the first View."""

    @app.get("/v1/cluster")
    async def cluster(
        request: Request,
        authorization: Annotated[str | None, Header()] = None,
        namespace: Annotated[str | None, Query()] = None,
    ) -> Response:
        everywhere = await readable(authorization, namespace, "/v1/cluster")
        synced()

        def render(view: View) -> bytes:
            return msgspec.json.encode(
                cluster_view.cluster(view, _sees(everywhere, namespace), namespace, time())
            )

        kept = await answers.get(("cluster", namespace or "", str(everywhere)), render, LASTS)
        return kept.response(request)

    @app.get("/v1/jobs/{namespace}/{name}")
    async def job(
        request: Request,
        namespace: str,
        name: str,
        authorization: Annotated[str | None, Header()] = None,
        uid: Annotated[str, Query()] = "",
    ) -> Response:
        everywhere = await readable(authorization, namespace, "/v1/jobs")
        synced()

        def render(view: View) -> bytes:
            key = cluster_view.find(view, namespace, name, uid)
            return msgspec.json.encode(
                key and cluster_view.job(view, _sees(everywhere, namespace), key, time())
            )

        kept = await answers.get(("job", namespace, name, uid, str(everywhere)), render, LASTS)
        if kept.body == b"null":
            raise HTTPException(404, f"no job {name[:80]!r} in namespace {namespace}; it may have ended")
        return kept.response(request)


def add_pages(app: FastAPI) -> None:
    """The page at /, its parts under /pages."""
    app.mount("/pages", _Pages(directory=PAGES), name="pages")
    pages = _Pages(directory=PAGES)

    @app.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return await pages.get_response("index.html", request.scope)

    @app.get("/favicon.ico")
    async def icon(request: Request) -> Response:
        return await pages.get_response("muster.svg", request.scope)


class _Pages(StaticFiles):
    """Static files, each with the page's policy; a browser asks again each time whether one is still the same."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: MutableMapping[str, Any],
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


def _sees(everywhere: bool, namespace: str | None) -> Sees:
    return lambda other: everywhere or other == namespace
