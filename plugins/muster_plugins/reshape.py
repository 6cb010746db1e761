"""`reshape`: SideCar's adaptive scheduler, which makes jobs smaller for one that arrives and larger when GPUs idle.

Source: papers/adaptive-gpu-scheduler-sidecar, III-C, Algorithms 1 ("reshaping down") and 2 ("reshaping up"); the
prediction with all its overheads is `muster.policylib.completion`. A job is one container, so it lives on one node,
and each has a set of allowed counts ("optional numbers of GPUs", Table III).

Where this differs from the print, and why:

- The makespan MS_predict of a choice is here the largest predicted completion time over *all* running jobs and the
  incoming one. III-C.1 predicts it from "the running job and the incoming job": read as the donor and the incoming
  one alone, a choice that helps neither the last job nor hurts it would count as a gain of makespan.
- Algorithm 1, line 9: N_remove "ranges from N_min to N_max" of the set. What is meant is any number whose removal
  leaves an allowed count (line 10 tests it); as printed {4, 5} could not go from 5 to 4. Here: all of them.
- The idle GPUs are a node's, not the cluster's (one container), those of replicas on their way out among them. With
  one node it is the print. A count for which some node has idle GPUs is not served by removal, as lines 15 and 21
  have it.
- Both algorithms take the first of equals (line 18: strictly smaller), and most choices are equal, since a job that
  isn't the last one changes no makespan. Kept: fewest GPUs first, then jobs by submission. Between nodes, which the
  print has none of: the earlier completion of the job itself, then the fullest node, then its name.
- Algorithm 2 compares choices with each other, never with doing nothing, and so does the paper: in Fig. 3(b) job 1
  is restarted for 242 s when its last 86 s on four GPUs would have taken about 100 on two. Kept as printed;
  `worthwhile` leaves out steps by which the job itself would end no earlier.
- "One job a step": the steps of one moment are decided in one cycle, one after another on what the last one left;
  two for the same job are carried out as one change. So Algorithm 2 also makes larger what Algorithm 1
  has placed in that cycle (line 4 has running jobs only): by VI-C "all GPUs are allocated to running jobs at the
  beginning", where waiting for its first report would leave them idle, and cost it a change later.
- A job is "running" (lines 6 and 4) when it is not "adjusting" or "initialized" (Table III): when its training has
  reported a speed since its last start or change. One that reports none counts as adjusting for `settling`
  seconds. While there is one, and GPUs idle or a job waits, a cycle is asked for every `period` seconds ("the Job
  Launcher periodically checks", no period given).
- GPUs on another node (III-C.2 and VI-E, "SideCar limitation"): the job is restarted there with all its GPUs,
  and pays for it in the prediction. The way there is open only if that node has room for all of them and the job
  ends earlier by it; among equal makespans GPUs of its own node come first.
- Jobs of unknown length take no part in a makespan until enough of their accuracy is known (three points).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from muster.core.progress.learned import learned_of
from muster.core.reasons.words import plural
from muster.memory import Memory, remembers
from muster.points import Estimation
from muster.policylib.completion import Forecast, Overheads, Terms, forecast, is_curve
from muster.types import PRODUCT, Grants, Job, SharingSnapshot, Snapshot, elastic_role
from muster_plugins.reshape_scene import Scene, Standing, ending, homes_of, where

POINTS = 48
"""Points of an accuracy curve that are kept; beyond that every second one goes, the newest stays."""
Points = tuple[tuple[float, float], ...]
"""(iterations, accuracy)."""


def kept_points(plain: Mapping[str, object]) -> Points:
    """As the plugin's memory has them."""
    found = plain.get("points", ())
    return tuple((float(k), float(a)) for k, a in found) if isinstance(found, Sequence) else ()


