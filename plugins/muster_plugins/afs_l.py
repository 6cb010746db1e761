"""Share `afs-l`: Apathetic Future Share with known lengths (papers/afs-coddl, section 3.3, Algorithm 1).

Stage one: with as many jobs as GPUs or more, one GPU each to the jobs with the least work left (time on one GPU).
Stage two: else one GPU each, and the rest one by one to the winner of a scan over all jobs by inequality (3); see
`muster.policylib.afs`, which also says how the same winner is found faster.

Misprint: Algorithm 1 as our text nests it evaluates (3) only inside the swap (line 11 under line 9), which gives
19.27 h on VC 2869ce; the test of line 11 applies in both cases (15.18 h, the paper's 15.2).
Choices: equality goes to the longer job and the scan is in the order of submission (the paper starts "at any job");
both as in the authors' code. Of equal lengths the later in the scan counts as the longer (line 9 as printed has it
the other way round), and in stage one the earlier job wins (lines 6 and 7: the later). That is so, too, wherever
nobody declares lengths. A job's first step is the least that it may have; a step of several GPUs counts per GPU; a
job that can't take its step leaves it to the others (in stage one, too: those that run go on by stage two). Unknown
lengths are infinite: such jobs count as the longest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.policylib import afs, greedy
from muster.types import FloatArray, Grants, SharingSnapshot, Table


@dataclass(frozen=True, slots=True)
class AfsL:
    """No parameters."""

    RULE: ClassVar[str] = "gains are weighed with the work left, and what ends soon gives its GPUs back"

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Stage one or two, by the number of jobs and GPUs."""
        table = snapshot.table
        if not greedy.crowded(table):
            return Grants(afs.distribute(table, table.gpus - greedy.leasts(table), _lengths(table)))
        granted = greedy.shortest(table, table.remaining)
        left = table.gpus - int(greedy.cost(table, granted).sum())
        if left > 0:  # a job's least is more than what is left: the others share that
            granted = afs.distribute(table, left, _lengths(table), np.flatnonzero(granted))
        return Grants(granted)


def _lengths(table: Table) -> FloatArray:
    """(J,) s of work left on one replica, unknown = infinite."""
    remaining = table.remaining
    if np.isnan(remaining.sum()):
        return np.where(np.isnan(remaining), np.inf, remaining)
    return remaining
