"""Share `afs-s`: AFS-P that knows only how many GPUs a model can use (papers/afs-coddl, appendix D).

As `afs-p`, but without throughputs: with fewer jobs than GPUs, GPUs go to the job that has fewest, up to its model's
most (max-min fairness); with as many or more, processor sharing with counters.

Choice: ties go to the earlier job by counter, first start and submission, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from muster.policylib import greedy
from muster.types import IntArray, SharingSnapshot
from muster_plugins.afs_p import AfsP


@dataclass(frozen=True, slots=True)
class AfsS(AfsP):
    """quantum: s for which a job runs before it may be put back (footnote 11: 2 hours for traces of months)."""

    RULE: ClassVar[str] = "GPUs go to those that have fewest"

    def _rest(self, snapshot: SharingSnapshot, order: IntArray, left: int) -> IntArray:
        return greedy.level(snapshot.table, order, left)
