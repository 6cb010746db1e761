"""One run as a state machine: what is seen goes in, what the driver shall do comes out. No clock, no client;
all times are seconds of the trace's clock since the run began.

A job's training makes progress only while all its workers run. So its clock starts when its last pod is bound,
and after its duration it is done (`Finish`). A gang whose workers have waited for the missing ones for `patience`
seconds gives up, gives back what it holds and is submitted again (`Resubmit`): what a launcher does whose
rendezvous times out (torchrun's join_timeout is 600 s). The rule is the same whoever schedules.

An elastic job runs from its least on, at the speed of the workers that it has. Each change of their number costs it
PAUSE (checkpoint, rendezvous), and nothing of what it has done.

    waiting --some bound--> partly --all bound--> running --duration--> done
       ^                      |
       +------ gave up -------+
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from e2e.demo.workload import Submission

HOUR = 3600.0
MINUTE = 60.0
PAUSE = 30.0
"""Seconds that an elastic job stands still when its workers change, as in `e2e.bench elastic`."""
STARTING = 90.0
"""Seconds after the first bind in which more workers are its start and no change: they are bound one by one."""


@dataclass(frozen=True)
class Sighting:
    """A pod as the watch showed it. `refused`: a scheduler has said that it fits nowhere."""

    job: str
    attempt: int
    pod: str
    bound: bool
    refused: bool = False
    over: bool = False  # ended, or told to end


@dataclass(frozen=True)
class Finish:
    job: str
    attempt: int


@dataclass(frozen=True)
class Resubmit:
    """End this attempt and submit the next."""

    job: str
    attempt: int


Instruction = Finish | Resubmit


@dataclass(frozen=True)
class Stay:
    """A time in which a gang had some of its pods on nodes and not all."""

    job: str
    began: float
    ended: float
    refused: bool  # a member that was missing had been refused by the scheduler
    gave_up: bool

    @property
    def sat(self) -> bool:
        """Whether this is a gang that could not run, and no start that was just under way."""
        return self.refused and self.ended - self.began > MINUTE


@dataclass(frozen=True)
class Moment:
    """What holds from `at` on: GPUs of jobs that run, GPUs held by gangs that are partly bound, and jobs."""

    at: float
    running_gpus: int = 0
    held_gpus: int = 0
    waiting: int = 0
    partly: int = 0
    running: int = 0
    done: int = 0


@dataclass
class Progress:
    """A job of the run, so far."""

    submission: Submission
    submitted: float
    attempt: int = 1
    bound: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    partly_since: float | None = None
    started: float | None = None
    ended: float | None = None
    interrupted: int = 0
    resized: int = 0
    done: float = 0.0  # seconds of its duration, until `since`
    since: float = 0.0
    paused_until: float = 0.0

    @property
    def runs(self) -> bool:
        return self.ended is None and len(self.bound) >= self.submission.least

    @property
    def state(self) -> str:
        if self.ended is not None:
            return "done"
        if self.runs:
            return "running"
        return "partly" if self.bound else "waiting"

    def advance(self, now: float) -> None:
        """Count what it has done until now."""
        begin = max(self.since, min(now, self.paused_until))
        self.done += self.submission.rate(len(self.bound)) * (now - begin)
        self.since = now

    @property
    def end(self) -> float:
        """When it is done if nothing changes."""
        rate = self.submission.rate(len(self.bound))
        left = self.submission.duration - self.done
        return max(self.since, self.paused_until) + left / rate if rate else math.inf


class Course:
    """A run. `patience`: see above; 0: no gang ever gives up."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.jobs: dict[str, Progress] = {}
        self.stays: list[Stay] = []
        self.moments: list[Moment] = [Moment(0.0)]

    def submitted(self, job: Submission, now: float) -> None:
        self.jobs[job.name] = Progress(job, now, since=now)
        self._note(now)

    def saw(self, sighting: Sighting, now: float) -> None:
        """A pod of an earlier attempt, or of a job that is done, changes nothing."""
        job = self.jobs.get(sighting.job)
        if job is None or sighting.attempt != job.attempt or job.ended is not None:
            return
        if sighting.refused:
            job.refused.add(sighting.pod)
        before, ran = len(job.bound), job.runs
        job.advance(now)
        if sighting.bound and not sighting.over:
            job.bound.add(sighting.pod)
        else:
            job.bound.discard(sighting.pod)
        self._place(job, before, ran, now)
        self._note(now)

    def due(self, now: float) -> list[Instruction]:
        """What is to be done now, in the order of submission; each instruction is given once."""
        found: list[Instruction] = []
        for name, job in self.jobs.items():
            if job.ended is not None:
                continue
            if job.end <= now:
                job.advance(now)
                job.ended = now
                found.append(Finish(name, job.attempt))
            elif self.patience and job.partly_since is not None and now - job.partly_since >= self.patience:
                found.append(Resubmit(name, job.attempt))
                self._leave(job, now, gave_up=True)
                job.attempt += 1
                job.bound, job.refused = set(), set()
        if found:
            self._note(now)
        return found

    def close(self, now: float) -> None:
        """The run is over: stays that last end here."""
        for job in self.jobs.values():
            self._leave(job, now, gave_up=False)
        self._note(now)

    @property
    def now(self) -> Moment:
        """The last moment."""
        return self.moments[-1]

    def _place(self, job: Progress, before: int, ran: bool, now: float) -> None:
        """`before`: workers that it had."""
        elastic = bool(job.submission.speeds)
        if job.runs and job.started is None:
            self._leave(job, now, gave_up=False)
            job.started = now
        elif elastic and job.started is not None and len(job.bound) != before:
            if now > job.started + STARTING:
                job.resized += now >= job.paused_until
                job.paused_until = now + PAUSE
        elif ran and not job.runs:  # it lost a worker: what it did is lost with it
            job.started, job.done = None, 0.0
            job.interrupted += 1
        if not job.runs and job.bound and job.partly_since is None:
            job.partly_since = now
        elif not job.bound:
            self._leave(job, now, gave_up=False)

    def _leave(self, job: Progress, now: float, gave_up: bool) -> None:
        if job.partly_since is not None:
            missing_refused = bool(job.refused)
            self.stays.append(Stay(job.submission.name, job.partly_since, now, missing_refused, gave_up))
            job.partly_since = None

    def _note(self, now: float) -> None:
        jobs = self.jobs.values()
        moment = Moment(
            at=now,
            running_gpus=_gpus(job for job in jobs if job.state == "running"),
            held_gpus=_gpus(job for job in jobs if job.state == "partly"),
            **{state: sum(job.state == state for job in jobs) for state in _STATES},
        )
        if moment.at == self.moments[-1].at:
            self.moments[-1] = moment
        else:
            self.moments.append(moment)


_STATES = ("waiting", "partly", "running", "done")


def _gpus(jobs: Iterable[Progress]) -> int:
    return sum(len(job.bound) * job.submission.pod_gpus for job in jobs)