@dataclass(frozen=True, slots=True)
class Reshape(Terms):
    """Parameters, times in s.

    overheads as in `policylib.completion.Terms`. settling: how long a job that reports no speed counts as
    adjusting (the longest that Fig. 3 shows: 242). period: see above.
    restart: whether every change restarts the whole job (the paper's "advanced approach" of Fig. 3(b)); a profile
    with it has resize "restart". measured: whether the seconds that changes of a job took, where any were measured,
    take the place of the paper's, as on a cluster (`live_recipes.on_a_cluster`); without it Fig. 3's are every job's.
    With it a job that requests its GPUs restarts with every change: only those in place have theirs handed over.
    down, up: Algorithm 1's reshaping and Algorithm 2, to leave one of them out.
    worthwhile: see above. ceiling: what accuracies rise towards. accuracy: the offline profile of accuracies
    (Table V), (iterations, accuracy) by model. memory: points of the accuracy curve that earlier cycles kept.
    """

    settling: float = 242.0
    period: float = 10.0
    restart: bool = False
    measured: bool = False
    down: bool = True
    up: bool = True
    worthwhile: bool = False
    ceiling: float = 1.0
    accuracy: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    memory: Memory[Points] = remembers(kept_points)
    ONLY_WITH: ClassVar[Mapping[str, str]] = {"worthwhile": "up"}

    def __post_init__(self) -> None:
        if min(*self.terms, self.settling) < 0.0 or self.period <= 0.0:
            raise ValueError("expected times of at least 0 s and a period above")
        if not isinstance(self.accuracy, Mapping) or not all(map(is_curve, self.accuracy.values())):
            raise ValueError(
                f"accuracy: expected [[iterations, accuracy], ...] by model, found {self.accuracy!r}"
            )

    # ---- Share ----

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Algorithm 1 for each job that waits, by submission; where none is left waiting, Algorithm 2."""
        scene = self.scene(snapshot)
        waiting = [s for s in scene.jobs if not s.count]
        for standing in waiting:
            incoming(scene, standing, down=self.down)
        if self.up and all(s.count for s in scene.jobs):
            while grow_one(scene, worthwhile=self.worthwhile):
                pass
        return scene.decided()

    def scene(self, snapshot: SharingSnapshot, *, takes: bool = True) -> Scene:
        """takes: the policy takes GPUs from those that run, and not for what comes free by itself."""
        nodes, table = snapshot.nodes, snapshot.table
        free, total = nodes.gpus(snapshot.free), nodes.gpus(nodes.total)
        if takes:
            free = free + ending(snapshot)
        used = dict.fromkeys(nodes.names, 0)  # of `free` of a simulation without places nothing is taken off
        for row, key in enumerate(table.keys):
            node = where(snapshot.jobs[key]) if table.have[row] else ""
            used[node] = used.get(node, 0) + int(table.have[row] * table.unit[row])
        idle = {
            name: max(0, min(int(free[i]), int(total[i]) - used[name])) if nodes.open[i] else 0
            for i, name in enumerate(nodes.names)
        }
        product = {record.name: record.labels.get(PRODUCT, "") for record in nodes.records}
        jobs: list[Standing] = []
        for row, key in enumerate(table.keys):
            job = snapshot.jobs[key]
            min_count, max_count = int(table.min[row]), int(table.max[row])
            sizes = tuple(
                n
                for n in table.sizes.get(row, range(min_count, max_count + 1))
                if min_count <= n <= max_count
            )
            count = int(table.have[row])
            node = where(job) if count else ""
            unit, restart = int(table.unit[row]), self.restarts(job)
            standing = Standing(
                row, job, sizes, unit, self.believe(job, snapshot.now), self.overheads(job), restart
            )
            if count and node in idle:
                standing.count, standing.had = count, count
                standing.node = standing.came_from = node
                standing.movable = self.runs(job, snapshot.now)
            jobs.append(standing)
        return Scene(idle, product, jobs)

    def restarts(self, job: Job) -> bool:
        """Whether a change of its number restarts the job."""
        return self.restart or (self.measured and not elastic_role(job).devices)

    def overheads(self, job: Job) -> Overheads:
        """The paper's; with `measured`, in proportion to what a change of this job took, or of jobs like it."""
        paper = Overheads(*self.terms)
        if not self.measured:
            return paper
        lesson = learned_of(job)
        seconds = job.facts.last_cost or (lesson.cost if lesson is not None else 0.0)
        return paper.measured(seconds, restart=self.restarts(job)) if seconds > 0.0 else paper

    # ---- Estimate, Observe, Wake ----

    def believe(self, job: Job, now: float) -> Forecast:
        return forecast(job, now, self.points(job), self.ceiling)

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:
        """Remaining seconds on one replica, and speeds from the profile."""
        believed = self.believe(job, snapshot.now)
        products = sorted(p for p, n in believed.rates if n == 1) or [""]
        best = max(products, key=lambda p: (believed.rate(1, p), p))
        one = believed.rate(1, best)
        max_count = min(elastic_role(job).max, 1024)
        return Estimation(
            remaining=believed.training(1, best),
            speeds=(0.0, *(believed.rate(n, best) / one for n in range(1, max_count + 1)))
            if one > 0.0
            else (),
            speed=lambda config: believed.rate(config.replicas, config.product),
        )

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:  # noqa: ARG002
        """The points of the accuracy curve, for a job that stops at a target and declares no total."""
        report = job.report
        if report is None or report.total > 0.0 or report.target is None or report.loss is None:
            return None
        seen = self.memory.of(job)
        if report.step <= 0.0 or (seen and seen[-1][0] >= report.step):
            return None
        points = [*seen, (report.step, report.loss)]
        if len(points) > POINTS:
            points = points[-1:-POINTS:-2][::-1]
        return {"points": [list(p) for p in points]}

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """Soon, while a job adjusts that could be donor or receiver: if GPUs idle or a job waits."""
        started = [job for job in snapshot.jobs.values() if job.started]
        idle = bool(np.any(snapshot.nodes.gpus(snapshot.free) > 0))
        adjusting = any(not self.runs(job, snapshot.now) for job in started)
        return (
            snapshot.now + self.period if adjusting and (idle or len(started) < snapshot.contending) else None
        )

    def runs(self, job: Job, now: float) -> bool:
        """Whether it is neither initialized nor adjusting: all that it was granted, and no more, is on its nodes, and
        trains."""
        if not job.running or job.running > job.bound or job.reservations or job.restart_on:
            return False
        if job.report is not None and job.report.speed > 0.0:
            return True
        start, change = job.facts.run_start, job.facts.last_resize
        return now >= max([t for t in (start, change) if t is not None], default=-math.inf) + self.settling

    def points(self, job: Job) -> Points:
        profile = [(float(k), float(a)) for k, a in self.accuracy.get(job.model, ())]
        return (*profile, *self.memory.of(job))


