"""Training processes that only count: how far each elastic job is, by the replicas that run and a measured curve.

Pure: no clock, no client; all times are seconds of this machine's clock since the run began. A job makes progress at
its curve's speed while its least is bound. When its replicas change it stands still for `pause` seconds (checkpoint,
rendezvous, restart), as `muster simulate --restart` has it; the first start costs nothing there, so neither here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

TOGETHER = 0.7
"""Seconds between two that leave, less than which they were told at once."""
STARTS = 1.0
"""Seconds after a first replica in which others still belong to the start: they are bound one after another."""


@dataclass(frozen=True)
class Trained:
    """One job of the workload. at, work: s (of one replica); speeds: relative, item k for k replicas (0: 0.0)."""

    name: str
    at: float
    request: int
    least: int
    most: int
    work: float
    speeds: tuple[float, ...]
    model: str = ""


@dataclass(frozen=True)
class Seen:
    """A pod as the watch showed it. over: it is ending, has ended or is gone; gone: that."""

    job: str
    pod: str
    node: str
    over: bool
    gone: bool = False


Moment = tuple[float, str, str, str]
"""s, what, job and node; what: submitted, bound, over, gone, done."""


class Left(NamedTuple):
    """A place that nobody uses. free: when its pod was seen to leave (s); given_up: that, or when its job ended."""

    free: float
    given_up: float


NEVER_USED = Left(0.0, -1.0)


@dataclass
class Training:
    """One job, so far."""

    job: Trained
    submitted: float
    on: dict[str, str] = field(default_factory=dict)  # pod -> node
    done: float = 0.0
    since: float = 0.0
    paused_until: float = 0.0
    replicas: int = 0
    changes: int = 0
    took: float = float("-inf")  # when its present start or growth took its first place
    waited_for: float = -1.0  # when the last place of that was given up; below 0: none of them was
    started: float | None = None
    ended: float | None = None

    def advance(self, now: float) -> None:
        """Count progress until now."""
        begin = max(self.since, min(now, self.paused_until))
        self.done += self.speed * max(0.0, now - begin)
        self.since = now

    @property
    def speed(self) -> float:
        """Work a second with the replicas that run; 0 below the least."""
        return 0.0 if self.replicas < self.job.least else self.job.speeds[min(self.replicas, self.job.most)]

    def end(self, now: float) -> float:
        """When it will be done if nothing changes."""
        left = self.job.work - self.done
        return max(now, self.paused_until) + left / self.speed if self.speed else float("inf")


class Trainings:
    """All jobs of a run. pause: see above. delays: s from a place set free (or a pod made) to the next bind there.
    releases: of each start or growth on places that others gave up since its job came, s from when the last of these
    was given up until it was taken; places: the same of each of them, not of the last one alone: what
    `muster simulate --release` stands for, which draws each replica's own and waits for a round besides, so what of
    both was a wait for one is left out. round: s of this machine, 0 = none; began: when the run did, Unix time
    (rounds begin at its whole multiples). course: in the order seen."""

    def __init__(self, pause: float, round: float = 0.0) -> None:
        self.pause, self.round, self.began = pause, round, 0.0
        self.jobs: dict[str, Training] = {}
        self.delays: list[float] = []
        self.releases: list[float] = []
        self.places: list[float] = []
        self.course: list[Moment] = []
        self._made: dict[str, float] = {}
        self._left: dict[str, list[Left]] = {}  # by node: GPUs that were not used again

    def submitted(self, job: Trained, now: float) -> None:
        self.jobs[job.name] = Training(job, now, since=now)
        self._note(now, "submitted", job.name)

    def saw(self, seen: Seen, now: float) -> None:
        """A pod was bound, ended or went."""
        if seen.gone and seen.node:
            self._note(now, "gone", seen.job, seen.node)
        training = self.jobs.get(seen.job)
        if training is None:
            return
        if training.ended is not None:
            node = training.on.pop(seen.pod, "") if seen.over else ""
            if node:
                self._left.setdefault(node, []).append(Left(now, training.ended))
                self._note(now, "over", seen.job, node)
            return
        self._made.setdefault(seen.pod, now)
        running = bool(seen.node) and not seen.over
        if running == (seen.pod in training.on):
            return
        training.advance(now)
        if running:
            training.on[seen.pod] = seen.node
            left = self._place(seen.node)
            waited = now - max(self._made[seen.pod], left.free)
            self.delays.append(max(0.0, waited))
            self._taken(training, left, now)
        else:
            del training.on[seen.pod]
            self._left.setdefault(seen.node, []).append(Left(now, now))
        self._note(now, "bound" if running else "over", seen.job, seen.node)
        self._count(training, now)

    def due(self, now: float) -> Sequence[str]:
        """Jobs that are done by now, each once."""
        found = []
        for name, training in self.jobs.items():
            if training.ended is None and training.end(training.since) <= now:
                training.advance(now)
                training.ended = now
                self._note(now, "done", name)
                found.append(name)
        return found

    @property
    def left(self) -> int:
        """Jobs that are not done."""
        return sum(1 for training in self.jobs.values() if training.ended is None)

    def jct(self) -> float:
        """Mean seconds from submission to end, of the jobs that ended."""
        return statistics.fmean(t.ended - t.submitted for t in self.jobs.values() if t.ended is not None)

    def wait(self) -> float:
        """Mean seconds from submission until the least was bound, of the jobs that started."""
        return statistics.fmean(t.started - t.submitted for t in self.jobs.values() if t.started is not None)

    def delay(self) -> float:
        """Mean seconds until a free place was used."""
        return statistics.fmean(self.delays) if self.delays else 0.0

    def usual_delay(self) -> float:
        """Median of the same: a place that the policy gives nobody for long (a reservation) hardly counts in it."""
        return _median(self.delays)

    def release(self) -> float:
        """Median of `releases`, s; 0 where nobody waited for others to leave."""
        return _median(self.releases)

    def place(self) -> float:
        """Median of `places`, s."""
        return _median(self.places)

    def _taken(self, training: Training, left: Left, now: float) -> None:
        """A place is taken: of those of one start or growth the one that was given up last counts."""
        given_up = left.given_up
        if now > training.took + STARTS:
            training.took, training.waited_for = now, -1.0
        if given_up < training.submitted:
            return
        took = now - given_up - self._for_a_round(left, now)
        self.places.append(took)
        if given_up <= training.waited_for:
            return
        if training.waited_for >= 0.0:
            self.releases.pop()
        training.waited_for = given_up
        self.releases.append(took)

    def _for_a_round(self, left: Left, now: float) -> float:
        """Seconds from when a place came free to the round that it was taken in; 0 where it was taken before one."""
        if not self.round:
            return 0.0
        free = self.began + left.free
        waited = math.ceil(free / self.round) * self.round - free
        return waited if waited < now - left.free else 0.0

    def _note(self, now: float, what: str, job: str, node: str = "") -> None:
        self.course.append((round(now, 3), what, job, node))

    def _count(self, training: Training, now: float) -> None:
        """The number of replicas follows the pods; each change of a job that ran costs a pause."""
        before, training.replicas = training.replicas, len(training.on)
        if training.started is None:
            if training.replicas >= training.job.least:
                training.started = now
            return
        if training.replicas != before and now > training.started + STARTS:
            training.changes += now >= training.paused_until
            training.paused_until = now + self.pause

    def _place(self, node: str) -> Left:
        """How the place that is taken now came free."""
        freed = self._left.get(node)
        return freed.pop() if freed else NEVER_USED


def leave(course: Sequence[Moment]) -> tuple[float, float]:
    """How replicas that leave together do so in this course, medians in s: from the first to the last of those that
    were told at once, and from the first of a job that is done to its others. 0 where no two did."""
    done: dict[str, list[float]] = {}
    told: list[list[float]] = []
    for at, what, job, _ in course:
        if what == "done":
            done[job] = []
        elif what == "over" and job in done:
            done[job].append(at)
        elif what == "gone" and job not in done:
            if told and at - told[-1][-1] < TOGETHER:
                told[-1].append(at)
            else:
                told.append([at])
    apart = [each[-1] - each[0] for each in told if len(each) > 1]
    later = [max(each) - min(each) for each in done.values() if len(each) > 1]
    return _median(apart), _median(later)


def away(course: Sequence[Moment]) -> float:
    """Median s from when a job that was not done had left its last place until it had one on another node; 0 where
    none did."""
    on: dict[str, int] = {}
    left: dict[str, tuple[float, str]] = {}
    found = []
    for at, what, job, node in course:
        if what == "done":
            on.pop(job, None)
            left.pop(job, None)
        elif what == "bound":
            since, before = left.pop(job, (at, node))
            found += [at - since] if before != node else []
            on[job] = on.get(job, 0) + 1
        elif what == "over" and job in on:
            on[job] -= 1
            if not on[job]:
                left[job] = (at, node)
    return _median(found)


def _median(found: Sequence[float]) -> float:
    """0 where there is nothing."""
    return statistics.median(found) if found else 0.0
