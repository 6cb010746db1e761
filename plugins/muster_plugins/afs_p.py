"""Share `afs-p`: Apathetic Future Share without lengths (papers/afs-coddl, 3.3, "Handling unknown job lengths").

With fewer jobs than GPUs: one GPU each, the rest by a scan in which (3) is tried in both directions and coins decide
where neither job beats the other (`muster.policylib.afs.distribute_unknown`). Else processor sharing: a job runs for
a quantum and keeps all its GPUs as long; the rest get one GPU each in the order of their counters
(`policylib.quantum`).

Choices, as in the authors' code where the text is silent: a counter advances at the end of a quantum, only while
there are as many jobs as GPUs or more (the text: "whenever the job is executed for one unit of time"); without
contention every decision renews the quanta; the scan is in the order of counters, first starts and submissions.
Coins are thrown again when the jobs or their order have changed, and with each quantum (the authors': at each
arrival, end and quantum; unseeded, so that two of their runs differ by about 0.2 % in average JCT). A cluster decides
again each time that it sees anything new: coins of each decision's own would move running jobs for nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.memory import Memory, remembers
from muster.policylib import afs, greedy, quantum
from muster.policylib.quantum import Quanta
from muster.types import FloatArray, Grants, IntArray, Job, SharingSnapshot, Snapshot


@dataclass(frozen=True, slots=True)
class AfsP:
    """quantum: s for which a job runs before it may be put back (footnote 11: 2 hours for traces of months)."""

    RULE: ClassVar[str] = "gains are weighed without lengths, and those that ran least run first"

    quantum: float = 7200.0
    memory: Memory[Quanta] = remembers(Quanta.read)

    def __post_init__(self) -> None:
        if self.quantum <= 0.0:
            raise ValueError(f"quantum: must be above 0; found {self.quantum}")

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Who is inside a quantum keeps its GPUs; the others share what is left."""
        return Grants(quantum.share(snapshot, self.memory, self.quantum, self._rest))

    def _rest(self, snapshot: SharingSnapshot, order: IntArray, left: int) -> IntArray:
        table = snapshot.table
        least = int(greedy.cost(table, table.min)[order].sum())
        if least >= left:
            granted = greedy.in_order(table, order, table.min, left)
            left -= int(greedy.cost(table, granted).sum())
            if left <= 0:
                return granted
            # a job's least is more than what is left: the others share that
            order = order[granted[order] > 0]
        else:
            left -= least
        return afs.distribute_unknown(table, order, left, self._seed(snapshot, order))

    def _seed(self, snapshot: SharingSnapshot, order: IntArray) -> int:
        """Of the coins, below 2 ** 62: the same for a quantum, seed, and jobs in the same order."""
        jobs = zlib.crc32(snapshot.table.submitted[order].tobytes())
        drawn = np.random.default_rng([snapshot.seed, jobs, int(snapshot.now // self.quantum)])
        return int(drawn.integers(1 << 62))

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """How many quanta the job has used up, and when the present one began."""
        return quantum.observe(job, snapshot, self.memory, self.quantum)

    def fold(self, snapshot: SharingSnapshot, memory: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:
        """`observe` for all jobs of a table."""
        return quantum.fold(snapshot, memory, self.quantum)

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next quantum ends."""
        return quantum.wake(snapshot, self.memory, self.quantum)
