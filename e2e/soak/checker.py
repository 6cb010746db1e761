# Over 300 lines: its rules judge one state of the pods, kept in one place.
"""What a policy owes those who share: pods as the API shows them go in, sentences on what must not be come out.

The referee (`e2e/referee`) says of the same run what must never be, whatever the policy: a GPU used twice, a job
above its maximum or below its minimum.

Pure: no clock, no client; all times are seconds since the run began. Every pod asks for one GPU, so a GPU that is
free on any node is free for any pod.

What must hold:
- no GPU stays idle for longer than `idle` s while a job wants it and may have it: one that waits and whose
  least fits, or one that runs, has less than its most and has paid for its last change;
- a job neither grows nor shrinks before it has paid for its last change or its last start but the first.

A GPU on a node where another is just being vacated does not count as idle: a start may need both.

Paid: `cost` / `overhead` s after it (the rule of resize-cost), with the cost that its Gang says was measured. A
change is seen later than it was decided, on a busy machine by seconds: it counts from the last moment between the
change before and when it was seen at which its Gang says that something was decided, where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

QUIET = 1.5
"""Seconds without a change of a job's pods after which its number counts as settled."""
EARLY = 2.5
"""Seconds by which a change may seem early: creation and bind times are seen late, by whole seconds of a busy
API."""
STARTING = 3.0
"""Seconds after a start in which more of it are bound, counted from when its owner has made all of its pods."""
UNDER_WAY = 30.0
"""Seconds without a change of a job's pods for which its Gang is believed that there is more to come."""
FAIR = 20.0
"""Seconds in which a job should start; whose owner ends it before may never have had its turn."""


class Stand(Enum):
    """Where a pod stands."""

    GATED = "gated"
    ON_ITS_WAY = "on its way"  # gate off, not bound
    BOUND = "bound"
    LEAVING = "leaving"  # bound and asked to end: it still uses its GPU
    OVER = "over"  # terminal or gone


@dataclass(frozen=True)
class Sighting:
    """One pod as the watch showed it."""

    uid: str
    name: str
    job: str
    node: str
    stand: Stand
    succeeded: bool = False


@dataclass(frozen=True)
class Rules:
    """gpus: by node. idle: s.
    cost: s of a change where none was measured; overhead: as in resize-cost."""

    gpus: Mapping[str, int]
    idle: float = 10.0
    cost: float = 2.0
    overhead: float = 0.2

    @property
    def total(self) -> int:
        return sum(self.gpus.values())


@dataclass
class _Job:
    name: str
    least: int
    most: int
    over: bool = False
    ran: bool = False
    started: float | None = None
    complete: float | None = None  # when all of its pods had been made
    settled: int = 0
    touched: float = 0.0  # when its pods last changed
    first: float = 0.0  # when the present change began
    changed: float = -math.inf  # when its number last changed, or it started again
    before: float = -math.inf  # the time before that
    decided: set[float] = field(default_factory=set)  # changes and starts, as its Gang told
    state: str = ""  # of its Gang
    granted: int | None = None  # replicas, as its Gang told
    cost: float = 0.0  # measured, 0 = none
    cost_then: float = 0.0  # as it was known when it last changed
    lowest: float = math.inf  # of the costs that were told since then
    short: bool = False  # fewer than its least since it started
    may_since: float | None = None
    pods: dict[str, Sighting] = field(default_factory=dict)

    def count(self, *stands: Stand) -> int:
        return sum(pod.stand in stands for pod in self.pods.values())


@dataclass
class Tally:
    """What came of it."""

    arrivals: int = 0
    ends: int = 0
    starts: int = 0
    growths: int = 0
    shrinks: int = 0
    stops: int = 0
    brief: int = 0  # jobs that their owner ended before they had started, within FAIR s
    longest_idle: float = 0.0  # s of a GPU that a job might have had
    waits: list[float] = field(default_factory=list)  # s from submission to start


