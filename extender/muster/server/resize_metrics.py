"""What /metrics tells of elastic jobs over time: resizes, what they cost and gained, and how far estimates were off.

Worked out from one View to the next, after each cycle, by what was *observed* (a job's facts and samples), not by
what was planned; the plan in force before tells the cause. Only the replica that leads counts, so that sums over
replicas count once; a job that is seen for the first time (after a restart) counts from then on.

Counts and histograms only: a label a job would make a series of every job that ever was; what one job did stands in
its Gang (`status.shares`, `resizes`, `resizeCost`). Labels are `direction` and `cause`, whose values are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from muster.core.progress.curves import by_count
from muster.core.progress.estimate import believed
from muster.core.views.view import View
from muster.types import Config, Facts, Job, JobKey, State

DIRECTIONS = ("start", "grow", "shrink", "stop", "move")
CAUSES = ("share", "move", "preempted", "timeout", "ended", "other")
"""share: a Share plugin's decision (of a profile without one: free capacity). move: a Rebalance plugin's. preempted:
the whole job made way. timeout: it was not whole in time, or gave its place back. ended: replicas have run to their
end. other: nobody planned it: a node or a replica failed, its owner or a person changed it."""

COST = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
RATIO = (0.25, 0.5, 0.67, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5, 2, 3, 4, 8)
"""Bounds that are alike in both directions from 1: between 0.95 and 1.05 an estimate is right."""


@dataclass(slots=True)
class _Known:
    """What was last seen of a job, and what was planned and expected since its last change."""

    facts: Facts
    samples: Mapping[Config, float]
    cause: str = "other"
    ended: int = 0  # replicas that have run to their end
    count: int = 0  # replicas of its elastic role, as the facts had them last
    before: int = 0  # and before that change
    expected: dict[tuple[int, int], float] = field(
        default_factory=dict
    )  # speed ratio, by replicas before and after


class Resizes:
    """Looks at each View once. aside: called with a job over which that raised."""

    def __init__(
        self,
        registry: CollectorRegistry,
        aside: Callable[[JobKey, Exception], None] = lambda key, error: None,  # noqa: ARG005
    ) -> None:
        self._aside = aside
        self._known: dict[JobKey, _Known] = {}
        self._resizes = Counter(
            "muster_resizes",
            "Changes of a job's number of running replicas, or of their nodes, by what caused them.",
            ["direction", "cause"],
            registry=registry,
        )
        for direction in DIRECTIONS:
            for cause in CAUSES:
                self._resizes.labels(direction, cause)
        self._cost = Histogram(
            "muster_resize_cost_seconds",
            "What a change cost a job, as measured: until it was as fast as it is at its new size.",
            buckets=COST,
            registry=registry,
        )
        self._gain = Histogram(
            "muster_resize_gain_ratio",
            "Measured speed after a change of size over that before it, when the new size was first measured.",
            ["direction"],
            buckets=RATIO,
            registry=registry,
        )
        for direction in ("grow", "shrink"):
            self._gain.labels(direction)
        self._error = Histogram(
            "muster_speed_estimate_ratio",
            "Measured over estimated gain in speed of a change of size: 1 = the estimate was right.",
            buckets=RATIO,
            registry=registry,
        )

    def look(self, view: View) -> None:
        """Count what changed since the View before. Touches only jobs that changed, or whose share does."""
        jobs = view.snapshot.jobs
        for key in self._known.keys() - jobs.keys():
            del self._known[key]
        causes = _causes(view)
        for key, job in jobs.items():
            try:
                self._look(view, job, causes.get(key, ""))
            except Exception as error:
                self._aside(key, error)
                self._known[key] = _Known(job.facts, job.samples)  # what changes from here on counts

    def _look(self, view: View, job: Job, cause: str) -> None:
        """cause: of a change that begins now, "" for none."""
        key = job.key
        known = self._known.get(key)
        if known is None:
            known = _Known(job.facts, job.samples, ended=_ended(job), count=_count(job.facts))
            self._known[key] = known
        if job.facts is not known.facts:
            if _ended(job) > known.ended or _finished(view, key):
                known.cause, known.ended = "ended", _ended(job)
            self._changed(known, job.facts, view.leading)
        if job.samples is not known.samples:
            self._measured(known, job, view.leading)
        known.cause = cause or known.cause
        share = view.plan.shares.get(key, known.count)
        step = (known.count, share)
        if (
            share != known.count
            and all(step)
            and step not in known.expected
            and share not in _speeds(job, job.samples)
        ):
            known.expected[step] = _expected(view, job, *step)

    def _changed(self, known: _Known, facts: Facts, counts: bool) -> None:
        for _, now in _fresh(known.facts.shares, facts.shares):
            if now == known.count:
                continue
            if counts:
                self._resizes.labels(_direction(known.count, now), known.cause).inc()
            known.before, known.count, known.cause = known.count, now, "other"
        if counts and facts.moves > known.facts.moves:
            self._resizes.labels("move", known.cause).inc(facts.moves - known.facts.moves)
            known.cause = "other"
        if counts:
            for seconds in _fresh(known.facts.costs, facts.costs):
                self._cost.observe(seconds)
        known.facts = facts

    def _measured(self, known: _Known, job: Job, counts: bool) -> None:
        """Samples of a size that had none: what the change to it gained, and what had been expected of it."""
        before, after = _speeds(job, known.samples), _speeds(job, job.samples)
        was, now = known.before, known.count
        if counts and now in after and now not in before and after.get(was, 0.0) > 0.0:
            ratio = after[now] / after[was]
            self._gain.labels(_direction(was, now)).observe(ratio)
            expected = known.expected.pop((was, now), 0.0)
            if expected > 0.0:
                self._error.observe(ratio / expected)
        known.samples = job.samples


def _causes(view: View) -> dict[JobKey, str]:
    """Why jobs are about to change, by the plan."""
    plan, jobs = view.plan, view.snapshot.jobs
    causes = {
        key: "share"
        for key, reservations in plan.reservations.items()
        if reservations and jobs[key].bound < jobs[key].max
    }
    for shrink in plan.shrinks:
        role = jobs[shrink.job].elastic
        share = plan.shares.get(shrink.job)
        moves = role is not None and share == len(role.on)  # as many as before, elsewhere
        causes[shrink.job] = "move" if moves else "share"
    causes |= dict.fromkeys(plan.back, "timeout")
    causes |= {key: "share" if plan.shares.get(key) == 0 else "preempted" for key in plan.preempted}
    return {key: cause for key, cause in causes.items() if key in jobs}


def _expected(view: View, job: Job, before: int, after: int) -> float:
    """The speed with `after` replicas over that with `before`, as the profile's Estimate has it; 0 = it can't say."""
    speeds = believed(view.snapshot, view.profile, [])(job).speeds
    if not speeds:
        return after / before
    last = len(speeds) - 1
    below = speeds[min(before, last)]
    return speeds[min(after, last)] / below if below > 0.0 else 0.0


def _speeds(job: Job, samples: Mapping[Config, float]) -> dict[int, float]:
    """Measured speed by replicas of the elastic role, the best where there are several."""
    return by_count(samples, job.elastic.name) if job.elastic is not None else {}


def _finished(view: View, key: JobKey) -> bool:
    status = view.plan.statuses.get(key)
    return status is not None and status.state is State.FINISHED


def _ended(job: Job) -> int:
    return sum(role.ended for role in job.roles)


def _count(facts: Facts) -> int:
    return facts.shares[-1][1] if facts.shares else 0


def _direction(before: int, now: int) -> str:
    if not before:
        return "start"
    if not now:
        return "stop"
    return "grow" if now > before else "shrink"


def _fresh(before: tuple[Any, ...], now: tuple[Any, ...]) -> tuple[Any, ...]:
    """What `now` has behind `before`, of tuples that grow at the end and lose at the front."""
    for new in range(len(now)):
        if before[-(len(now) - new) :] == now[: len(now) - new]:
            return now[len(now) - new :]
    return now
