"""POST /v1/report: what training tells of its progress, from the pod that trains.

The body is JSON with any of FIELDS. The bearer token is the pod's own, for the audience `muster.dev` and bound to
that pod (server/access.py): it says for which job the report is, so that nobody reports for another's. Every request
is checked in this order, cheapest first:

    413 a body above MOST bytes         421 this replica does not lead: another connection may reach the one that does
    401 no token, one for another audience, or nobody's         404 a pod of no job of Muster's
    429 more of this pod, of its job, or of all than may come (Retry-After)
    400 a field that is not known, or a value that can't be: the field, what is expected, what was found

Accepted: {"accepted": true, "replicas": {"worker": 3}, "every": 10}: replicas granted now, and the seconds until the
next report is of use; with "batch": 256, the global batch size to train with, where the job declares sizes and has
one. What is believed of a report is decided elsewhere (core/progress/report_filter.py); times are the server's.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.core.progress import batch, report_filter
from muster.core.views.view import Board, View
from muster.errors import UsageError
from muster.server.pod_callers import Callers, Clock, Pods, Rates, Refusal, flood, read_body
from muster.types import Event, Job, JobKey, Phase, Report, Reported

MOST = 4096
"""Bytes of a body: all fields with long numbers are 300."""
POD_RATE, POD_BURST = 1.0, 5.0
"""Reports of a pod: a second, and at once."""
JOB_RATE, JOB_BURST = 10.0, 50.0
"""Reports of a job, whose pods may all report: what it is told keeps them at half of that."""
ALL_RATE = 2000.0
"""Reports a second of all together, with a burst of the same number."""
AHEAD = 60.0
"""Seconds that a reporter's clock may be ahead of ours."""
FAR = 1e15
"""No step, sample or value is beyond it."""

Sink = Callable[[list[Event]], None]


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
    above: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a finite number"
        return (
            f"{kind} above {self.least:g}, at most {self.most:g}"
            if self.above
            else f"{kind} from {self.least:g} to {self.most:g}"
        )


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
    "batch": _Number(1.0, batch.MOST, whole=True),
    "noise": _Number(0.0, FAR, above=True),
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
    values |= {name: int(values[name]) for name in ("epoch", "workers", "batch") if name in values}
    return Report(at=now, **values)


def _checked(name: str, value: Any) -> Any:
    number = FIELDS[name]
    if number is None:
        if not isinstance(value, bool):
            raise Unfit(name, "true or false", _shown(value))
        return value
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    # Python's whole numbers have no end: compared before one becomes a float.
    if not fits or not number.least <= value <= number.most or (number.above and value == number.least):
        raise Unfit(name, str(number), _shown(value))
    if number.whole and value != int(value):
        raise Unfit(name, str(number), _shown(value))
    return float(value)


def _shown(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = repr(text) if isinstance(value, str) else text
    return text if len(text) <= 80 else f"{text[:77]}..."


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
        self._board, self._sink, self._now = board, sink, now
        self._of_pod = Rates(POD_RATE, POD_BURST, clock)
        self._of_job = Rates(JOB_RATE, JOB_BURST, clock)
        self._of_all = Rates(ALL_RATE, ALL_RATE, clock)
        self._callers = Callers(board, pods, clock)
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
        except Refusal as refusal:
            self._count.labels(refusal.result).inc()
            return refusal.response
        self._count.labels("accepted").inc()
        return Response(answer, media_type="application/json")

    async def _taken(self, request: Request) -> bytes:
        """The answer to a report that was handed on. Raises Refusal. Steps as in the module's docstring."""
        body = await read_body(request, MOST)
        if not self._board.view.leading:
            why = "this replica of Muster does not lead: try again on a new connection"
            raise Refusal(421, "elsewhere", why)
        uid, key, job = await self._callers.pod(request.headers.get("authorization", ""))
        if (wait := self._of_pod.wait(uid)) > 0.0:
            raise flood(f"this pod reports more than {POD_RATE:g} times a second", wait, "flood-pod")
        if (wait := self._of_job.wait(key)) > 0.0:
            raise flood(f"the pods of {key} report more than {JOB_RATE:g} times a second", wait, "flood-job")
        if (wait := self._of_all.wait(None)) > 0.0:
            raise flood("all jobs together report more often than Muster takes in", wait, "flood")
        try:
            report = read_report(body, self._now())
        except Unfit as unfit:
            more = {"field": unfit.field, "expected": unfit.expected, "found": unfit.found}
            raise Refusal(400, "malformed", str(unfit), more) from unfit
        self._sink([Reported(uid, report)])
        return self._answer(job)

    def _answer(self, job: Job) -> bytes:
        """The same bytes for all who ask about a job between two Views."""
        view = self._board.view
        if self._answered[0] is not view:
            self._answered = (view, {})
        answers = self._answered[1]
        if job.key not in answers:
            answer = {"accepted": True, "replicas": granted(view, job), "every": every(job)}
            if size := batch.told(job, view.plan.grants.get(job.key, job.grant)):
                answer["batch"] = size
            answers[job.key] = json.dumps(answer).encode()
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
