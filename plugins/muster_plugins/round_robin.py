"""Score `round-robin`: one node after another, in the order of submission (SpeCon, section VI-A).

The paper compares SpeCon with the default scheduler under "a fixed initial container placement, where workload
are evenly distributed based on the number of containers": container 1, 2, 3, 4 on worker 1, 2, 3, 4, container
5 on worker 1 again (section VI-C). A job's turn is kept in its memory; the next one is one more than the latest
turn of the jobs that are still there. (After the last of them has ended, and nobody came meanwhile, it starts
again at the first node: on an empty cluster one node is as good as another.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from muster.memory import Memory, remembers
from muster.points import Candidates
from muster.types import FloatArray, Job, Role, Snapshot


def turn_of(plain: Mapping[str, object]) -> int | None:
    """Which one a job is, from 0, as the plugin's memory has it; None before its first cycle."""
    found = plain.get("turn")
    return found if isinstance(found, int) else None


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """No parameters. Nodes by name, those that are cordoned left out of the round."""

    memory: Memory[int | None] = remembers(turn_of)

    def score(self, job: Job, role: Role, candidates: Candidates, snapshot: Snapshot) -> FloatArray:  # noqa: ARG002
        """(N,) 100 for the node whose turn it is, less the farther round it a node stands; 0 for cordoned ones."""
        count = len(snapshot.nodes)
        opened = np.flatnonzero(snapshot.nodes.open)
        scores = np.zeros(count, dtype=np.float64)
        if len(opened):
            first = self.turn(job, snapshot) + int(candidates.own.sum())
            away = (np.arange(len(opened)) - first) % len(opened)
            scores[opened] = 100.0 * (1.0 - away / len(opened))
        return scores

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """The job's turn, from its first cycle on."""
        return {"turn": self.turn(job, snapshot)} if self.memory.of(job) is None else None

    def turn(self, job: Job, snapshot: Snapshot) -> int:
        """Which one it is, from 0: as remembered, else after the latest remembered one, by submission and key."""
        own = self.memory.of(job)
        if own is not None:
            return own
        turns = {other.key: self.memory.of(other) for other in snapshot.jobs.values()}
        last = max((t for t in turns.values() if t is not None), default=-1)
        new = sorted((o.submitted, o.key) for o in snapshot.jobs.values() if turns[o.key] is None)
        return last + 1 + sum(1 for place in new if place < (job.submitted, job.key))
