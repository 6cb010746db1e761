"""Share `afs-s`: AFS-P that knows only how many GPUs a model can use (papers/afs-coddl, appendix D).

As `afs-p`, but without throughputs: with fewer jobs than GPUs, GPUs go to the job that has fewest, up to its model's
most (max-min fairness); with as many or more, processor sharing with counters.

Choice: ties go to the earlier job by counter, first start and submission, as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.core import greedy, quantum
from muster.types import FloatArray, IntArray, Job, Shares, Snapshot

NAME = "afs-s"


@dataclass(frozen=True, slots=True)
class AfsS:
    """quantum: s for which a job runs before it may be put back (footnote 11: 2 hours for traces of months)."""

    quantum: float = 7200.0

    def __post_init__(self) -> None:
        if self.quantum <= 0.0:
            raise ValueError(f"quantum: must be above 0; found {self.quantum}")

    def share(self, shares: Shares, snapshot: Snapshot) -> Shares:  # noqa: ARG002
        """Who is inside a quantum keeps its GPUs; the others share what is left level by level."""
        return Shares(quantum.share(snapshot, NAME, self.quantum, self._rest))

    def _rest(self, snapshot: Snapshot, order: IntArray, left: int) -> IntArray:
        return greedy.level(snapshot.table, order, left)

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """How many quanta the job has used up, and when the present one began."""
        return quantum.observe(job, snapshot, NAME, self.quantum)

    def fold(self, snapshot: Snapshot, memory: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:
        """`observe` for all jobs of a table."""
        return quantum.fold(snapshot, memory, self.quantum)

    def wake(self, snapshot: Snapshot) -> float | None:
        """When the next quantum ends."""
        return quantum.wake(snapshot, NAME, self.quantum)
