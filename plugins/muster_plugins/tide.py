"""Share `tide`: the next GPUs to where they gain most speed, weighed by rank. Our own; see plugins/README.md, Tide.

    left[j]  = remaining work / (1 + waited x time without GPUs / remaining work)   [s on one replica]
    k[j]     = 1 + number of jobs with more left                            (ties: earlier submission)
    end[j]   = age + time that is left at its fastest                       [s]
    k[j]    += late x (number of jobs with less left) x (end[j] / the last end) ** 8
    w[j]     = (k[j] + c) ** p
    steps[j] = upper concave hull of j's speed curve, from 0 GPUs           (`policylib.hull`)
    while GPUs are left:
        give the step with the largest w[j] x gained speed / its GPUs       (x hold for GPUs that it holds already)
        a step that doesn't fit is passed over

The idea is heSRPT's (Berg, Vesilo, Harchol-Balter, Performance Evaluation 2020): where all jobs speed up as s^q, the
mean completion time is least if shares depend on each job's *rank* by remaining work, not on the work itself. Here it
is carried over to measured curves, each job with its own: the price of delaying a job grows as k^p. There is no stage
of its own for crowds: a short job may take several GPUs while long ones have none.

Who pays for the mean are the longest. `late` is for those that end last even at their fastest: the very last ranks as
if a part of those before it were behind it, but never before all. `waited` is against starvation: what waits counts
as ever shorter, slowly at first, without end. It is in proportion to the job's own work: where a cluster has too much
work for months, short jobs still pass long ones that have waited for as long.

A job of unknown length is believed to have as much left as it has done, and FIRST at least: so its rank falls as it
runs, what is new is tried first, and one that was tried for long ranks with jobs of known length like itself. (Of
lengths that follow Pareto's law the Gittins index grows in proportion to the service attained, too.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.core.reasons.words import plural
from muster.policylib import hull
from muster.types import FloatArray, Grants, IntArray, SharingSnapshot, Table

NEAR = 8
"""How fast `late` fades with an end's distance from the last one: at half of it nothing is left (0.4 %)."""
FIRST = 600.0
"""s on one replica: a job of unknown length has so much left at first, so that none is believed to be over."""


@dataclass(frozen=True, slots=True)
class Tide:
    """p: how much rank weighs (0: not at all). c: added to each rank: the larger, the more the longest have. hold:
    times that GPUs count which a job holds, against restarts that gain little. late: part of those before it that
    the job that ends last passes (0: no guard). waited: how fast a job's rank rises while it has no GPUs (0: not).
    Why these defaults: plugins/README.md.
    """

    RULE: ClassVar[str] = "GPUs go where they gain most speed, those with little left first"

    p: float = 0.5
    c: float = 3.0
    hold: float = 1.1
    late: float = 0.4
    waited: float = 0.3

    def __post_init__(self) -> None:
        low = min(self.p, self.c, self.late, self.waited)
        if low < 0.0 or self.hold < 1.0 or self.late > 1.0:
            raise ValueError(
                "expected p, c and waited of at least 0, late from 0 to 1 and hold of at least 1; found "
                f"{self.p:g}, {self.c:g}, {self.waited:g}, {self.late:g} and {self.hold:g}"
            )

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Ranks, weights, and steps along the hulls until the GPUs are given."""
        table = snapshot.table
        if not len(table):
            return Grants(table.have)
        behind, steps, weight = self.ranked(table, snapshot.now)
        granted = hull.climb(table, steps, weight, self.hold)
        rows = np.flatnonzero(granted)
        why = {row: _words(n) for row, n in zip(rows.tolist(), behind[rows].tolist(), strict=True)}
        return Grants(granted, why=why)

    def ranked(self, table: Table, now: float) -> tuple[IntArray, hull.Ladders, FloatArray]:
        """(J,) how many jobs have more left than each, what they waited counted; the steps of all; (J,) weights w."""
        age = np.maximum(now - table.submitted, 0.0)
        remaining = _lengths(table)
        waiting = np.maximum(age - table.executed, 0.0)
        behind = _behind(remaining * (remaining / np.maximum(remaining + self.waited * waiting, 1e-9)))
        steps = hull.ladders(table)
        end = age + remaining / np.maximum(steps.top, 1e-9)
        near = (end / max(float(end.max()), 1e-9)) ** NEAR
        rank = 1.0 + behind + self.late * near * (len(table) - 1 - behind)
        return behind, steps, (rank + self.c) ** self.p


def _lengths(table: Table) -> FloatArray:
    """(J,) s of work left on one replica; see the module for those that nobody knows."""
    known = np.isfinite(table.remaining)
    if known.all():
        return table.remaining
    return np.where(known, table.remaining, np.maximum(table.progress, FIRST))


def _behind(left: FloatArray) -> IntArray:
    """(J,) how many jobs have more left than each; of equals the earlier row has less."""
    result = np.empty(len(left), dtype=np.int64)
    result[np.argsort(left, kind="stable")] = np.arange(len(left) - 1, -1, -1)
    return result


def _words(behind: int) -> str:
    """The first half of a reason; the second is `core.reasons.shares`': what more GPUs would gain, and who has
    them."""
    if not behind:
        return "it has the most left of all jobs, what they waited counted"
    has = "has" if behind == 1 else "have"
    return f"{plural(behind, 'job')} {has} more left than it, what they waited counted"
