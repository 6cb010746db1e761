"""Processor sharing by quanta: whose turn it is, from two numbers a job (papers/afs-coddl, section 3.3).

`count` is how many quanta a job has used up while there were as many jobs as GPUs or more; `since` is when its
present quantum began, unless its run began later (then it is the run's start). Both change only here:

    jobs < GPUs                    since = now for every job: each decision renews all quanta
    jobs >= GPUs, quantum over     count + 1, since = now: it stands in line again, and if it goes on running, it
                                   is in a new quantum
    else                           nothing

`since` = now therefore also says: this job's place is decided at this moment. A job whose place is held while what it
needs to run is not on its nodes yet (on a cluster who gives way takes seconds to end) uses up nothing: its quantum
begins with its run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from muster.memory import Memory
from muster.policylib import greedy
from muster.policylib.remembered import columns, earlier, folded, has_places, number
from muster.types import BoolArray, FloatArray, IntArray, Job, SharingSnapshot, Snapshot, Table, between_runs

FIELDS = ("count", "since", "granted")
Rest = Callable[[SharingSnapshot, IntArray, int], IntArray]
"""Snapshot, rows in order, GPUs: (J,) replicas for those rows."""


@dataclass(frozen=True, slots=True)
class Quanta:
    """The two numbers of one job: see the module's head. since: s; granted: when it was first granted something (s),
    0 = never."""

    count: float
    since: float
    granted: float = 0.0

    @classmethod
    def read(cls, plain: Mapping[str, object]) -> Quanta:
        """As a plugin's memory has them (`muster.memory.remembers`)."""
        return cls(*(number(plain.get(name)) for name in FIELDS))


def share(snapshot: SharingSnapshot, own: Memory[Quanta], length: float, rest: Rest) -> IntArray:
    """(J,) replicas. own: the plugin's memory. length: of a quantum, s. rest: how jobs that are not inside a quantum
    share what is left."""
    table = snapshot.table
    memory = columns(snapshot, own, FIELDS)
    first_start = earlier(memory["granted"], table.first_start)
    if not folded(snapshot, own):
        memory = fold(snapshot, memory, length, runs=under_way(snapshot))
    crowded = greedy.crowded(table)
    running = table.have > 0
    if crowded:
        keep = running & (memory["since"] < snapshot.now)
    else:
        keep = np.zeros(len(table), dtype=np.bool_)
    granted, left = within(table, keep, memory["since"])
    if left <= 0:
        return granted
    others = np.flatnonzero(~keep)
    keys = (table.submitted[others], first_start[others], memory["count"][others])
    return granted + rest(snapshot, others[np.lexsort(keys)], left)


def within(table: Table, keep: BoolArray, since: FloatArray) -> tuple[IntArray, int]:
    """What those rows have, without the last ones that would be more than all GPUs: (J,) replicas, and GPUs left.
    keep: (J,), which is changed. since: (J,) s, when each one's quantum began."""
    granted = np.where(keep, table.have, 0)
    cost = greedy.cost(table, granted)
    left = table.gpus - int(cost[keep].sum())
    if left < 0:  # who starts again has the places that others are to leave, also those that they now keep
        rows = np.flatnonzero(keep)
        rows = rows[np.argsort(_began(since, table.run_start)[rows], kind="stable")]
        late = rows[np.cumsum(cost[rows]) > table.gpus]
        keep[late], granted[late] = False, 0
        left += int(cost[late].sum())
    return granted, left


def under_way(snapshot: SharingSnapshot) -> BoolArray:
    """(J,) rows of which a run is under way, as far as their jobs are known."""
    jobs = [snapshot.jobs.get(key) for key in snapshot.table.keys]
    return np.array([job is None or not between_runs(job) for job in jobs], dtype=np.bool_)


def fold(
    snapshot: SharingSnapshot,
    memory: Mapping[str, FloatArray],
    length: float,
    renew: bool = True,
    runs: BoolArray | None = None,
) -> dict[str, FloatArray]:
    """`points.Fold`: count and since of each row at the snapshot's time. Idempotent.

    renew: whether quanta are renewed while there are fewer jobs than GPUs (else they end all the same). runs: (J,)
    whose run is under way, None: that of everybody who has replicas.
    """
    table, now = snapshot.table, snapshot.now
    blank = np.zeros(len(table))
    count, since = memory.get("count", blank), memory.get("since", blank)
    if renew and not greedy.crowded(table):
        return {"count": count, "since": np.full(len(table), now)}
    over = (table.have > 0) & (_began(since, table.run_start) + length <= now)
    if runs is not None:
        over &= runs
    return {"count": count + over, "since": np.where(over, now, since)}


def observe(
    job: Job, snapshot: Snapshot, own: Memory[Quanta], length: float, renew: bool = True
) -> Mapping[str, object] | None:
    """`points.Observe`: the same for one job. Whether jobs are as many as GPUs is seen from the snapshot."""
    kept = own.of(job)
    count, since = kept.count, kept.since
    nodes, now = snapshot.nodes, snapshot.now
    gpus = int(nodes.gpus(nodes.total)[nodes.open].sum())  # of those that are shared out
    if renew and snapshot.contending < gpus:
        since = now
    elif (
        job.running
        and not between_runs(job)
        and job.facts.run_start is not None
        and max(since, job.facts.run_start) + length <= now
    ):
        count, since = count + 1.0, now
    granted = kept.granted or (now if has_places(job) else 0.0)
    return {"count": count, "since": since, **({"granted": granted} if granted else {})}


def wake(snapshot: SharingSnapshot, own: Memory[Quanta], length: float) -> float | None:
    """When the first quantum ends (s), counting those that begin at this moment."""
    table = snapshot.table
    running = table.have > 0
    if not running.any():
        return snapshot.now + length if len(table) else None
    since = columns(snapshot, own, FIELDS)["since"]
    return min(float(_began(since, table.run_start)[running].min()), snapshot.now) + length


def _began(since: FloatArray, run_start: FloatArray) -> FloatArray:
    """When a quantum began: a run that began after `since` began one too (inf: it never ran)."""
    return np.where(np.isfinite(run_start), np.maximum(since, run_start), since)
