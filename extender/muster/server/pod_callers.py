"""Which pod calls, by its token, of which job it is, and how often it may: for what pods post to the service port.

What a token claims is read before the API server is asked about it, only to refuse what can't be: a flood of made-up
tokens costs the API server nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Protocol

from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request

from muster.core.views.view import Board, View
from muster.errors import ClusterError
from muster.server.access import AUDIENCE, LONGEST, FloodError, claimed
from muster.server.answers import AsciiResponse
from muster.types import Job, JobKey

ASKED_RATE, ASKED_BURST = 1.0, 5.0
"""Times that the API server is asked about tokens that claim to be one pod's."""
KNOWN = 65536
"""Pods, jobs and claims whose rates are remembered."""
UNKNOWN_AFTER = 30
"""Seconds after which a pod of no job may ask again: it may be one of a job that is being seen."""
REINDEXED = 0.2
"""Seconds between two searches through all jobs for a pod that was not known."""

Clock = Callable[[], float]


class Pods(Protocol):
    """Whose a token is (access.ReviewedPods)."""

    def kept(self, token: str) -> str | None:
        """The pod's uid, "" for nobody's token, None where it must be asked for."""

    def ask(self, token: str) -> str:
        """The same, from the API server. Raises FloodError and ClusterError."""


class Rates:
    """A bucket for each key: `burst` at once, `rate` a second after that. Full ones are forgotten."""

    def __init__(self, rate: float, burst: float, clock: Clock) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # what was left, and when, s

    def wait(self, key: Hashable) -> float:
        """0 and one is taken, or the seconds until there is one."""
        now = self._clock()
        left, filled = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - filled) * self._rate)
        taken = left >= 1.0
        self._buckets[key] = (left - 1.0 if taken else left, now)
        if len(self._buckets) > KNOWN:
            full = now - self._burst / self._rate
            self._buckets = {k: b for k, b in self._buckets.items() if b[1] > full}
        return 0.0 if taken else (1.0 - left) / self._rate


class Callers:
    """Whose a token is. Of one event loop: what it keeps is not locked."""

    def __init__(self, board: Board, pods: Pods, clock: Clock) -> None:
        """clock: of rates."""
        self._pods = pods
        self._asked = Rates(ASKED_RATE, ASKED_BURST, clock)
        self._jobs = JobsByPod(board, clock)
        self._limiter = CapacityLimiter(4)

    async def pod(self, authorization: str) -> tuple[str, JobKey, Job]:
        """The pod that the token is bound to, and its job. Raises Refusal."""
        uid = await self.caller(authorization, self._jobs.of)
        key, job = self._jobs.of(uid)
        return uid, key, job

    async def caller(self, authorization: str, known: Callable[[str], object]) -> str:
        """The uid of the pod that the token is bound to. known: raises Refusal for a pod that may not call, which the
        API server is not asked about then. Raises Refusal."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise unauthorized("expected the pod's token, Authorization: Bearer <token>, found none")
        uid = self._pods.kept(token) if len(token) <= LONGEST else ""
        if uid is None:
            uid = await self._vouched(token, known)
        if not uid:
            raise unauthorized("the API server does not know this token")
        known(uid)
        return uid

    async def _vouched(self, token: str, known: Callable[[str], object]) -> str:
        """The pod's uid by the API server's word, asked only about what may be true. Raises Refusal."""
        said, audiences = claimed(token)
        if not said:
            raise unauthorized("expected a token that is bound to a pod (a projected volume), found another")
        if AUDIENCE not in (audiences or ()):
            found = ", ".join(audiences or ())[:200] or "none"
            raise unauthorized(f"expected a token for the audience {AUDIENCE}, found one for {found}")
        known(said)  # who is in no job is told so
        if (wait := self._asked.wait(said)) > 0.0:
            raise flood("too many unknown tokens for this pod", wait, "flood-pod")
        try:
            uid = await to_thread.run_sync(self._pods.ask, token, limiter=self._limiter)
        except FloodError as error:
            raise flood(str(error), 1.0, "flood") from error
        except ClusterError as error:
            why = f"the token can't be checked now: {error}"
            raise Refusal(503, "unavailable", why, headers={"Retry-After": "1"}) from error
        return uid if uid == said else ""


class JobsByPod:
    """The job of a pod in the newest View. A pod keeps its job; what is not known is looked for among all."""

    def __init__(self, board: Board, clock: Clock) -> None:
        self._board, self._clock = board, clock
        self._keys: dict[str, JobKey] = {}
        self._read: View | None = None
        self._at = -math.inf

    def of(self, uid: str) -> tuple[JobKey, Job]:
        """Raises Refusal where the pod is in no job."""
        jobs = self._board.view.snapshot.jobs
        job = jobs.get(self._keys[uid]) if uid in self._keys else None
        if job is None or not _has(job, uid):
            self._index()
            job = jobs.get(self._keys[uid]) if uid in self._keys else None
        if job is None:
            why = "this pod is in no job of Muster's (schedulerName), or its job is over"
            after = UNKNOWN_AFTER if self._read is self._board.view else 1  # not looked for yet: REINDEXED
            raise Refusal(404, "unknown", why, headers={"Retry-After": str(after)})
        return job.key, job

    def _index(self) -> None:
        view, now = self._board.view, self._clock()
        if view is self._read or now - self._at < REINDEXED:
            return
        self._read, self._at = view, now
        self._keys = {
            member.uid: key
            for key, job in view.snapshot.jobs.items()
            for role in job.roles
            for member in role.members
        }


def _has(job: Job, uid: str) -> bool:
    return any(member.uid == uid for role in job.roles for member in role.members)


async def read_body(request: Request, most: int) -> bytes:
    """Of at most so many bytes. Raises Refusal; where the caller goes away before it has come, too: an agent does so
    when it has news."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise Refusal(413, "too-large", f"body: expected at most {most} bytes, found more")
    except ClientDisconnect as gone:
        raise Refusal(400, "gone", "the caller went away") from gone
    return body


class Refusal(Exception):  # noqa: N818  (an answer)
    """What was not taken in. result: the metric's label."""

    def __init__(
        self,
        status: int,
        result: str,
        why: str,
        more: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(why)
        self.result = result
        self.response = AsciiResponse({"error": why, **(more or {})}, status, headers)


def unauthorized(why: str) -> Refusal:
    """401: `why` no pod is known by this token."""
    return Refusal(401, "unauthorized", why, headers={"WWW-Authenticate": "Bearer"})


def flood(why: str, wait: float, result: str) -> Refusal:
    """429: the next may come in `wait` seconds."""
    return Refusal(429, result, why, headers={"Retry-After": str(max(1, math.ceil(wait)))})
