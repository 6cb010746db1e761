"""Score `gang-pack`: first the nodes where the job already is, then nodes in use, empty ones last.

The variant of Coach's score (papers/gang-scheduler-coach, Algorithm 3) that keeps its aim, a job's pods close
to each other, without its price: Algorithm 3 avoids every node that another job uses, and so opens an empty
node for each small job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.points import Candidates
from muster.types import FloatArray, Job, Role, Snapshot


@dataclass(frozen=True, slots=True)
class GangPack:
    """beside_own, in_use: scores (0 to 100) of a node with a pod of this job, of one with others' pods."""

    beside_own: float = 100.0
    in_use: float = 50.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.in_use <= self.beside_own <= 100.0:
            raise ValueError(
                f"expected 0 <= in_use <= beside_own <= 100, found in_use={self.in_use}, "
                f"beside_own={self.beside_own}"
            )

    def score(self, job: Job, role: Role, candidates: Candidates, snapshot: Snapshot) -> FloatArray:  # noqa: ARG002
        """(N,) beside_own where a pod of this job runs or has a place, in_use where others' do, 0 else."""
        scores: FloatArray = np.where(
            candidates.own > 0, self.beside_own, np.where(candidates.others > 0, self.in_use, 0.0)
        )
        return scores
