"""Gavel's isolation (Narayanan et al., OSDI'20, §4; its artifact's `isolated`): everybody a part of everything.

Of n jobs each gets the time that 1/n of each product's GPUs makes of its gang: what the sharing incentive compares
with, and what the similarity paper calls DRF. No speeds are looked at. The rounds are in gavel.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from muster.policylib.lp import isolated
from muster.types import FloatArray
from muster_plugins.gavel import Asking, Gavel
from muster_plugins.gavel_facts import Kept


@dataclass(frozen=True)
class GavelIsolation(Gavel):
    """Equal parts of every product, in rounds."""

    perf: bool = False

    agnostic: ClassVar[bool] = True

    def allocate(self, asking: Asking) -> tuple[FloatArray, Sequence[Kept]]:
        """(J, P) shares of time."""
        return isolated(asking.market), [{}] * len(asking.jobs)
