"""Gavel's mechanism (Narayanan et al., OSDI'20, §5): shares of time by GPU product, carried out in rounds.

A policy (one file each: gavel_*.py) says what part of its time each job is to spend on each product. Rounds of
`round` seconds bring it about: for each product, jobs in falling order of

    priority = share of the product / time received on it since the allocation was made     (§5, "priorities")

take its GPUs while their number fits; a job runs on one product at a time, all its GPUs or none. A job whose share
of a product is 0 comes last (then: by what it is owed from earlier allocations), so no GPU idles while one fits.
Shares are made again when jobs have come or gone, at most every `interval` seconds.

As in the authors' simulator, and not in the paper: every job starts with half a round received; a job that came
since the last allocation holds back the GPUs that it would take and does not run before the next (`idle`: false lets
it run); an allocation made at time 0 does not start the interval; jobs that don't know GPU products
(`perf` false) go through the products in random order, the others through `products`.

What a policy knows of speeds is `job.samples`: measured iterations/s by product at the number of replicas that the
job asks for. A product that was not measured counts as good as the best one that was, so that it is tried.

With `packed` pairs of jobs that ask for as many GPUs may share them (§3.1, space sharing): each pair that was
measured (`job.samples` with `beside`) and together does more than taking turns is a combination of its own, with a
share of time and a priority; it starts with half a round received too (the authors' simulator: with none, so that
pairs go first).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from muster.memory import Memory, remembers
from muster.policylib.lp import Market
from muster.types import (
    FloatArray,
    Grant,
    Grants,
    Job,
    JobKey,
    SharingSnapshot,
    Snapshot,
)
from muster_plugins.gavel_draws import Draws
from muster_plugins.gavel_facts import Kept, asked, capacity_of, memory_of, owed, possible, received, speeds
from muster_plugins.gavel_pairs import rode, there, with_pairs

TURNS = 5
"""Gavel's simulator shuffles products with the seed plus this."""


@dataclass(frozen=True)
class Asking:
    """Who asks a policy for shares of time. jobs by submission; products by name, as the market's columns; before:
    what the policy wanted to be told of each job last time (with the mechanism's own words, empty = new job)."""

    jobs: Sequence[Job]
    products: Sequence[str]
    market: Market
    before: Sequence[Kept]
    now: float
    seed: int

    def of_one_product(self, product: str) -> Market:
        """Every product as good as one of them: what a policy believes that knows no products."""
        one = np.array([speeds(job, [product])[0] for job in self.jobs])
        return replace(self.market, speed=np.tile(one[:, None], (1, len(self.products))))