class Checker:
    """State of the run; `faults` are sentences with the second at which they were found."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.faults: list[str] = []
        self.tally = Tally()
        self._jobs: dict[str, _Job] = {}
        self._job_of: dict[str, str] = {}
        self._used: dict[str, set[str]] = {node: set() for node in rules.gpus}
        self._submitted: dict[str, float] = {}

    # ---- what happens ----

    def submitted(self, name: str, least: int, most: int, at: float) -> None:
        """A job is on its way to the API."""
        self._jobs[name] = _Job(name, least, most)
        self._submitted[name] = at
        self.tally.arrivals += 1

    def ends(self, name: str, at: float = math.inf) -> None:
        """Its owner is about to delete it."""
        job = self._jobs[name]
        if not job.over:
            job.over = True
            self.tally.ends += 1
            self.tally.brief += not job.ran and at - self._submitted[name] < FAIR

    def costs(self, name: str, cost: float) -> None:
        """Its Gang says what a change costs it (s, 0 = not measured)."""
        job = self._jobs.get(name)
        if job is not None:
            job.cost = cost
            job.lowest = min(job.lowest, cost or math.inf)

    def tells(self, name: str, state: str, decided: Iterable[float], granted: int | None = None) -> None:
        """Its Gang's state, when Muster says that it was last changed or started, and how many replicas it is to
        have."""
        job = self._jobs.get(name)
        if job is not None:
            job.state, job.granted = state, granted
            job.decided.update(decided)

    def pod(self, pod: Sighting, at: float) -> None:
        """A pod was seen; in the order of the watch, which is the API's."""
        self._charge(pod)
        job = self._jobs.get(pod.job)
        if job is None:
            return
        before = job.pods.get(pod.uid)
        if pod.stand is Stand.OVER:
            job.pods.pop(pod.uid, None)
        else:
            job.pods[pod.uid] = pod
            if job.complete is None and len(job.pods) >= job.most:
                job.complete = at
        if pod.succeeded and not job.over:
            self.ends(job.name)  # its leader has ended well: the rest of it ends, too
        if (before.stand if before else Stand.OVER) is pod.stand:
            return
        live = job.count(Stand.BOUND)
        if Stand.BOUND in (pod.stand, before.stand if before else None):
            if at - job.touched > QUIET:
                job.first = at
            job.touched = at
            self._started(job, live, at)
        self._short(job, live)

    def tick(self, at: float) -> None:
        """Time passes: what must not last is looked at."""
        for job in self._jobs.values():
            self._settle(job, at)
        self._idle(at)

    # ---- readers ----

    @property
    def used(self) -> int:
        """GPUs in use."""
        return sum(len(pods) for pods in self._used.values())

    @property
    def running(self) -> int:
        """Jobs that have started and are not over."""
        return sum(1 for job in self._jobs.values() if not job.over and job.count(Stand.BOUND))

    @property
    def waiting(self) -> int:
        """Jobs that have not."""
        return sum(1 for job in self._jobs.values() if not job.over and not job.count(Stand.BOUND))

    @property
    def wanted(self) -> int:
        """GPUs that all jobs together could use."""
        return sum(job.most for job in self._jobs.values() if not job.over)

    def going_on(self) -> list[str]:
        """Jobs that are not over."""
        return [job.name for job in self._jobs.values() if not job.over]

    # ---- the rules ----

    def _fault(self, at: float, sentence: str) -> None:
        self.faults.append(f"{at:.1f} s: {sentence}")

    def _charge(self, pod: Sighting) -> None:
        """A pod uses its GPU from its bind until it is terminal or gone."""
        for pods in self._used.values():
            pods.discard(pod.uid)
        if pod.node and pod.stand is not Stand.OVER:
            self._used.setdefault(pod.node, set()).add(pod.uid)

    def _started(self, job: _Job, live: int, at: float) -> None:
        if job.started is None and live >= job.least:
            again, job.started = job.ran, at
            job.ran = True
            if again:
                job.before, job.changed, job.cost_then = job.changed, at, job.cost
            self.tally.starts += 1
            self.tally.waits.append(at - self._submitted[job.name])

    def _short(self, job: _Job, live: int) -> None:
        """Fewer than its least, once it has started: only on its way out."""
        if job.over or job.started is None or live >= job.least:
            job.short = False
        elif not live:
            if job.short or job.settled:
                self.tally.stops += 1
            job.short, job.started, job.settled = False, None, 0
        else:
            job.short = True

    def _settle(self, job: _Job, at: float) -> None:
        """Its number of pods after a change: may it have changed so soon?"""
        live = job.count(Stand.BOUND)
        if job.over or job.started is None or at - job.touched < QUIET or live == job.settled:
            return
        if job.count(Stand.ON_ITS_WAY) or job.count(Stand.LEAVING):
            return  # it is not done yet
        told = job.state in ("", "Running") and job.granted in (None, live)
        if not told and at - job.touched < UNDER_WAY:
            return  # nor says its Gang that it is: on a busy machine an eviction alone takes seconds
        if not job.settled and (job.complete is None or at < max(job.started, job.complete) + STARTING):
            return
        before, job.settled = job.settled, live
        if not before:
            return  # its start
        known = min(job.cost_then or math.inf, job.lowest)  # the Gang tells it a little late
        since = max((d for d in job.decided if job.before < d <= job.changed), default=job.changed)
        paid = since + (known if known < math.inf else self.rules.cost) / self.rules.overhead
        if live > before:
            self.tally.growths += 1
        else:
            self.tally.shrinks += 1
        if paid - job.first > EARLY:
            what = "grew" if live > before else "shrank"
            self._fault(
                at,
                f"{job.name} {what} from {before} to {live} at {job.first:.1f} s, "
                f"{paid - job.first:.1f} s before its last change was paid for",
            )
        job.before, job.changed = job.changed, job.touched
        job.cost_then, job.lowest = job.cost, math.inf

    def _idle(self, at: float) -> None:
        """No GPU idles for long while a job wants it and may have it."""
        vacated = {
            pod.node for job in self._jobs.values() for pod in job.pods.values() if pod.stand is Stand.LEAVING
        }
        free = sum(
            has - len(self._used[node]) for node, has in self.rules.gpus.items() if node not in vacated
        )
        free -= sum(job.count(Stand.ON_ITS_WAY) for job in self._jobs.values())
        for job in self._jobs.values():
            if not self._may_have(job, free, at):
                job.may_since = None
                continue
            if job.may_since is None:
                job.may_since = at
            lasted = at - job.may_since
            self.tally.longest_idle = max(self.tally.longest_idle, lasted)
            if lasted > self.rules.idle:
                live = job.count(Stand.BOUND)
                self._fault(
                    at,
                    f"{free} GPUs idle for {lasted:.1f} s while {job.name} has {live} of {job.least} to {job.most}",
                )
                job.may_since = at

    def _may_have(self, job: _Job, free: int, at: float) -> bool:
        if job.over or free <= 0:
            return False
        live, ready = job.count(Stand.BOUND), job.count(Stand.GATED)
        if job.count(Stand.ON_ITS_WAY) or job.count(Stand.LEAVING):
            return False  # something happens to it
        if not live:
            return ready >= job.least and free >= job.least
        changed = job.touched if job.settled not in (0, live) else job.changed
        paid = changed + max(job.cost_then, job.cost, self.rules.cost) / self.rules.overhead
        return live < job.most and ready > 0 and at > max(paid, job.touched + QUIET)
