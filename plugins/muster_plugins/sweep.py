"""Share `sweep`: a running job is measured at each smaller size, too (papers/afs-coddl, section 4.5).

"When the job gets its GPU share, it takes the throughput measurement with all allocatable units that are smaller than
the given share": last of a chain, behind a policy that overestimates (Estimate `measured`, `reported`). A job that
reports, and of whose share a speed is measured, trains for the moment on the largest smaller size of which none is,
then on the next, and in the end on all of its share again: a change for each size, and one for the way back.

Its share stays what the policies before decided. The GPUs on which it does not train meanwhile are its own and idle
(`Grant.measure`, `Grant.kept`): nobody else is granted them, and the way back waits for nobody. So no policy sees a
smaller job, and to `resize-cost` nothing has changed.

Only jobs in place by default (`muster.dev/gpus`; the paper: "shrinking the share incurs little cost"), and of these
none whose changes were measured to take more than `cost` seconds, none with `muster.dev/resize: restart`, none that
shares a GPU.

A job has its whole share again at once where that falls (another job arrived) or grows, or where it is silent. What
was broken off so is tried again `limit` seconds later, if it is still not measured. A size at which nothing is
measured within `limit` seconds is left out until the job starts anew.

Choices: sizes are the paper's allocatable units (section 4.4: those that `network-packing` allows). Jobs that are
being measured go on before others begin, then in the order of submission.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.core.progress.curves import alone
from muster.core.progress.report_filter import config_of
from muster.core.reasons.words import plural
from muster.core.sharing.moving import can_change, on_shared_gpus
from muster.memory import Memory, remembers
from muster.policylib import greedy
from muster.policylib.remembered import number
from muster.types import Grant, Grants, Job, JobKey, SharingSnapshot, Snapshot, elastic_role
from muster_plugins.network_packing import legal
from muster_plugins.reported_speed import product_of

PACKED, ALL = "packed", "all"


@dataclass(frozen=True, slots=True)
class Trial:
    """What is remembered of a job. at: the size that it is measured at, 0 = none; since: when that began (s). again:
    no other begins before (s). left_out: sizes at which nothing was measured in time, in the run that began at `run`.
    """

    at: int = 0
    since: float = 0.0
    again: float = 0.0
    left_out: tuple[int, ...] = ()
    run: float = 0.0

    @classmethod
    def read(cls, plain: Mapping[str, object]) -> Trial:
        """As the plugin's memory has it."""
        found = plain.get("leftOut")
        sizes = found if isinstance(found, Sequence) and not isinstance(found, str) else ()
        return cls(
            at=int(number(plain.get("at"))),
            since=number(plain.get("since")),
            again=number(plain.get("again")),
            left_out=tuple([int(number(size)) for size in sizes]),
            run=number(plain.get("run")),
        )

    def plain(self) -> Mapping[str, object]:
        """JSON values."""
        told = {"at": self.at, "since": self.since, "again": self.again, "run": self.run}
        return {**{k: v for k, v in told.items() if v}, "leftOut": list(self.left_out)}


