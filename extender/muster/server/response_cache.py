"""Answers rendered from the newest View: once for a crowd of readers, sent small, not sent where nothing changed."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from muster.cached import MIB
from muster.core.views.safe_rendering import shown
from muster.core.views.view import Board, View

FRESH = 0.5
"""Seconds for which a rendered answer is given again."""
WORTH = range(4096, 8 * 1024 * 1024)
"""Bytes of an answer that is compressed: a picture of 500 nodes and 1,000 jobs shrinks to a tenth. A dump of a large
cluster is read seldom, and compressing it takes as long as making it."""
KEPT = 64 * MIB
"""Bytes of answers that are kept, beside the newest."""
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Rendered:
    """One answer. tag: its ETag; packed: the body in gzip, empty where that is not worth it."""

    view: View
    at: float
    body: bytes
    packed: bytes
    tag: str

    def response(self, request: Request) -> Response:
        """As this reader takes it: 304 where he has it already. Nobody else may keep it."""
        headers = {
            "ETag": self.tag,
            "Cache-Control": "private, no-store",
            "Vary": "Authorization, Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
        }
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        if self.packed and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.packed, 200, {**headers, "Content-Encoding": "gzip"}, JSON)
        return Response(self.body, 200, headers, JSON)


class Answers:
    """Rendered answers by question. A new View, or half a second, makes them old."""

    def __init__(self, board: Board, fresh: float) -> None:
        self._board = board
        self._fresh = fresh
        self._kept: dict[tuple[str, ...], Rendered] = {}
        self._turn = asyncio.Lock()

    async def get(
        self, question: tuple[str, ...], render: Callable[[View], bytes], lasts: float = math.inf
    ) -> Rendered:
        """The answer; rendered in a thread where there is none that is fresh.

        lasts: seconds after which it is old although the View is the same (it tells how far jobs are).
        """
        async with self._turn:
            now, view = monotonic(), self._board.view
            kept = self._kept.get(question)
            if kept is not None and now - kept.at < (lasts if kept.view is view else self._fresh):
                return kept
            made = await to_thread.run_sync(_render, self._board, view, now, render)
            kept_on = {q: r for q, r in self._kept.items() if q != question and now - r.at < self._fresh}
            while sum(len(r.body) + len(r.packed) for r in kept_on.values()) > KEPT:
                del kept_on[next(iter(kept_on))]
            self._kept = {**kept_on, question: made}
            return made


def _render(board: Board, view: View, now: float, render: Callable[[View], bytes]) -> Rendered:
    body = shown(board, render, view)
    packed = gzip.compress(body, 1, mtime=0) if len(body) in WORTH else b""
    return Rendered(view, now, body, packed, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
