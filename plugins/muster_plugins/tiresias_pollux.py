"""Tiresias as Pollux's artifact compares with it (Qiao et al., OSDI'21, §5; artifact, simulator/tiresias.py).

Two queues by attained service (Gu et al., NSDI'19, discretised 2D-LAS): a job falls into the second once it has had
`threshold` GPU-seconds in all, restarts included, and never comes back (the artifact's promotion of starving jobs is
switched off: `_solve_starvation = 0`). First queue by submission; second by when it fell there, then submission.

Rigid and all-or-nothing: jobs are gone through in that order and get what they ask for if so many GPUs are left;
one that doesn't fit is skipped. Who is not among them goes back whole. GPUs are counted, not places: running jobs
stay where they are, and each start takes the emptiest node first (profile: Score `emptiest`).

Deviation: none known; average and every job's completion equal the artifact's (e2e/reproduce/pollux.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from muster.core.reasons.words import plural
from muster.memory import Memory, remembers
from muster.policylib.greedy import in_order
from muster.types import Grants, Job, SharingSnapshot, Snapshot

FELL = "fell"


def fell_at(plain: Mapping[str, object]) -> float | None:
    """s, as the plugin's memory has it; None: it has not fallen."""
    found = plain.get(FELL)
    return float(found) if isinstance(found, int | float) else None


@dataclass(frozen=True)
class TiresiasPollux:
    """threshold: GPU-seconds of attained service at which a job falls into the second queue."""

    threshold: float = 16 * 3600.0
    memory: Memory[float | None] = remembers(fell_at)
    SIMULATION_ONLY: ClassVar[str] = "it repeats a simulator's figures; take tiresias-l"

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """When it fell into the second queue; nothing is written before."""
        if self.memory.of(job) is not None or job.facts.gpu_seconds.at(snapshot.now) < self.threshold:
            return None
        return {FELL: snapshot.now}

    def sort_key(self, job: Job, snapshot: Snapshot) -> tuple[Any, ...]:  # noqa: ARG002
        """Queue, when it fell there, submission."""
        fell = self.memory.of(job)
        return (0, 0.0, job.submitted) if fell is None else (1, fell, job.submitted)

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """What it asks for or nothing, in the queues' order."""
        table = snapshot.table
        jobs = [snapshot.jobs[key] for key in table.keys]
        order = sorted(range(len(table)), key=lambda row: (self.sort_key(jobs[row], snapshot), row))
        granted = in_order(table, np.array(order, dtype=np.int64), table.request)
        waits = "the jobs before it, which have had less service or came first, do not leave its {}"
        need = (table.request * table.unit).tolist()
        why = {row: waits.format(plural(need[row], "GPU")) for row in np.flatnonzero(granted == 0).tolist()}
        return Grants(granted, why=why, whole=True, order=tuple(order), settled=True)
