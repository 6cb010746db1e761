"""Gavel's finish-time fairness (Narayanan et al., OSDI'20, §4.2; Themis, Mahajan et al., NSDI'20).

The worst job's time to completion over what it would have been with an isolated share (1/n of every product) is
made least, see `muster.policylib.lp.finish_time_fair`. How long a job would have taken so far in isolation is summed
up over the allocations: iterations done in each over its isolated speed at that time. With `perf` false every product
counts as the first of `products`, as in the artifact. The rounds are in gavel.py.

It is not AFS's Themis (an auction with leases): profile `themis`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.policylib.lp import finish_time_fair, isolated
from muster.types import FloatArray
from muster_plugins.gavel import Asking, Gavel
from muster_plugins.gavel_facts import Kept, steps_left


@dataclass(frozen=True)
class GavelFtf(Gavel):
    """The least worst finish-time fairness, in rounds."""

    def allocate(self, asking: Asking) -> tuple[FloatArray, Sequence[Kept]]:
        """(J, P) shares of time; told next time: iterations left, isolated speed, and seconds alone so far."""
        market = asking.market if self.perf else asking.of_one_product(self.products[0])
        left = np.array([steps_left(job, asking.now) for job in asking.jobs])
        pace = np.maximum((market.speed * isolated(market)).sum(axis=1), 1e-12)
        past = np.array([_alone(m, steps) for m, steps in zip(asking.before, left.tolist(), strict=True)])
        since = np.array([asking.now - job.submitted for job in asking.jobs])
        shares = finish_time_fair(market, left, since, np.maximum(past + left / pace, 1e-9))
        told = zip(past.tolist(), left.tolist(), pace.tolist(), strict=True)
        return shares, [{"alone": a, "left": s, "pace": v} for a, s, v in told]


def _alone(memory: Kept, left: float) -> float:
    """Seconds that what it has done so far would have taken alone."""
    if "pace" not in memory:
        return 0.0
    return float(memory["alone"] + (memory["left"] - left) / memory["pace"])
