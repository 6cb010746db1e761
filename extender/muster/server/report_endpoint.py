"""POST /v1/report: what training tells of its progress, from the pod that trains.

The body is JSON with any of FIELDS. The bearer token is the pod's own, for the audience `muster.dev` and bound to
that pod (server/access.py): it says for which job the report is, so that nobody reports for another's. Every request
is checked in this order, cheapest first:

    413 a body above MOST bytes         421 this replica does not lead: another connection may reach the one that does
    401 no token, one for another audience, or nobody's         404 a pod of no job of Muster's
    429 more of this pod, of its job, or of all than may come (Retry-After)
    400 a field that is not known, or a value that can't be: the field, what is expected, what was found

Accepted: {"accepted": true, "replicas": {"worker": 3}, "every": 10}: replicas granted now, and the seconds until the
next report is of use. What is believed of a report is decided elsewhere (core/progress/report_filter.py); times are
the server's. What a token claims is read before the API server is asked about it, only to refuse what can't be: a
flood of made-up tokens costs the API server nothing.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry, Counter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from muster.core.progress import report_filter
from muster.core.views.view import Board, View
from muster.errors import ClusterError, UsageError
from muster.server.access import AUDIENCE, LONGEST, FloodError, claimed
from muster.types import Event, Job, JobKey, Phase, Report, Reported

MOST = 4096
"""Bytes of a body: all fields with long numbers are 300."""
POD_RATE, POD_BURST = 1.0, 5.0
"""Reports of a pod: a second, and at once."""
JOB_RATE, JOB_BURST = 10.0, 50.0
"""Reports of a job, whose pods may all report: what it is told keeps them at half of that."""
ALL_RATE = 2000.0
"""Reports a second of all together, with a burst of the same number."""
ASKED_RATE, ASKED_BURST = 1.0, 5.0
"""Times that the API server is asked about tokens that claim to be one pod's."""
KNOWN = 65536
"""Pods, jobs and claims whose rates are remembered."""
AHEAD = 60.0
"""Seconds that a reporter's clock may be ahead of ours."""
FAR = 1e15
"""No step, sample or value is beyond it."""
UNKNOWN_AFTER = 30
"""Seconds after which a pod of no job may ask again: it may be one of a job that is being seen."""
REINDEXED = 0.2
"""Seconds between two searches through all jobs for a pod that was not known."""

Clock = Callable[[], float]
Sink = Callable[[list[Event]], None]


class Pods(Protocol):
    """Whose a token is (access.ReviewedPods)."""

    def kept(self, token: str) -> str | None:
        """The pod's uid, "" for nobody's token, None where it must be asked for."""

    def ask(self, token: str) -> str:
        """The same, from the API server. Raises FloodError and ClusterError."""


# ---- the body ----


class Unfit(UsageError):  # noqa: N818  (a refusal that names three things)
    """A report that can't be: which field, what is expected there, what was found."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")
        self.field, self.expected, self.found = field, expected, found


@dataclass(frozen=True, slots=True)
class _Number:
    least: float
    most: float
    whole: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a finite number"
        return f"{kind} from {self.least:g} to {self.most:g}"


_COUNT, _VALUE = _Number(0.0, FAR), _Number(-FAR, FAR)
FIELDS: dict[str, _Number | None] = {
    "step": _COUNT,
    "samples": _COUNT,
    "loss": _VALUE,
    "total": _COUNT,
    "epoch": _Number(0.0, 1e9, whole=True),
    "steps_per_epoch": _COUNT,
    "boundary": None,  # true or false
    "target": _VALUE,
    "workers": _Number(1.0, 1e5, whole=True),
    "at": _COUNT,  # when it was measured, Unix s: checked, and not used
}


def read_report(body: bytes, now: float) -> Report:
    """The report of a body, `at` the server's `now` (Unix s). Raises Unfit."""
    try:
        found = json.loads(body)  # with NaN and Infinity, which JSON has not: to say in which field they are
    except (ValueError, RecursionError) as error:
        raise Unfit("body", "a JSON object", _shown(body.decode("utf-8", "replace"))) from error
    if not isinstance(found, dict):
        raise Unfit("body", "a JSON object", _shown(found))
    unknown = sorted(found.keys() - FIELDS.keys())
    if unknown:
        raise Unfit(unknown[0][:80], f"one of the fields {', '.join(FIELDS)}", "this one")
    values = {name: _checked(name, value) for name, value in found.items() if value is not None}
    if not values.keys() - {"at"}:
        raise Unfit("body", f"at least one of {', '.join(name for name in FIELDS if name != 'at')}", "none")
    at = values.pop("at", now)
    if at > now + AHEAD:
        raise Unfit("at", f"a time at most {AHEAD:g} s ahead of {now:.0f} (Unix s)", f"{at:.0f}")
    values |= {name: int(values[name]) for name in ("epoch", "workers") if name in values}
    return Report(at=now, **values)


