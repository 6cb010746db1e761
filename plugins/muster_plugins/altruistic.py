"""Share `altruistic`: leftover GPUs to where they add most throughput (papers/afs-coddl, section 5.5).

Stands behind a policy that decides who gets what it asked for (`srtf-e` = srtf, then this; `srsf-e` likewise). The
GPUs that are left go one by one to the job whose throughput, relative to its own on one GPU, grows most; that sum
is the cluster's efficiency (section 2.2), so jobs of different models can be compared.

Where this differs from the print: section 5.5 distributes "idle resources to running jobs"; here jobs that wait take
part, too, with their least as the first step and all of its throughput as the gain, since else a GPU that is idle
beside a queue goes to who runs already. `waiting: false` is as printed. Ties go to the earlier submission.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.policylib import greedy
from muster.types import Grants, SharingSnapshot


@dataclass(frozen=True, slots=True)
class Altruistic:
    """waiting: whether jobs that the policy before granted nothing take part."""

    RULE: ClassVar[str] = "GPUs that the policy leaves go where they add most throughput"

    waiting: bool = True

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        """What was granted, and more where GPUs are left."""
        table, granted = snapshot.table, shares.replicas
        left = table.gpus - int(greedy.cost(table, granted)[granted > 0].sum())
        if left <= 0:
            return shares
        speeds, curve = table.curves, table.curve.tolist()

        def gain(row: int, here: int, following: int) -> float:
            return float(speeds[curve[row], following] - speeds[curve[row], here])

        rows = np.arange(len(table)) if self.waiting else np.flatnonzero(granted)
        more = greedy.by_gain(table, granted, left, gain, rows)
        return Grants(more, shares.details, shares.why, until=shares.until)
