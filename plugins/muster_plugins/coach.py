"""`coach`: Coach's choice of workers and parameter servers, epoch by epoch, for jobs that report `steps_per_epoch`.

A speed surface is fitted to the epochs of each job; one that reports no `steps_per_epoch` has no epochs, and stays as
it is.

Source: papers/gang-scheduler-coach, sections 4.1 (mini-epochs, budget, timeout, three epochs at the target) and 4.2
(marginal utility). Placement and order are the gang scheduler's (`gang`, 4.5), which the profile names beside it.

For each job by itself, at the end of each of its epochs:

1. Four mini-epochs with set counts ("statically set number of workers and servers", which the paper does not
   name): `design`, by default (1, 1), (2, 1), (1, 2), (2, 2), all that its static experiments' range {1, 2} has.
2. The surface e = -b1 (w - b2)^2 - b3 (p - b4)^2 + b5 (epochs/s), fitted again to all epochs so far. Four points do
   not determine five coefficients; `muster.core.progress.fits.fit_surface` says what is done: the surface that bends
   least.
3. The counts of highest e that the budget allows, at least the minimum of each role.
4. From one of each (the minimum), the worker or server of larger marginal utility is added while it is positive, up
   to those counts and to what is free.

Where this differs from the paper, and why:

- The text prints the formula with s on its left and once f(w, s) for what it calls workers and servers w, p, and the
  gain of a worker as f(w, s) - f(w + 1, s): negative where a worker helps. Here it is f(w + 1, p) - f(w, p).
- The budget was switched off in its experiments and its unit is not given. Here: replica-seconds of the whole job
  (functions are billed by time). What the rest of the job costs needs the epochs that are left: the loss curve to
  the target where it can be fitted, else one epoch. No budget by default, as there.
- "a timeout can occur which starts the epoch with the currently available workers and servers", at least one of each
  role: a job that waits and can't have its counts waits for them until `timeout` after its submission, then takes
  what there is (one that starts again has waited already). Functions that were approved before it keep their
  places in the paper; here nothing is kept for a job that waits: whoever is behind it may start on what is free.
  A running job does not wait: at a boundary it takes what is free at that moment.
- All jobs of the paper's Coach wait for each other's tuning ("simply a mistake", section 7). Here none does.
- Counts change at boundaries only (`resizeAt: boundary`); a job that reports none is left as it is.
- It ends when its loss was at the target three epochs running: the training's own matter (`fits.reached`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np

from muster.core.placement.reservations import placed
from muster.core.progress.fits import Surface
from muster.core.reasons.words import plural
from muster.memory import Memory, remembers
from muster.points import Estimation
from muster.types import (
    Config,
    Grant,
    Grants,
    IntArray,
    Job,
    Nodes,
    SharingSnapshot,
    Snapshot,
    elastic_role,
)
from muster_plugins.coach_memory import Epochs
from muster_plugins.coach_room import give_back, take, unused

DESIGN = ((1, 1), (2, 1), (1, 2), (2, 2))
Counts = tuple[int, int]
"""Workers, servers."""


@dataclass(frozen=True, slots=True)
class Coach:
    """design: (workers, servers) of the mini-epochs, one each. static: fixed counts instead of all that (the paper's
    "w = 2, s = 2"), empty = dynamic. budget: replica-seconds a job may use, 0 = no limit. timeout: s from its
    submission that a job waits for all of its counts, 0 = none. worker, server: names of the roles; others keep
    their minimum.
    """

    design: Sequence[Sequence[int]] = DESIGN
    static: Sequence[int] = ()
    budget: float = 0.0
    timeout: float = 60.0
    worker: str = "worker"
    server: str = "server"
    memory: Memory[Epochs] = remembers(Epochs.read)
    NOT_WITH: ClassVar[Mapping[str, str]] = {"design": "static", "budget": "static"}
    """Arguments that are not looked at where another one is given."""
    NEEDS_REPORTS: ClassVar[Mapping[str, str]] = {"": "profile gang"}
    """No job has epochs without, so each stays with the first counts."""

    def __post_init__(self) -> None:
        if any(
            len(pair) != 2 or min(pair) < 1
            for pair in (*self.design, *([self.static] if self.static else []))
        ):
            raise ValueError("expected pairs (workers, servers) of at least one each")
        if self.budget < 0.0 or self.timeout < 0.0:
            raise ValueError("expected a budget and a timeout of at least 0")

    # ---- Share ----

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Counts for jobs at a boundary and jobs that wait, by submission; the others keep theirs."""
        free = unused(snapshot)
        table = snapshot.table
        replicas = table.have.copy()
        grants: dict[int, Grant] = {}
        why: dict[int, str] = {}
        until: dict[int, float] = {}
        for row, key in enumerate(table.keys):
            job = snapshot.jobs[key]
            have = self.have(job)
            runs = bool(table.have[row])
            if runs and not at_boundary(job):
                grants[row] = Grant(roles=self.roles(job, have))
                replicas[row] = self.elastic(job, have)
                continue
            ideal = self.ideal(job)
            if runs:
                give_back(free, job, snapshot.nodes)
            elif snapshot.now < self.patient(job):
                until[row] = self.patient(job)
            granted = self.pruned(job, ideal, free, snapshot.nodes)
            if granted is None or (row in until and granted != ideal):
                replicas[row] = 0
                why[row] = (
                    f"it waits for room for {_counted(ideal)}, {self.timeout:g} s at most"
                    if granted
                    else "there is no room for one of each of its roles"
                )
                if not runs:
                    continue
                granted = have  # a job that runs stays as it is
            replicas[row] = self.elastic(job, granted)
            grants[row] = Grant(roles=self.roles(job, granted))
            take(free, self.roles(job, granted), job, snapshot.nodes)
            if runs and granted != have:
                why[row] = f"{_counted(granted)} from this epoch on"
        # One that was scaled down is cut to its most; one that lost replicas goes on as the table has it.
        replicas = np.minimum(replicas, table.max)
        replicas = np.where((replicas > 0) & (replicas < table.min), table.have, replicas)
        return Grants(replicas, grants, why, until=until)

    def ideal(self, job: Job) -> Counts:
        """Steps 1 to 3: what it should have, whatever is free."""
        if self.static:
            return self.within(job, (self.static[0], self.static[1]))
        seen = self.memory.of(job)
        if seen.done < len(self.design):
            return self.within(job, (self.design[seen.done][0], self.design[seen.done][1]))
        surface = seen.surface()
        if surface is None:
            return self.within(job, (1, 1))
        return self.affordable(job, seen, surface)

    def affordable(self, job: Job, seen: Epochs, surface: Surface) -> Counts:
        """The counts of highest epochs/s that the budget allows; among equals the fewest replicas, then workers."""
        fewest = self.within(job, (1, 1))
        largest = self.within(job, (1 << 30, 1 << 30))
        left = self.budget - seen.spent if self.budget else math.inf
        epochs = seen.left()
        other = sum(role.min for role in job.roles if role.name not in (self.worker, self.server))
        best = (-math.inf, 0, 0)
        chosen = fewest
        for w, p in product(range(fewest[0], largest[0] + 1), range(fewest[1], largest[1] + 1)):
            speed = surface.speed(w, p)
            if speed <= 0.0 or (w + p + other) * epochs / speed > left:
                continue
            key = (speed, -(w + p), -w)
            if key > best:
                best, chosen = key, (w, p)
        return chosen

    def pruned(self, job: Job, ideal: Counts, free: IntArray, nodes: Nodes) -> Counts | None:
        """Step 4: from the minimum, by marginal utility, within what is free; None where the minimum has no room."""
        counts = self.within(job, (1, 1))
        capacity = free.copy()
        if not take(capacity, self.roles(job, counts), job, nodes):
            return None
        seen = self.memory.of(job)
        surface = None if self.static else seen.surface()
        while counts != ideal:
            w, p = counts
            options = [(w + 1, p)] * (w < ideal[0]) + [(w, p + 1)] * (p < ideal[1])
            if surface is not None and seen.done >= len(self.design):
                options = sorted(options, key=lambda c: -gain(surface, counts, c))  # stable: a worker first
            for option in options:
                role = self.worker if option[0] > w else self.server
                if take(capacity, {role: 1}, job, nodes):
                    counts = option
                    break
            else:
                return counts
        return counts

    # ---- Estimate, Observe, Wake ----

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:  # noqa: ARG002
        """Speed in iterations/s on the fitted surface; the length is not known to anybody."""
        surface = self.memory.of(job).surface()
        if surface is None:
            return Estimation()
        steps = job.report.steps_per_epoch if job.report else 1.0

        def speed(config: Config) -> float:
            return max(0.0, surface.speed(config.count(self.worker), config.count(self.server))) * max(
                1.0, steps
            )

        return Estimation(speed=speed)

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:  # noqa: ARG002
        """Each epoch's counts, speed (epochs/s) and loss. By counts the mean of all epochs is kept.

        Counts are those that it ran with: where some that it was granted are not on their nodes yet, its mini-epoch
        is still to come.
        """
        report = job.report
        seen = self.memory.of(job)
        if report is None or not report.boundary or report.epoch <= seen.last:
            return None
        if report.speed <= 0.0 or report.steps_per_epoch <= 0.0:
            return None
        w, p = (sum(r.bound for r in job.roles if r.name == name) for name in (self.worker, self.server))
        if not w or not p:
            return None
        speed = report.speed / report.steps_per_epoch
        points = {(a, b): (e, n) for a, b, e, n in seen.points}
        mean, count = points.get((w, p), (0.0, 0))
        points[w, p] = ((mean * count + speed) / (count + 1), count + 1)
        losses = seen.losses
        if report.loss is not None:
            losses = (*losses, (report.step / report.steps_per_epoch, report.loss))[-64:]
        used = sum(role.bound for role in job.roles) / speed * seen.part_of_epoch(job, report.step)
        return {
            "epochs": seen.done + (not job.reservations),
            "epoch": report.epoch,
            "step": report.step,
            "spent": seen.spent + used,
            "points": [[a, b, e, n] for (a, b), (e, n) in sorted(points.items())],
            "losses": [list(x) for x in losses],
            "target": report.target,
        }

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next job that waits has waited long enough for all of its counts."""
        times = [self.patient(job) for job in snapshot.jobs.values() if not job.started]
        return min((at for at in times if at > snapshot.now), default=None)

    def patient(self, job: Job) -> float:
        """Until when it waits for all of its counts."""
        return job.submitted + self.timeout

    # ---- counts and roles ----

    def within(self, job: Job, counts: Counts) -> Counts:
        w, p = (self.bounds(job, name) for name in (self.worker, self.server))
        return max(w[0], min(w[1], counts[0])), max(p[0], min(p[1], counts[1]))

    def bounds(self, job: Job, name: str) -> tuple[int, int]:
        """Fewest and most of a role; one of each is the minimum. A job without the role has none of it."""
        return next(((max(1, r.min), r.max) for r in job.roles if r.name == name), (0, 0))

    def have(self, job: Job) -> Counts:
        counts = {role.name: placed(role, job.reservations) for role in job.roles}
        return counts.get(self.worker, 0), counts.get(self.server, 0)

    def roles(self, job: Job, counts: Counts) -> dict[str, int]:
        found = {role.name: role.min for role in job.roles}
        for name, count in zip((self.worker, self.server), counts, strict=True):
            if name in found:
                found[name] = count
        return found

    def elastic(self, job: Job, counts: Counts) -> int:
        """What the table's column means: replicas of the elastic role."""
        return self.roles(job, counts)[elastic_role(job).name]


def gain(surface: Surface, now: Counts, then: Counts) -> float:
    """Marginal utility of one replica more (epochs/s): f(w + 1, p) - f(w, p), printed the other way round."""
    return surface.speed(*then) - surface.speed(*now)


def at_boundary(job: Job) -> bool:
    return job.report is not None and job.report.boundary


def _counted(counts: Counts) -> str:
    return f"{plural(counts[0], 'worker')} and {plural(counts[1], 'server')}"