def _checked(name: str, value: Any) -> Any:
    number = FIELDS[name]
    if number is None:
        if not isinstance(value, bool):
            raise Unfit(name, "true or false", _shown(value))
        return value
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    # Python's whole numbers have no end: compared before one becomes a float.
    if not fits or not number.least <= value <= number.most or (number.whole and value != int(value)):
        raise Unfit(name, str(number), _shown(value))
    return float(value)


def _shown(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = repr(text) if isinstance(value, str) else text
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---- how often ----


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


# ---- the desk ----


class ReportEndpoint:
    """Takes reports in. Of one event loop: what it keeps is not locked."""

    def __init__(
        self,
        board: Board,
        pods: Pods,
        sink: Sink,
        registry: CollectorRegistry,
        clock: Clock = time.monotonic,
        now: Clock = time.time,
    ) -> None:
        """sink: where accepted reports go; clock: of rates; now: Unix s."""
        self._board, self._pods, self._sink, self._now = board, pods, sink, now
        self._of_pod = Rates(POD_RATE, POD_BURST, clock)
        self._of_job = Rates(JOB_RATE, JOB_BURST, clock)
        self._of_all = Rates(ALL_RATE, ALL_RATE, clock)
        self._asked = Rates(ASKED_RATE, ASKED_BURST, clock)
        self._jobs = _JobsByPod(board, clock)
        self._limiter = CapacityLimiter(4)
        self._answered: tuple[View, dict[JobKey, bytes]] = (board.view, {})
        self._count = Counter(
            "muster_reports",
            "Reports by what became of them: accepted, or why they were refused.",
            ["result"],
            registry=registry,
        )

    async def post(self, request: Request) -> Response:
        """One report."""
        try:
            answer = await self._taken(request)
        except _Refusal as refusal:
            self._count.labels(refusal.result).inc()
            return refusal.response
        self._count.labels("accepted").inc()
        return Response(answer, media_type="application/json")

    async def _taken(self, request: Request) -> bytes:
        """The answer to a report that was handed on. Raises _Refusal. Steps as in the module's docstring."""
        body = await _read(request)
        if not self._board.view.leading:
            why = "this replica of Muster does not lead: try again on a new connection"
            raise _Refusal(421, "elsewhere", why)
        uid, key, job = await self._pod(request.headers.get("authorization", ""))
        if (wait := self._of_pod.wait(uid)) > 0.0:
            raise _flood(f"this pod reports more than {POD_RATE:g} times a second", wait, "flood-pod")
        if (wait := self._of_job.wait(key)) > 0.0:
            raise _flood(f"the pods of {key} report more than {JOB_RATE:g} times a second", wait, "flood-job")
        if (wait := self._of_all.wait(None)) > 0.0:
            raise _flood("all jobs together report more often than Muster takes in", wait, "flood")
        try:
            report = read_report(body, self._now())
        except Unfit as unfit:
            more = {"field": unfit.field, "expected": unfit.expected, "found": unfit.found}
            raise _Refusal(400, "malformed", str(unfit), more) from unfit
        self._sink([Reported(uid, report)])
        return self._answer(job)

    async def _pod(self, authorization: str) -> tuple[str, JobKey, Job]:
        """The pod that the token is bound to, and its job. Raises _Refusal."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized("expected the pod's token, Authorization: Bearer <token>, found none")
        uid = self._pods.kept(token) if len(token) <= LONGEST else ""
        if uid is None:
            uid = await self._vouched(token)
        if not uid:
            raise _unauthorized("the API server does not know this token")
        key, job = self._jobs.of(uid)
        return uid, key, job

    async def _vouched(self, token: str) -> str:
        """The pod's uid by the API server's word, asked only about what may be true. Raises _Refusal."""
        said, audiences = claimed(token)
        if not said:
            raise _unauthorized("expected a token that is bound to a pod (a projected volume), found another")
        if AUDIENCE not in (audiences or ()):
            found = ", ".join(audiences or ())[:200] or "none"
            raise _unauthorized(f"expected a token for the audience {AUDIENCE}, found one for {found}")
        self._jobs.of(said)  # who is in no job is told so
        if (wait := self._asked.wait(said)) > 0.0:
            raise _flood("too many unknown tokens for this pod", wait, "flood-pod")
        try:
            uid = await to_thread.run_sync(self._pods.ask, token, limiter=self._limiter)
        except FloodError as error:
            raise _flood(str(error), 1.0, "flood") from error
        except ClusterError as error:
            why = f"the token can't be checked now: {error}"
            raise _Refusal(503, "unavailable", why, headers={"Retry-After": "1"}) from error
        return uid if uid == said else ""

    def _answer(self, job: Job) -> bytes:
        """The same bytes for all who ask about a job between two Views."""
        view = self._board.view
        if self._answered[0] is not view:
            self._answered = (view, {})
        answers = self._answered[1]
        if job.key not in answers:
            answers[job.key] = json.dumps(
                {"accepted": True, "replicas": granted(view, job), "every": every(job)}
            ).encode()
        return answers[job.key]


def granted(view: View, job: Job) -> dict[str, int]:
    """Replicas that have a place now, by role."""
    reservations = view.plan.reservations.get(job.key, job.reservations)
    found = {}
    for role in job.roles:
        bound = {member.uid for member in role.members if member.phase is Phase.BOUND}
        found[role.name] = len(bound) + sum(
            1 for h in reservations if h.role == role.name and h.uid not in bound
        )
    return found


def every(job: Job) -> float:
    """Seconds until the next report of one pod of the job is of use: few while its speed is being measured, more
    where many pods report."""
    pods = sum(len(role.members) for role in job.roles)
    return max(report_filter.every(job.report), round(2.0 * pods / JOB_RATE, 1))


def report_route(desk: ReportEndpoint) -> Route:
    """The route for the service port: no framework's decoding between a thousand reports a second and us."""
    return Route("/v1/report", desk.post, methods=["POST"])


class _JobsByPod:
    """The job of a pod in the newest View. A pod keeps its job; what is not known is looked for among all."""

    def __init__(self, board: Board, clock: Clock) -> None:
        self._board, self._clock = board, clock
        self._keys: dict[str, JobKey] = {}
        self._read: View | None = None
        self._at = -math.inf

    def of(self, uid: str) -> tuple[JobKey, Job]:
        """Raises _Refusal where the pod is in no job."""
        jobs = self._board.view.snapshot.jobs
        job = jobs.get(self._keys[uid]) if uid in self._keys else None
        if job is None or not _has(job, uid):
            self._index()
            job = jobs.get(self._keys[uid]) if uid in self._keys else None
        if job is None:
            why = "this pod is in no job of Muster's (schedulerName), or its job is over"
            raise _Refusal(404, "unknown", why, headers={"Retry-After": str(UNKNOWN_AFTER)})
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


async def _read(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST:
            raise _Refusal(413, "too-large", f"body: expected at most {MOST} bytes, found more")
    return body


class _Refusal(Exception):  # noqa: N818  (an answer)
    """A report that was not taken in. result: the metric's label."""

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
        self.response = JSONResponse({"error": why, **(more or {})}, status, headers)


def _unauthorized(why: str) -> _Refusal:
    return _Refusal(401, "unauthorized", why, headers={"WWW-Authenticate": "Bearer"})


def _flood(why: str, wait: float, result: str) -> _Refusal:
    return _Refusal(429, result, why, headers={"Retry-After": str(max(1, math.ceil(wait)))})
