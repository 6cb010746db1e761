"""Share `max-min`: max-min fairness over GPUs (papers/afs-coddl, section 2.2).

GPUs go round the jobs one at a time until none is left or every job has the most that its model can use. Without
time slicing: with more jobs than GPUs, those that run keep running, and the others wait for an end. Who comes
earlier in the round is who started its present run earlier, then who was submitted earlier.

Choice: as in the authors' code, shares do not depend on lengths or speeds at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.policylib import greedy
from muster.types import Grants, SharingSnapshot


@dataclass(frozen=True, slots=True)
class MaxMin:
    """No parameters."""

    RULE: ClassVar[str] = "GPUs go round evenly"

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """One step after another for each job, in the order of the present run's start."""
        table = snapshot.table
        running = np.flatnonzero(table.have)
        running = running[np.argsort(table.run_start[running], kind="stable")]
        waiting = np.flatnonzero(table.have == 0)
        waiting = waiting[np.argsort(-table.priority[waiting], kind="stable")]
        order = np.concatenate((running, waiting))
        return Grants(greedy.level(table, order, table.gpus))
