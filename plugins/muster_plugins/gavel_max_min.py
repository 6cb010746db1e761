"""Gavel's max-min fairness (Narayanan et al., OSDI'20, §4.1): the job that does worst does as well as can be.

Well = speed over the speed of an equal split of the products, times the job's GPUs (a job on few GPUs is owed
more time than one on many), see `muster.policylib.lp.max_min`. With `perf` false every product counts the same for
every job: the "agnostic" baseline, least attained service (Tiresias's aim). The rounds are in gavel.py.

Deviation: of the many optima the centre is taken; Gavel takes the one that its solver ends at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.policylib.lp import max_min
from muster.types import FloatArray
from muster_plugins.gavel import Asking, Gavel
from muster_plugins.gavel_facts import Kept


@dataclass(frozen=True)
class GavelMaxMin(Gavel):
    """Max-min fairness of normalised speeds, in rounds."""

    def allocate(self, asking: Asking) -> tuple[FloatArray, Sequence[Kept]]:
        """(J, P) shares of time."""
        market = asking.market
        if not self.perf:
            market = replace(market, speed=np.ones_like(market.speed))
        return max_min(market), [{}] * len(market)
