"""Sharing one resource among jobs: all or nothing in an order, level by level, and by marginal gain.

What every sharing policy is made of, on the columns of `muster.types.Table`. No function assumes that throughput
is concave: a job's next step is the next count that it is allowed, whatever it gains, and a step that gains
nothing ends that job's growth as it does in the papers' own simulators.

Costs are GPUs: `unit` a replica, and `fixed` once for the job's other roles.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from muster.types import FloatArray, IntArray, Table


def cost(table: Table, replicas: IntArray) -> IntArray:
    """(J,) GPUs of `replicas` of each job, as if all of them ran."""
    return replicas * table.unit + table.fixed


def steps(table: Table, row: int) -> Sequence[int]:
    """The counts that a job may have, ascending, without 0."""
    return table.sizes.get(row) or range(int(table.min[row]), int(table.max[row]) + 1)


def _next(table: Table, row: int, here: int) -> int:
    """The count that comes after `here`, 0 = none."""
    sizes = table.sizes.get(row)
    if sizes is not None:
        return next((s for s in sizes if s > here), 0)
    following = max(here + 1, int(table.min[row]))
    return following if following <= table.max[row] else 0


def plain(table: Table) -> bool:
    """Whether every job may have every count from 1 to its most, and a replica is a GPU: the case of the papers."""
    known: bool | None = getattr(table, "simple", None)  # an engine that keeps its columns knows it
    if known is not None:
        return known
    return not (table.sizes or (table.unit != 1).any() or (table.min != 1).any() or (table.fixed != 0).any())


def in_order(table: Table, order: IntArray, replicas: IntArray, gpus: int | None = None) -> IntArray:
    """(J,) `replicas` for each job of `order` that still fits, 0 for the others: what doesn't fit is skipped.

    order: rows, first first (all of them or some). gpus: GPUs to share, default all of the table's.
    """
    left = table.gpus if gpus is None else gpus
    granted = np.zeros(len(table), dtype=np.int64)
    need = cost(table, replicas)[order]
    at = 0
    while at < len(order):
        # As many as fit one after another, then on to the next that still fits.
        run = int(np.searchsorted(np.cumsum(need[at:]), left, side="right"))
        taken = order[at : at + run]
        granted[taken] = replicas[taken]
        left -= int(need[at : at + run].sum())
        at += run
        if at >= len(order) or left <= 0:
            break
        fitting = np.flatnonzero(need[at:] <= left)
        if not len(fitting):
            break
        at += int(fitting[0])
    return granted


def by_key(table: Table, key: FloatArray, replicas: IntArray) -> IntArray:
    """`in_order` by a key, smallest first (nan last), ties by row."""
    return in_order(table, np.argsort(key, kind="stable"), replicas)


def times(table: Table, replicas: IntArray) -> FloatArray:
    """(J,) s that each job would still take at `replicas`, nan = unknown; beyond what fits on the cluster as at the
    most that does (such a job is not started, see `in_order`).

    An engine that knows iterations and their seconds multiplies them itself (`Table` without this has them divided
    and multiplied by those of one replica): of jobs that are equally long, rounding then orders none.
    """
    at = np.minimum(replicas, table.curves.shape[1] - 1)
    exact = getattr(table, "times", None)
    result: FloatArray
    if exact is not None:
        result = exact(at)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            result = table.remaining / table.curves[table.curve, at]
    return result


def check_size(size: str) -> None:
    """Raises ValueError where a rigid policy's parameter `size` is not one that `sized` knows."""
    if size not in ("request", "most"):
        raise ValueError(f"size: must be request or most; found {size!r}")


def sized(table: Table, size: str) -> IntArray:
    """(J,) replicas that a rigid policy grants: "request" (what owners asked for) or "most" (what models can use)."""
    return table.request if size == "request" else table.max


def leasts(table: Table) -> int:
    """GPUs of the least of all jobs together."""
    return len(table) if plain(table) else int(cost(table, table.min).sum())


def crowded(table: Table) -> bool:
    """Whether there are as many jobs as GPUs or more: the least of all jobs uses the GPUs up."""
    return leasts(table) >= table.gpus


