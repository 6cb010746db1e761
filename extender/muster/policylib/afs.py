"""Apathetic Future Share: who gets the next GPU (papers/afs-coddl, section 3.3, Algorithm 1, inequality (3)).

A job on its present step has the *gain* a = p'/p - 1 and the *loss* b = 1 - p/p', where p is its throughput now
and p' that on the next step (for a step of several GPUs both are divided by their number). Of two jobs the longer,
h, takes the GPU from the shorter, l, if b(h) >= a(l): inequality (3), with equality going to the longer job as in
the authors' code. A GPU's winner is found by one scan over the jobs in their order: a candidate is kept until
another beats it. The relation is *not* transitive once lengths enter (appendix C proves only the case in which
every winner is the longer one): x may beat y and y beat z as the shorter ones although z, the longest, beats x. So
the winner depends on the order, and all functions here give exactly the scan's result.

Three ways to the same result, by size:
- `_scan` in Python, which goes on where the scan for the GPU before stays valid (see there);
- `afs_compiled.scan`, the same compiled by numba;
- `afs_compiled.ranked`, which skips blocks of jobs in which nobody beats the candidate: 10,000 jobs and more.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from muster.policylib import greedy
from muster.policylib.ladders import Ladders
from muster.types import FloatArray, IntArray, Table

LARGE = 200_000
"""Jobs x GPUs from which a single scan is worth the compiled kernels at once (their import takes 0.4 s)."""
MANY = 3_000_000
"""Jobs x GPUs over all scans of this process from which it is worth them too: by then Python has taken as long."""
COMPILED = "muster.policylib.afs_compiled"
DONE = -math.inf
"""The gain of a job that takes no more."""


def ladders(speeds: FloatArray, counts: Sequence[Sequence[int]], unit: Sequence[int]) -> Ladders:
    """Ladders from (C, K+1) speeds by count, the allowed counts of each class and GPUs of one replica."""
    classes = len(counts)
    width = max((len(c) for c in counts), default=1)
    count = np.zeros((classes, width), dtype=np.int64)
    price = np.ones((classes, width), dtype=np.int64)
    speed = np.ones((classes, width), dtype=np.float64)
    gain = np.full((classes, width), -np.inf)
    loss = np.full((classes, width), -np.inf)
    for c, allowed in enumerate(counts):
        n = len(allowed)
        count[c, :n] = allowed
        speed[c, :n] = speeds[c, count[c, :n]]
        if n > 1:
            price[c, : n - 1] = np.diff(count[c, :n]) * unit[c]
            below, above, gpus = speed[c, : n - 1], speed[c, 1:n], price[c, : n - 1]
            gain[c, : n - 1] = (above / below - 1.0) / gpus
            loss[c, : n - 1] = (1.0 - below / above) / gpus
    return Ladders(count, price, speed, gain, loss, np.array([len(c) for c in counts], dtype=np.int64))


class _Recent:
    """The ladders made last: the curves of a table are the same object as long as no other model comes."""

    def __init__(self) -> None:
        self.curves: FloatArray | None = None
        self.ends: IntArray = np.zeros(
            0, dtype=np.int64
        )  # (C,) most of the jobs of each curve, 0 = none so far
        self.made: Ladders | None = None
        self.done = 0  # jobs x GPUs scanned in this process

    def of(self, table: Table) -> tuple[Ladders, IntArray]:
        """The ladders of a table's jobs and (J,) the class of each."""
        if not greedy.plain(table):
            return _classes(table)
        # In the simple case a class is a curve, cut off where its jobs' most is (one most a curve, as a rule).
        curve, max_count = table.curve, table.max
        if self.curves is not table.curves or self.made is None:
            self.made, self.curves = None, table.curves
            self.ends = np.zeros(len(table.curves), dtype=np.int64)
        elif (self.ends[curve] == max_count).all():
            return self.made, curve
        ends = self.ends.copy()
        ends[curve] = max_count
        if (ends[curve] != max_count).any():
            return _classes(table)
        self.ends = ends
        self.made = ladders(table.curves, [range(1, max(int(end), 1) + 1) for end in ends], [1] * len(ends))
        return self.made, curve


_RECENT = _Recent()


def _classes(table: Table) -> tuple[Ladders, IntArray]:
    """Ladders for jobs of any kind: a class for each different (curve, counts, GPUs of a replica)."""
    known: dict[tuple[Any, ...], int] = {}
    index = np.empty(len(table), dtype=np.int64)
    curves: list[int] = []
    counts: list[Sequence[int]] = []
    unit: list[int] = []
    for row in range(len(table)):
        allowed = greedy.steps(table, row)
        key = (int(table.curve[row]), int(table.unit[row]), tuple(allowed))
        if key not in known:
            known[key] = len(known)
            curves.append(key[0])
            unit.append(key[1])
            counts.append(allowed)
        index[row] = known[key]
    return ladders(table.curves[curves], counts, unit), index


