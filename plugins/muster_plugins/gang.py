"""`gang`: queue sort, filter and score of Coach's gang scheduler, as one plugin.

Source: papers/gang-scheduler-coach, section 4.5, Algorithms 1 to 3. The paper forks kube-scheduler; here the
same three hooks run in Muster's planner, and its score answers kube-scheduler's prioritize verb.

Where this differs from the paper, and why:

- Algorithm 1 compares pods. Pods of one job share the job's first-pod time and nearly always its priority, so
  here whole jobs are compared, and "name" is the job's key. A gate comes off in that order, so the queue of
  pods that kube-scheduler sees is the paper's.
- Algorithm 2 remembers in the filter which types of pod it has seen (a side effect, lost at a restart). Here
  the job in the snapshot says which of its roles have a pod: the answer is the same after a restart.
- Algorithms 2 and 3 let pods pass that are no deep-learning pods. Muster never sees such pods: a pod opts in.
- The paper's scheduler "does not guarantee all-or-nothing scheduling" (section 4.5): one pod of each type is
  enough to begin. Muster's core starts the whole minimum or nothing, whatever the profile.
- Algorithm 3 gives 0 to a node shared with another job, so it takes empty nodes first and leaves small
  remainders on many nodes. That is the paper's policy and therefore not the default; see `gang-pack`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from muster.points import Candidates
from muster.types import BoolArray, FloatArray, Job, Role, Snapshot


@dataclass(frozen=True, slots=True)
class Gang:
    """No parameters: the paper has none."""

    def sort_key(self, job: Job, snapshot: Snapshot) -> tuple[Any, ...]:  # noqa: ARG002
        """Algorithm 1: priority (higher first), the job's first-pod time (seconds), name."""
        return (-job.priority, job.submitted, job.key.name)

    def filter(
        self,
        job: Job,
        role: Role,  # noqa: ARG002
        candidates: Candidates,
        snapshot: Snapshot,  # noqa: ARG002
    ) -> tuple[BoolArray | None, str]:
        """Algorithm 2: no node is feasible before every role of the job is present or placed."""
        absent = [r.name for r in job.roles if not present_or_placed(job, r)]
        if not absent:
            return None, ""
        return (
            np.zeros(len(candidates.nodes), dtype=np.bool_),
            f"waits until every role has a pod; none yet of: {', '.join(absent)}",
        )

    def score(self, job: Job, role: Role, candidates: Candidates, snapshot: Snapshot) -> FloatArray:  # noqa: ARG002
        """Algorithm 3: (N,) 0 where a pod of another job runs or has a place, else 100."""
        scores: FloatArray = np.where(candidates.others > 0, 0.0, 100.0)
        return scores


def present_or_placed(job: Job, role: Role) -> bool:
    """A role counts when it has a pod or a place, or needs none any more because its replicas have ended."""
    placed = any(reservation.role == role.name for reservation in job.reservations)
    return bool(role.members) or placed or role.ended > 0 or role.max == 0