def shortest(table: Table, key: FloatArray) -> IntArray:
    """(J,) the least for as many jobs as fit, by a key, smallest first (nan last), ties by row.

    Where that is a GPU each, the jobs are found without a sort.
    """
    count = table.gpus
    if count >= len(table) or not plain(table):
        return by_key(table, key, table.min)
    granted = np.zeros(len(table), dtype=np.int64)
    bound = -np.inf
    if count:
        parted = key.copy()
        parted.partition(count - 1)
        bound = float(parted[count - 1])
    if bound != bound:  # unknown lengths come last; here some of them run
        return by_key(table, key, table.min)
    chosen = (key <= bound).nonzero()[0]
    if len(chosen) > count:
        ties = (key[chosen] == bound).nonzero()[0]
        chosen = np.delete(chosen, ties[count - len(chosen) :])
    granted[chosen] = 1
    return granted


def level(table: Table, order: IntArray, left: int, start: IntArray | None = None) -> IntArray:
    """(J,) replicas by max-min fairness: round after round one step more for each job of `order` that can take it.

    A job's first step is the least that it may have, each later one the next allowed count; one that does not fit
    what is left is skipped. start: what jobs have already (not taken from `left`).
    """
    granted = np.zeros(len(table), dtype=np.int64) if start is None else start.copy()
    if start is None and plain(table):
        return _even(table, order, left, granted)
    taking = [int(row) for row in order]
    while taking and left > 0:
        still = []
        for row in taking:
            here = int(granted[row])
            following = _next(table, row, here)
            price = (following - here) * int(table.unit[row]) + (0 if here else int(table.fixed[row]))
            if not following or price > left:
                continue
            granted[row] = following
            left -= price
            still.append(row)
        taking = still
    return granted


def _even(table: Table, order: IntArray, left: int, granted: IntArray) -> IntArray:
    """`level` for jobs that may have every count from 1: the common level, then one more each in order."""
    if left <= len(order):
        chosen = order[:left]
        granted[chosen] = 1
        return granted
    max_count = table.max[order]
    caps = np.sort(max_count)
    # With the k smallest caps full, the rest share what is left: find the level between two caps.
    full = np.concatenate(([0], np.cumsum(caps)))
    rest = len(caps) - np.arange(len(caps))
    reach = full[:-1] + caps * rest  # GPUs used when the level is caps[k]
    k = int(np.searchsorted(reach, left, side="right"))
    if k == len(caps):
        granted[order] = max_count
        return granted
    height, over = divmod(left - int(full[k]), int(rest[k]))
    shares = np.minimum(max_count, height)
    shares[np.flatnonzero(max_count > height)[:over]] += 1
    granted[order] = shares
    return granted


Gain = Callable[[int, int, int], float]
"""Row, count, next count: what a step from the one to the other is worth; one worth nothing is not made."""


def by_gain(table: Table, start: IntArray, left: int, gain: Gain, rows: IntArray) -> IntArray:
    """(J,) replicas: again and again a step for the job whose step gains most per GPU, ties to the earlier row.

    start: (J,) what jobs have before. rows: who takes part. A job whose step gains nothing takes no more; one whose
    step does not fit what is left neither. A step's gain depends on its own job only, so a heap finds what a scan
    over all jobs would.
    """
    granted: list[int] = start.tolist()
    max_count, unit, fixed = table.max.tolist(), table.unit.tolist(), table.fixed.tolist()
    simple = plain(table)
    heap: list[tuple[float, int, int, int]] = []

    def offer(row: int) -> None:
        here = granted[row]
        if simple:
            following = here + 1 if here < max_count[row] else 0
        else:
            following = _next(table, row, here)
        if following:
            price = (following - here) * unit[row] + (0 if here else fixed[row])
            worth = gain(row, here, following) / price
            if worth > 0.0:
                heapq.heappush(heap, (-worth, row, following, price))

    for row in rows.tolist():
        offer(row)
    while heap and left > 0:
        _, row, following, price = heapq.heappop(heap)
        if price > left:
            continue
        granted[row] = following
        left -= price
        offer(row)
    return np.array(granted, dtype=np.int64)