def distribute(table: Table, left: int, remaining: FloatArray, rows: IntArray | None = None) -> IntArray:
    """(J,) replicas by Algorithm 1's second stage: every job has its least, `left` GPUs go one by one (AFS-L).

    rows: the jobs that take part, in their order (None: all); the others get nothing.

    The scan is in the order of rows. remaining: (J,) s on one replica; unknown lengths are inf. Where a step's GPUs
    are more than what is left, that job takes no more.
    """
    steps, kind = _RECENT.of(table)
    if rows is not None:
        kind, remaining = kind[rows], remaining[rows]
    kernel = _kernel(len(kind) * left)
    if kernel is None:
        place = _scan(steps, kind.tolist(), remaining.tolist(), left)
    else:
        place = kernel.spread(steps, kind, remaining, left)
    granted: IntArray = steps.count[kind, place]
    if rows is None:
        return granted
    result = np.zeros(len(table), dtype=np.int64)
    result[rows] = granted
    return result


def distribute_unknown(table: Table, order: IntArray, left: int, seed: int) -> IntArray:
    """The same without lengths (section 3.3, "Handling unknown job lengths"): (3) is tried in both directions, and
    where neither job beats the other, one of them at random.

    seed: of the coin; a coin is thrown for each pair that needs one, in the order of the scan.
    """
    steps, index = _RECENT.of(table)
    kind = index[order]
    kernel = _kernel(len(order) * left)
    if kernel is None:
        place = _scan_unknown(steps, kind.tolist(), left, seed)
    else:
        place = kernel.spread_unknown(steps, kind, left, seed)
    granted = np.zeros(len(table), dtype=np.int64)
    granted[order] = steps.count[kind, place]
    return granted


def _kernel(work: int) -> Any:
    """The compiled scans where they pay, else None."""
    _RECENT.done += work
    if work < LARGE and _RECENT.done < MANY and COMPILED not in sys.modules:
        return None
    from muster.policylib import afs_compiled

    return afs_compiled


def _scan(steps: Ladders, kind: list[int], remaining: list[float], left: int) -> list[int]:
    """The step of each job after `left` GPUs, jobs in the order of the scan.

    A scan for one GPU leaves a chain of candidates: the first job, the first after it that beats it, and so on; the
    last one wins. Only the winner changes its state, and the jobs between two candidates have been beaten by the
    former, so for the next GPU the chain up to the winner's predecessor is the same: the scan goes on from
    there, with the winner (one step higher) as the first that may beat it.
    """
    gains, losses, speeds, prices, ends = steps.lists
    everything = sum(sum(prices[k][: ends[k] - 1]) for k in kind)
    if everything <= left:  # whoever wins when, all end at their last step
        return [ends[k] - 1 for k in kind]
    jobs = len(kind)
    place = [0] * jobs
    length = [work / speeds[k][0] for work, k in zip(remaining, kind, strict=True)]
    gain = [gains[k][0] for k in kind]  # -inf: it has no next step, and beats nobody
    loss = [losses[k][0] for k in kind]
    chain: list[int] = []
    at = 0  # from where the scan goes on
    while left > 0:
        if not chain:
            while at < jobs and gain[at] == DONE:
                at += 1
            if at == jobs:
                break
            chain.append(at)
            at += 1
        best = chain[-1]
        long, more, less = length[best], gain[best], loss[best]
        for job in range(at, jobs):
            if gain[job] > less if length[job] < long else loss[job] >= more:
                chain.append(job)
                best = job
                long, more, less = length[job], gain[job], loss[job]
        chain.pop()
        at = best + 1
        k, step = kind[best], place[best]
        price = prices[k][step]
        if price <= left:
            left -= price
            place[best] = step = step + 1
            if step + 1 < ends[k]:
                length[best] = long = remaining[best] / speeds[k][step]
                gain[best] = more = gains[k][step]
                loss[best] = less = losses[k][step]
                if not chain:
                    chain.append(best)
                else:
                    other = chain[-1]
                    if more > loss[other] if long < length[other] else less >= gain[other]:
                        chain.append(best)
                continue
        gain[best] = loss[best] = DONE
    return place


def coin(seed: int, throw: int) -> bool:
    """The coin's throw number `throw`: the same bits in Python and compiled (splitmix64)."""
    mixed = (seed + throw * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return bool((mixed ^ (mixed >> 31)) & 1)


def _scan_unknown(
    steps: Ladders, kind: list[int], left: int, seed: int, toss: Callable[[int, int], bool] = coin
) -> list[int]:
    """The step of each job after `left` GPUs where lengths are unknown: a whole scan for each GPU, since coins are
    thrown again."""
    gains, losses, _, prices, ends = steps.lists
    place = [0] * len(kind)
    taking = [i for i, k in enumerate(kind) if ends[k] > 1]
    gain = [gains[k][0] for k in kind]
    loss = [losses[k][0] for k in kind]
    throw = 0
    while left > 0 and taking:
        best = taking[0]
        more, less = gain[best], loss[best]
        for job in taking[1:]:
            if loss[job] < more:
                if less >= gain[job]:
                    continue
                throw += 1
                if toss(seed, throw):
                    continue
            best = job
            more, less = gain[job], loss[job]
        kind_, step = kind[best], place[best]
        price = prices[kind_][step]
        if price > left:
            taking.remove(best)
            continue
        left -= price
        place[best] = step + 1
        if step + 2 >= ends[kind_]:
            taking.remove(best)
        else:
            gain[best], loss[best] = gains[kind_][step + 1], losses[kind_][step + 1]
    return place
