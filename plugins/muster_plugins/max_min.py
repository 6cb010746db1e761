"""Share `max-min`: max-min fairness over GPUs (papers/afs-coddl, section 2.2).

GPUs go round the jobs one at a time until none is left or every job has the most that its model can use. Without
time slicing: with more jobs than GPUs, those that run keep running, and the others wait for an end. Who comes
earlier in the round is who started its present run earlier, then who was submitted earlier.

Choices: as in the authors' code, shares do not depend on lengths or speeds at all. On a cluster, where starts take
their time and a restart is another run, a run counts from when the job was granted what it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.memory import Memory, remembers
from muster.policylib import greedy
from muster.policylib.remembered import columns, earlier, has_places, number
from muster.types import FloatArray, Grants, Job, SharingSnapshot, Snapshot

GRANTED = "granted"


def granted_at(plain: Mapping[str, object]) -> float:
    """s, as the plugin's memory has it; 0: it has nothing."""
    return number(plain.get(GRANTED))


@dataclass(frozen=True, slots=True)
class MaxMin:
    """No parameters."""

    RULE: ClassVar[str] = "GPUs go round evenly"

    memory: Memory[float] = remembers(granted_at)

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """One step after another for each job, in the order of the present run's start."""
        table = snapshot.table
        running = np.flatnonzero(table.have)
        since = earlier(columns(snapshot, self.memory, (GRANTED,))[GRANTED], table.run_start)
        running = running[np.argsort(since[running], kind="stable")]
        waiting = np.flatnonzero(table.have == 0)
        waiting = waiting[np.argsort(-table.priority[waiting], kind="stable")]
        order = np.concatenate((running, waiting))
        return Grants(greedy.level(table, order, table.gpus))

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """Since when it has been granted something without a break."""
        kept = self.memory.of(job)
        if has_places(job) == (kept > 0.0):
            return None
        return {GRANTED: 0.0 if kept else snapshot.now}

    def fold(self, snapshot: SharingSnapshot, memory: Mapping[str, FloatArray]) -> Mapping[str, FloatArray]:  # noqa: ARG002
        """Nothing, where a start is at once."""
        return {}
