"""Share `resize-cost`: a running job changes only where that gains more than it costs. Last of a profile's chain.

What the policies before it don't weigh: a job that changes writes a checkpoint, restarts, warms up; and some give
GPUs that nobody else wants to a job which they slow down. (Only `sweep` stands behind it, which changes no share.)
So a grant at which a job is slower than at a smaller one (by more than `noise`) becomes the smallest legal one at
which it is fastest, at a start as well. Then, for each running job whose number of replicas would change, in order:

1. *Rest*: it was changed, or started again, less than cost / overhead seconds ago: it stays as it is. So changes take
   no more than `overhead` of its time. cost is the median of its last three measured ones, else what was learned of
   jobs like it, else `cost`. A job that can't become smaller now (`Job.keeps`) does not.
2. *Gain*: a change that makes it faster (a growth; or a shrink, where it became slower by growing) is worth it if

       (speed(m) - speed(n)) / speed(n) x min(horizon, remaining / speed(n)) > cost        [s saved > s lost]

   with remaining in s on one replica; of unknown length the horizon counts. A growth that is not is left out.
3. *Need*: any other shrink, and every stop, is kept only as far as starts and the growths of 2. need the GPUs. What
   they don't need is given back, first to who loses most of its speed (who would be stopped: all of it). Where one of
   them is in place: to who loses most GPU-seconds within the horizon, those of the change itself among them. All GPUs
   of a job stand still meanwhile, also the seven that it keeps of eight, so another one's only GPU may be cheaper.
4. Where even that leaves too few GPUs, since those who should give them can't change yet: growths go first (those of
   least gain), then the starts of the last in the queue become smaller, then wait. A start that fits is never
   withheld.

So a job is changed at most 1 + T x overhead / cost times in T seconds, whatever is proposed, starts not counted: the
1 is for a job that has just been started for the first time, which makes room at once for one that arrives.
Where a job stays as it is, so does all that was granted beside a number (product, nodes, batch). Jobs that share a
GPU rest, and are as proposed otherwise. A policy whose grants are taken whole or not at all gets them whole or not.

Choices: GPUs that are withheld here go to nobody else until the next change (given at once to who gains most by each,
they made average JCT longer in most of 18 drawn workloads: what a short job frees soon is then held by another that
rests); and a growth is weighed against its own cost only (weighed against that of those who shrink for it, too, not
one decision of those workloads was another). PriorityClass comes after all this (`core.sharing.priority_class`): a
job that rests gives its GPUs to one of higher priority that would have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from muster.core.progress.learned import learned_of
from muster.core.reasons.words import clock
from muster.core.sharing.gpu_budget import GpuBudget
from muster.types import Grant, Grants, Job, JobKey, SharingSnapshot, Table, elastic_role

SLACK = 1e-6
"""s: times are sums of floats, and a wake-up is to find the rest over."""


@dataclass(frozen=True, slots=True)
class ResizeCost:
    """horizon: s over which the gain of a change counts. cost: s of a change where none was measured. overhead: part
    of its time that a job may spend on changes. noise: part of a speed by which it may be less without being slower.
    """

    horizon: float = 600.0
    cost: float = 30.0
    overhead: float = 0.1
    noise: float = 0.02

    def __post_init__(self) -> None:
        if self.horizon < 0.0 or self.cost < 0.0 or not 0.0 < self.overhead <= 1.0:
            raise ValueError(
                "expected a horizon and a cost of at least 0 s and an overhead above 0 and up to 1; "
                f"found {self.horizon:g} s, {self.cost:g} s and {self.overhead:g}"
            )

    # ---- Adjust ----

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        """The shares, as far as their changes are worth it."""
        table = snapshot.table
        shares = self.fastest(shares, table, snapshot.jobs)
        rows = np.flatnonzero((shares.replicas != table.have) & (table.have > 0)).tolist()
        resting = self.resting(shares, snapshot, rows)
        if not rows and not resting:
            return shares
        plan = _Plan(shares, table, snapshot.jobs)
        for row, why in sorted(resting.items()):  # 1
            plan.keep(row, why if row in rows else "")
        growths: dict[int, float] = {}
        givers = []
        for row in rows:  # 2
            if row in resting or plan.shares_gpus(row):
                continue
            to, job = int(plan.replicas[row]), plan.job(row)
            gain, within = self.gain(table, row, to)
            cost = self.cost_of(job)
            if to < table.have[row]:
                if job.shrink_blocked_by:
                    plan.keep(row, job.shrink_blocked_by)
                elif gain <= cost:
                    givers.append(row)
            elif gain > cost:
                growths[row] = gain
            else:
                plan.keep(row, _words(to, gain, within, cost))
        in_place = any(
            role is not None and role.devices for role in (plan.job(row).elastic for row in givers)
        )
        plan.give_back(givers, partial(self.gpu_seconds, plan) if in_place else plan.part_lost)  # 3
        for row in sorted(growths, key=lambda row: (growths[row], -row)):  # 4
            if plan.free < 0:
                plan.grow_less(row, partial(self.worth, table, row, self.cost_of(plan.job(row))))
        if plan.free < 0:
            plan.take_starts()
        return plan.shares()

    def fastest(self, shares: Grants, table: Table, jobs: Mapping[JobKey, Job]) -> Grants:
        """Without the replicas that only slow a job down; as they are where the policy's grants are whole."""
        granted = np.flatnonzero(shares.replicas)
        if shares.whole or not len(granted):
            return shares
        peak = np.maximum.accumulate(table.curves, axis=1)
        curve, count = table.curve[granted], shares.replicas[granted]
        slower = granted[table.curves[curve, count] < (1.0 - self.noise) * peak[curve, count]]
        plan = _Plan(shares, table, jobs)
        for row in slower.tolist():
            speeds, to = table.curves[table.curve[row]], int(plan.replicas[row])
            best = max(plan.sizes(row, 0, to), key=lambda n: (speeds[n], -n), default=to)
            if speeds[best] * (1.0 - self.noise) > speeds[to]:
                words = f"{best} replica{'s are' if best > 1 else ' is'} faster than {to}"
                plan.put(row, best, f"{words} ({speeds[best]:.3g} against {speeds[to]:.3g})")
        return plan.shares() if len(slower) else shares

    def cost_of(self, job: Job) -> float:
        """Seconds that a change costs this job: measured, learned, assumed."""
        if job.facts.last_cost > 0.0:
            return job.facts.last_cost
        lesson = learned_of(job)
        return (lesson.cost if lesson is not None else 0.0) or self.cost

    def resting(self, shares: Grants, snapshot: SharingSnapshot, rows: list[int]) -> dict[int, str]:
        """Rows that may not change yet, with why: of those in `rows`, and of those that are granted another place."""
        table, now = snapshot.table, snapshot.now
        elsewhere = {row for row in shares.details if table.have[row] > 0}
        result = {}
        for row in sorted(elsewhere.union(rows)):
            job = snapshot.jobs.get(table.keys[row])
            if job is None:
                continue
            grant, has = shares.details.get(row, Grant()), job.grant and job.grant.whole
            if row not in rows and (grant == has or _places_nothing(grant)):
                continue
            end = self.rests(table, row, self.cost_of(job))
            if end > now + SLACK:
                result[row] = f"it changed a short while ago, and may again at {clock(end, now)}"
        return result

    def rests(self, table: Table, row: int, cost: float) -> float:
        """Until when a running job is not changed again, -inf where it never was changed or started again."""
        start = float(table.run_start[row])
        again = math.isfinite(start) and start > float(table.first_start[row])
        return max(start if again else -math.inf, float(table.last_resize[row])) + cost / self.overhead

    def gain(self, table: Table, row: int, to: int) -> tuple[float, float]:
        """Seconds that a change to so many replicas saves, and within how many: (2)."""
        speeds = table.curves[table.curve[row]]
        before, after = float(speeds[table.have[row]]), float(speeds[to])
        if before <= 0.0:
            return (math.inf if after > 0.0 else 0.0), self.horizon
        left = float(table.remaining[row]) / before
        within = self.horizon if math.isnan(left) else min(self.horizon, left)
        return (after - before) / before * within, within

    def gpu_seconds(self, plan: _Plan, row: int) -> float:
        """GPU-seconds that a job loses by becoming as small as planned: (3)."""
        table, job = plan.table, plan.job(row)
        gain, _ = self.gain(table, row, int(plan.replicas[row]))
        return (self.cost_of(job) - gain) * plan.gpus(row, int(table.have[row]))

    def worth(self, table: Table, row: int, cost: float, to: int) -> bool:
        """Whether a change to so many replicas gains more than it costs."""
        return self.gain(table, row, to)[0] > cost

    # ---- Wake ----

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next running job may change again."""
        table, now = snapshot.table, snapshot.now
        ends = []
        for row in np.flatnonzero(table.have).tolist():
            job = snapshot.jobs.get(table.keys[row])
            if job is None:
                continue
            cost = self.cost_of(job)
            end = self.rests(table, row, cost)
            if 0 < len(elastic_role(job).on) != table.have[row]:  # it is changed just now
                end = now + cost / self.overhead
            if end > now + SLACK:
                ends.append(end)
        return min(ends, default=None)


def _words(to: int, gain: float, within: float, cost: float) -> str:
    more = f"{to} replica{'s' if to > 1 else ''} would"
    if gain <= 0.0:
        return f"{more} gain nothing"
    return f"{more} gain {gain:.0f} s within {within:.0f} s, a resize costs {cost:.0f} s"


def _places_nothing(grant: Grant) -> bool:
    """Whether it says nothing that could end a replica which runs."""
    places = grant.product or grant.max_nodes or grant.nodes
    return not (places or grant.batch or grant.beside or grant.roles)


class _Plan(GpuBudget):
    """The shares while they are weighed."""

    def __init__(self, shares: Grants, table: Table, jobs: Mapping[JobKey, Job]) -> None:
        super().__init__(shares, table)
        self.jobs = jobs

    def job(self, row: int) -> Job:
        key = self.table.keys[row]
        return self.jobs.get(key) or Job(key)

    def shares_gpus(self, row: int) -> bool:
        """Whether it stands, or is to stand, on another job's GPUs."""
        grants = (self.details.get(row), self.job(row).grant)
        return any(grant is not None and grant.beside is not None for grant in grants)

    def keep(self, row: int, why: str) -> None:
        """It stays as it is, with all that it was granted."""
        self.put(row, 0)
        self.details.pop(row, None)
        grant = self.job(row).grant
        if grant is not None:
            self.details[row] = grant
        self.put(row, int(self.table.have[row]), why)

    def put(self, row: int, count: int, why: str = "") -> None:
        """So many replicas, in what is granted of roles, too."""
        super().put(row, count)
        if why:
            self.why[row] = why
        grant = self.details.get(row)
        if grant is not None and grant.roles and count:
            role = elastic_role(self.job(row)).name
            if role in grant.roles:
                self.details[row] = replace(grant, roles={**grant.roles, role: count})

    def part_lost(self, row: int) -> float:
        """Of its speed, by becoming as small as planned."""
        speeds, have = self.table.curves[self.table.curve[row]], self.table.have[row]
        if speeds[have] <= 0.0:
            return 0.0
        return float((speeds[have] - speeds[self.replicas[row]]) / speeds[have])

    def give_back(self, rows: list[int], loss: Callable[[int], float]) -> None:
        """GPUs that nobody needs go back to those who were to give them, first to who loses most (then by row)."""
        for row in sorted(rows, key=lambda row: (-loss(row), row)):
            have, to = int(self.table.have[row]), int(self.replicas[row])
            if self.gpus(row, have) - self.gpus(row, to) <= self.free:
                self.keep(row, "no other job needs the GPUs that it would give up")
            elif not self.given.whole:
                self.put_first(row, self.sizes(row, to, have))

    def put_first(self, row: int, counts: list[int], why: str = "") -> bool:
        """The first of the counts for which there are GPUs; False where there is none."""
        for count in counts:
            if self.gpus(row, count) - self.gpus(row, int(self.replicas[row])) <= self.free:
                self.put(row, count, why)
                return True
        return False

    def grow_less(self, row: int, worth: Callable[[int], bool]) -> None:
        """A growth becomes as large as there are GPUs for, or is none where that is not worth it."""
        why = "those who are to give up GPUs for it can't change yet"
        have, to = int(self.table.have[row]), int(self.replicas[row])
        self.keep(row, why)
        if not self.given.whole and not self.put_first(
            row, [n for n in self.sizes(row, have, to - 1) if worth(n)], why
        ):
            self.why[row] = why

    def take_starts(self) -> None:
        """The last in the queue start smaller, or wait, until the GPUs suffice."""
        table = self.table
        granted = np.flatnonzero((self.replicas > 0) & (table.have == 0)).tolist()
        starts = [row for row in granted if self.gpus(row, int(self.replicas[row]))]
        wished = {row: int(self.replicas[row]) for row in starts}
        why = "the jobs that are to make room for it can't change yet"
        for row in starts:
            self.put(row, 0)
        for row in sorted(starts, key=lambda row: (-int(table.priority[row]), row)):
            count = wished[row]
            smaller = [] if self.given.whole else self.sizes(row, 0, count - 1)
            if not self.put_first(row, [count, *smaller]):
                self.why[row] = why
                self.details.pop(row, None)