@dataclass(frozen=True)
class Gavel:
    """Rounds, and what all policies share. round, interval: s. perf: whether speeds by product are taken into
    account. packed: whether two jobs may share GPUs. products: in which order they are handed out, whatever the case
    of their letters (others follow by name; without perf the order is random). idle: see above (simulations).
    untried: speed of two jobs in place on one GPU, not measured yet, over that of one alone (the default: average of
    Gavel's pairs on a P100); 0 = no such pair is tried."""

    round: float = 360.0
    interval: float = 1920.0
    perf: bool = True
    packed: bool = False
    products: tuple[str, ...] = ("v100", "p100", "k80")
    idle: bool = True
    untried: float = 1.19
    memory: Memory[Kept] = remembers(dict)
    _seen: list[tuple[Snapshot, Mapping[JobKey, Kept]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    LEAVES_IDLE: ClassVar[tuple[str, ...]] = ("idle",)
    PRODUCTS: ClassVar[tuple[str, ...]] = ("products",)
    ONLY_WITH: ClassVar[Mapping[str, str]] = {"untried": "packed", "products": "perf"}
    """Arguments that are looked at only where another one is true."""
    NEEDS_REPORTS: ClassVar[Mapping[str, str]] = {"perf": "perf: false"}
    """Arguments that do nothing where no speeds are measured, and what to take."""
    agnostic: ClassVar[bool] = False
    """Whether its policy looks at no speeds, whoever asks it to, and so at no pairs."""
    granted_only: ClassVar[bool] = False
    """Whether a job never runs on a product of which it has no share."""

    def __post_init__(self) -> None:
        if not 0.0 < self.round < math.inf:
            raise ValueError(f"round: must be above 0; found {self.round!r}")
        for name in ("interval", "untried"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: must be 0 or more; found {getattr(self, name)!r}")
        if isinstance(self.products, str) or not all(isinstance(name, str) for name in self.products):
            raise ValueError(f"products: must be a list of GPU products; found {self.products!r}")
        if not self.products:
            raise ValueError("products: must name one at least")
        for name in ("perf", "packed"):
            if self.agnostic and getattr(self, name):
                raise ValueError(f"{name}: must be false, this policy looks at no speeds and at no pairs")
        if self.packed and not self.perf:
            raise ValueError("packed: wants perf: true, pairs are weighed by speeds")

    def allocate(self, asking: Asking) -> tuple[FloatArray, Sequence[Kept]]:
        """(J + Q, P) shares of time, and what the policy wants to be told of each job next time."""
        raise NotImplementedError

    # ---- the allocation: made now and then, kept in the jobs' memory ----

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """This job's part of a new allocation, None while the last one stands."""
        if not self._seen or self._seen[0][0] is not snapshot:
            self._seen[:] = [(snapshot, {})]  # one computation for all jobs: if it raises the last one stands
            self._seen[:] = [(snapshot, self._made(snapshot))]
        allocation = self._seen[0][1].get(job.key)
        if allocation is not None or not self.packed:
            return allocation
        return rode(job, self.memory.of(job), snapshot)

    def _made(self, snapshot: Snapshot) -> Mapping[JobKey, Kept]:
        jobs = sorted(
            (j for j in snapshot.jobs.values() if not j.invalid and asked(j)),
            key=lambda j: (j.submitted, j.key),
        )
        before = [self.memory.of(job) for job in jobs]
        now, last = snapshot.now, max((m["at"] for m in before if m), default=None)
        same = [m for m in before if m and m["at"] == last]
        if not jobs or (same and len(same) == len(jobs) == same[0]["jobs"]):
            return {}
        if last and now - last < self.interval - 1e-6:
            return {}
        capacity = capacity_of(snapshot)
        most = max(capacity.values(), default=0)
        jobs = [possible(job, most) for job in jobs]
        names = sorted(capacity)
        market = Market(
            np.array([speeds(job, names) for job in jobs]),
            np.array([asked(job) for job in jobs], dtype=np.float64),
            np.array([capacity[name] for name in names], dtype=np.float64),
        )
        if self.packed:
            market = with_pairs(market, jobs, names, self.untried, memory_of(snapshot))
        asking = Asking(jobs, names, market, before, now, snapshot.seed)
        shares, told = self.allocate(asking)
        since = now - (last or 0.0)
        turns = 0 if self.perf else self._turned(same[0] if same else {}, names, snapshot).read
        beside: dict[JobKey, dict[str, dict[str, float]]] = {}
        for (a, b), row in zip(market.pairs, shares[len(jobs) :], strict=True):
            part = {name: float(x) for name, x in zip(names, row, strict=True) if x > 0.0}
            if part:
                beside.setdefault(jobs[a].key, {})[str(jobs[b].key)] = part
        return {
            job.key: {
                "at": now,
                "jobs": len(jobs),
                "share": {name: float(x) for name, x in zip(names, row, strict=True) if x > 0.0},
                "had": {name: received(job, name, now, self.round) for name in names},
                "owed": owed(job, kept, names, now, since, self.round),
                **({} if self.perf else {"turns": turns}),
                **({"beside": beside.get(job.key, {})} if self.packed else {}),
                **extra,
            }
            for job, kept, row, extra in zip(jobs, before, shares[: len(jobs)], told, strict=True)
        }

    # ---- a round ----

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Who runs in this round, and on which product."""
        table = snapshot.table
        left = dict(table.products) or {"": table.gpus}
        most = max(left.values(), default=0)
        jobs = [possible(snapshot.jobs[key], most) for key in table.keys]
        kept = [self.memory.of(job) for job in jobs]
        asked_for = [job.request or table.max[row] for row, job in enumerate(jobs)]
        request = np.maximum(table.min, np.minimum(table.request, asked_for))
        need = (request * table.unit).tolist()
        granted = np.zeros_like(table.have)
        grants: dict[int, Grant] = {}
        why: dict[int, str] = {}
        taken: set[int] = set()
        order = self._order(sorted(left), kept, snapshot)
        rates = [dict(zip(order, speeds(job, order), strict=True)) for job in jobs]
        for product in order:
            for rows, priority in self._queue(jobs, kept, product, snapshot):
                if taken.intersection(rows) or need[rows[0]] > left[product]:
                    continue
                if not rates[rows[0]][product] or (self.granted_only and priority <= 0.0):
                    continue
                left[product] -= need[rows[0]]
                taken.update(rows)
                if not kept[rows[0]] and self.idle:
                    why[rows[0]] = "it came after the last allocation of time, and runs from the next one on"
                    continue
                owner, *riders = sorted(rows, key=lambda row: not there(jobs[row], product))
                for row in rows:
                    granted[row] = request[row]
                    grants[row] = Grant(product=product, beside=jobs[owner].key if row in riders else None)
        turn = "in this round the GPUs go to jobs that have had less of their share of time"
        for row in np.flatnonzero(granted == 0).tolist():
            why.setdefault(row, turn)
        largest = tuple(sorted(range(len(table)), key=lambda row: (-need[row], row)))
        return Grants(granted, grants, why, whole=True, order=largest)

    def _order(self, names: Sequence[str], kept: Sequence[Kept], snapshot: Snapshot) -> list[str]:
        """Products as they are handed out: `products` first; without `perf` shuffled again for each round."""
        place = {name.lower(): i for i, name in enumerate(self.products)}
        ordered = sorted(names, key=lambda name: (place.get(name.lower(), len(place)), name))
        if self.perf:
            return ordered
        last: Kept = max((m for m in kept if m), key=lambda m: m["at"], default={})
        draws = self._turned(last, names, snapshot)
        return draws.shuffled(ordered)

    def _turned(self, last: Kept, names: Sequence[str], snapshot: Snapshot) -> Draws:
        """The random numbers after the rounds since the last allocation."""
        draws = Draws(snapshot.seed + TURNS, int(last.get("turns", 0)))
        for _ in range(round((snapshot.now - last["at"]) / self.round) if last else 0):
            draws.shuffled(names)
        return draws

    def _queue(
        self, jobs: Sequence[Job], kept: Sequence[Kept], product: str, snapshot: Snapshot
    ) -> list[tuple[tuple[int, ...], float]]:
        """Rows that run together and their priority: by priority, what is owed, share, then submission."""
        queue: list[tuple[float, float, float, tuple[int, ...]]] = []
        row_of = {str(job.key): row for row, job in enumerate(jobs)}
        paired = [0.0] * len(jobs)  # s of this allocation in pairs
        for row, memory in enumerate(kept if self.packed else ()):
            for name, spent in memory.get("rode", {}).items():
                for each in (row, row_of.get(name)):
                    if each is not None:
                        paired[each] += spent.get(product, 0.0)
        for row, (job, memory) in enumerate(zip(jobs, kept, strict=True)):
            share = memory["share"].get(product, 0.0) if memory else 0.0
            had = 0.0
            if share > 0.0:
                had = (
                    received(job, product, snapshot.now, self.round)
                    - memory["had"].get(product, 0.0)
                    - paired[row]
                )
            short = memory["owed"].get(product, 0.0) if memory else 0.0
            queue.append((-share / (0.5 * self.round + max(0.0, had)), -short, -share, (row,)))
            for name, parts in memory.get("beside", {}).items() if self.packed else ():
                other, part = row_of.get(name), parts.get(product, 0.0)
                if other is None or part <= 0.0:
                    continue
                spent = memory.get("rode", {}).get(name, {}).get(product, 0.0)
                spent += kept[other].get("rode", {}).get(str(job.key), {}).get(product, 0.0)
                queue.append((-part / (0.5 * self.round + spent), 0.0, -part, (row, other)))
        return [(rows, -priority) for priority, _, _, rows in sorted(queue)]
