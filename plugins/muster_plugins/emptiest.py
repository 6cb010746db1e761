"""Score: the emptiest node first, by free places for the replica; ties to the first name.

What the Pollux artifact's simulator does for Tiresias and Optimus: a job takes all that is free on the node with
most free GPUs, then on the next, until it is placed. Nothing is kept together beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.points import Candidates
from muster.types import FloatArray, Job, Role, Snapshot


@dataclass(frozen=True)
class Emptiest:
    """The more replicas a node still takes, the better."""

    def score(self, job: Job, role: Role, candidates: Candidates, snapshot: Snapshot) -> FloatArray:  # noqa: ARG002
        """(N,) 100 for the node that takes most."""
        fits = candidates.fits.astype(np.float64)
        return 100.0 * fits / max(1.0, float(fits.max(initial=0.0)))
