"""Gavel's minimum makespan (Narayanan et al., OSDI'20, §4.2; its artifact's `min_total_duration`).

The allocation with which the job that takes longest is done soonest: max min of speed / iterations left, see
`muster.policylib.lp.least_makespan`. With `perf` false every product counts as the first of `products`, as in the
artifact. The rounds are in gavel.py.

Deviation: Gavel searches the least time by halving, to within 5 %; it is one linear programme, solved exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.policylib.lp import least_makespan
from muster.types import FloatArray
from muster_plugins.gavel import Asking, Gavel
from muster_plugins.gavel_facts import Kept, steps_left


@dataclass(frozen=True)
class GavelMinTotalDuration(Gavel):
    """The least time in which all can be done, in rounds."""

    def allocate(self, asking: Asking) -> tuple[FloatArray, Sequence[Kept]]:
        """(J, P) shares of time."""
        market = asking.market if self.perf else asking.of_one_product(self.products[0])
        steps = np.array([steps_left(job, asking.now) for job in asking.jobs])
        return least_makespan(market, steps), [{}] * len(market)