@dataclass(frozen=True, slots=True)
class Sweep:
    """jobs: as many at a time at most. limit: s for one size at most. settle: s after which a job that is measured is
    looked at again, should nothing happen before. cost: s that a change may have taken. sizes: "packed" (those of
    `network-packing`) or "all" (each that the job may have). restart: of other jobs than those in place, too, in
    simulations only: each size costs then what a change costs, where that is a restart seconds on all of its GPUs.
    """

    jobs: int = 4
    limit: float = 120.0
    settle: float = 10.0
    cost: float = 30.0
    sizes: str = PACKED
    restart: bool = False
    memory: Memory[Trial] = remembers(Trial.read)

    def __post_init__(self) -> None:
        if self.sizes not in (PACKED, ALL):
            raise ValueError(f"sizes: must be {PACKED!r} or {ALL!r}; found {self.sizes!r}")
        if min(self.limit, self.settle) <= 0.0:
            raise ValueError(f"limit and settle: must be above 0 s; found {self.limit:g} and {self.settle:g}")

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        """The same shares; beside some of them, the smaller size at which the job is measured for the moment."""
        table = snapshot.table
        details = {row: whole for row, grant in shares.details.items() if (whole := grant.whole) != Grant()}
        why = dict(shares.why)
        for row, size in self._trials(shares, snapshot):
            share = int(shares.replicas[row])
            details[row] = replace(details.get(row, Grant()), measure=size, kept=share - size)
            unit = int(table.unit[row])
            said = f"is measured at {size * unit} of its {plural(share * unit, 'GPU')}, then it has all of them again"
            why[row] = f"{why[row]}; {said}" if why.get(row) else said
        return replace(shares, details=details, why=why)

    def _trials(self, shares: Grants, snapshot: SharingSnapshot) -> Iterator[tuple[int, int]]:
        """Rows of jobs that are measured at a smaller size, with that size: `jobs` of them at most."""
        table, jobs = snapshot.table, snapshot.jobs
        settled = (shares.replicas == table.have) & (table.have > table.min)
        rows = [row for row in np.flatnonzero(settled).tolist() if table.keys[row] in jobs]
        shared = on_shared_gpus(snapshot) if rows else set()
        left = self.jobs
        for row in sorted(rows, key=lambda row: not _trial(jobs[table.keys[row]])):
            if not left:
                return
            grant = shares.details.get(row)
            if grant is None or grant.beside is None:
                size = self._size(jobs[table.keys[row]], row, snapshot, shared)
                if size:
                    left -= 1
                    yield row, size

    def _size(self, job: Job, row: int, snapshot: SharingSnapshot, shared: Collection[JobKey]) -> int:
        """The size at which it is measured now, 0 = it has its share."""
        table, seen, now = snapshot.table, self.memory.of(job), snapshot.now
        share, least = int(table.have[row]), int(table.min[row])
        if job.report is None or job.silent or job.key in shared or not self._cheap(job):
            return 0
        known = measured(job, snapshot)
        if _trial(job):
            if job.grant is not None and job.grant.measure + job.grant.kept != share:
                return 0  # its share is another one
        elif share not in known or seen.again > now or not can_change(job, shared):
            return 0
        known |= set(seen.left_out)
        if seen.at and now >= seen.since + self.limit:
            known.add(seen.at)
        unit, node = int(table.unit[row]), table.per_node
        sizes = [n for n in greedy.steps(table, row) if least <= n < share and n not in known]
        if self.sizes == PACKED:
            sizes = [n for n in sizes if legal(n * unit, node)]
        return max(sizes, default=0)

    def _cheap(self, job: Job) -> bool:
        """Whether a change of its size costs it little, or may cost what it costs."""
        if self.restart:
            return True
        return elastic_role(job).devices and job.resize != "restart" and job.facts.last_cost <= self.cost

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """Since when it is measured at which size, and what came of the one before; None where nothing is new."""
        seen, at, run = self.memory.of(job), _trial(job), job.facts.run_start or 0.0
        if at == seen.at and (run == seen.run or seen == Trial()):
            return None
        again, left_out = (seen.again, seen.left_out) if run == seen.run else (0.0, ())
        if seen.at and seen.at not in measured(job, snapshot) and run == seen.run:
            if snapshot.now >= seen.since + self.limit:
                left_out = tuple(sorted({*left_out, seen.at}))
            else:
                again = snapshot.now + self.limit
        since = seen.since if at == seen.at else snapshot.now if at else 0.0
        return Trial(at, since, again, left_out, run).plain()

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When those that are measured are looked at again, or the next may begin."""
        now, jobs = snapshot.now, snapshot.jobs
        if next(self._trials(Grants(snapshot.table.have), snapshot), None) is not None:
            return now + self.settle
        again = [self.memory.of(jobs[key]).again for key in snapshot.table.keys if key in jobs]
        return min((at for at in again if at > now), default=None)


def _trial(job: Job) -> int:
    """The size at which it is measured by the last plan, 0 = none."""
    return job.grant.measure if job.grant is not None else 0


def measured(job: Job, snapshot: Snapshot) -> set[int]:
    """Replicas of its elastic role of which a speed is known, on the GPU product that it runs on."""
    role = elastic_role(job).name
    product = config_of(job, lambda node: product_of(snapshot, node)).product
    return {
        config.count(role)
        for config, speed in alone(job.samples)
        if speed > 0.0 and (not product or config.product in ("", product))
    }
