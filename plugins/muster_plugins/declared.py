"""Estimate `declared`: what the owner says, less what is done (the core's own estimate when a profile names none).

Speed is `muster.dev/speed` (seconds of an iteration are interpolated between declared sizes; linear where nothing is
declared), remaining work is `muster.dev/remaining-work` less the progress since. In simulations of
papers/afs-coddl it is the truth: "we just assume that their estimation is always correct" (section 5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from muster.core.progress.estimate import declared
from muster.points import Estimation
from muster.types import Job, Snapshot


@dataclass(frozen=True, slots=True)
class Declared:
    """No parameters."""

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:
        """As `core.sharing.job_table.declared`."""
        return declared(job, snapshot.now)