def incoming(scene: Scene, new: Standing, *, down: bool) -> bool:
    """Algorithm 1: the triple T = (count, donor, removed) of the least predicted makespan; False if none exists."""
    best: tuple[float, int, int, int] | None = None
    chosen: tuple[int, str, Standing | None, int] | None = None
    for count in sorted(new.sizes):
        gpus = count * new.unit
        homes = homes_of(scene, new, count)
        options: list[tuple[str, Standing | None, int]] = []
        if homes:
            options = [(node, None, 0) for node in homes]
        elif down:
            options = [
                (donor.node, donor, gpus - scene.idle[donor.node])
                for donor in scene.jobs
                if donor.count and not donor.fresh and donor.movable
            ]
        for position, (node, donor, removed) in enumerate(options):
            changed = {new.row: scene.finish(new, count, node)}
            if donor is not None:
                left = donor.count - removed // donor.unit
                if removed <= 0 or removed % donor.unit or left not in donor.sizes:
                    continue
                changed[donor.row] = scene.finish(donor, left, node)
            key = (scene.makespan(changed), count, position, 0)
            if best is None or key < best:
                best, chosen = key, (count, node, donor, removed)
    if chosen is None:
        new.why = "no node has idle GPUs for it, and no running job can spare any"
        return False
    count, node, donor, removed = chosen
    if donor is not None:
        scene.give(donor, donor.count - removed // donor.unit, node)
        donor.movable = False
        goes = "goes" if removed == 1 else "go"
        donor.why = f"{removed} of its GPUs {goes} to {new.job.key}, which arrives"
    new.fresh = True
    scene.give(new, count, node)
    return True


def grow_one(scene: Scene, *, worthwhile: bool) -> bool:
    """Algorithm 2: the one job, and the one number of GPUs, of the least predicted makespan; False if none."""
    best: tuple[float, bool, int, int] | None = None
    chosen: tuple[Standing, int, str] | None = None
    for standing in scene.jobs:
        if not standing.movable:
            continue
        now = scene.finish(standing, standing.count, standing.node)
        for count in standing.sizes:
            add = count - standing.count
            if add <= 0:
                continue
            node = standing.node
            if scene.idle[node] < add * standing.unit:  # not here: all of it on another node, by a restart
                others = [n for n in homes_of(scene, standing, count) if n != node]
                if not others:
                    continue
                node = others[0]
            finish = scene.finish(standing, count, node)
            moved = node != standing.node
            if (worthwhile or moved) and not finish < now:
                continue
            key = (scene.makespan({standing.row: finish}), moved, add * standing.unit, standing.row)
            if best is None or key < best:
                best, chosen = key, (standing, count, node)
    if chosen is None:
        return False
    standing, count, node = chosen
    scene.give(standing, count, node)
    if not standing.fresh:
        standing.why = added(standing, count)
    return True


def added(standing: Standing, count: int) -> str:
    """ "2 idle GPUs are added", of a job that is to have so many replicas."""
    gpus = (count - standing.had) * standing.unit
    return f"{plural(gpus, 'idle GPU')} {'is' if gpus == 1 else 'are'} added"
