"""Shares of time by GPU product, as linear programmes (Gavel, Narayanan et al., OSDI'20, §3 and §4).

An allocation X is (J, P): the share of its time that job j is to spend on product p. It is *valid* (Gavel, §3.1) if

    X >= 0,    sum_p X[j, p] <= 1,    sum_j gpus[j] X[j, p] <= capacity[p],

and job j then advances at sum_p speed[j, p] X[j, p]. Pairs of jobs that share GPUs are Q further rows: they count
for the time of both and for the GPUs of one. All the policies here ask for the valid X of which the worst job does
best, by their own measure of well: one linear programme, max z with worth[j] times j's speed >= z.

Its optimum is seldom unique: what the worst job does not need may be given to any other. Gavel leaves the choice to
its solver (ECOS, an interior point method, which ends near the middle of all optima); a simplex ends in a corner,
where many shares are zero for no reason. Here it is the middle itself, the *analytic centre* of the optimal face
(`centre`): unique, so the same on every machine. Beyond `LARGEST` jobs, where its dense equations take too
long, it is HiGHS's corner (scipy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from muster.types import BoolArray, FloatArray

LARGEST = 400
"""Jobs up to which the centre is computed: 0.1 s for 100, about 5 s for 400."""
WIDEST = 2500
"""Columns up to which it is computed: pairs make many."""
ACCURACY = 1e-8
"""Complementarity at which the central path ends, in units of the scaled programme."""
DIGITS = 6
"""Decimal places of a share that mean something: the rest is noise of the arithmetic, and decides no order."""
FAIRNESS_STEP = 1e-3
"""Relative width at which the search for the least worst fairness ends."""


@dataclass(frozen=True)
class Market:
    """speed: (J, P) iterations/s of each job on each product, 0 = can't run there; gpus: (J,) that it needs at once;
    capacity: (P,) GPUs of each product. pairs: Q pairs of rows that may share GPUs (both need as many), together:
    (Q, 2, P) how fast the first and the second of a pair are then (Gavel, §3.1, space sharing)."""

    speed: FloatArray
    gpus: FloatArray
    capacity: FloatArray
    pairs: tuple[tuple[int, int], ...] = ()
    together: FloatArray = field(default_factory=lambda: np.zeros((0, 2, 0)))

    def __len__(self) -> int:
        return len(self.gpus)

    def rates(self) -> FloatArray:
        """(J, J + Q, P) iterations/s of each job in each combination: each job alone, then each pair."""
        jobs, products = self.speed.shape
        rates = np.zeros((jobs, jobs + len(self.pairs), products))
        rates[np.arange(jobs), np.arange(jobs)] = self.speed
        for place, (first, second) in enumerate(self.pairs, start=jobs):
            rates[first, place], rates[second, place] = self.together[place - jobs]
        return rates


# ---- the policies' allocations ----


def equal_split(market: Market) -> FloatArray:
    """(J, P) the same for all: each product by its part of all GPUs (what Gavel scales speeds by)."""
    part: FloatArray = market.capacity / market.capacity.sum()
    return np.tile(part, (len(market), 1))


def isolated(market: Market) -> FloatArray:
    """(J, P) every job its own part of every product, 1/J of the GPUs, as shares of its time (Gavel's `Isolated`)."""
    shares = np.tile(market.capacity / len(market), (len(market), 1)) / market.gpus[:, None]
    fitted: FloatArray = shares / np.maximum(shares.sum(axis=1), 1.0)[:, None]
    return fitted


def max_min(market: Market, weight: FloatArray | None = None) -> FloatArray:
    """(J + Q, P) of max-min fairness, eq. in §4.1: speed over that of an equal split, times GPUs, over weight."""
    fair = (market.speed * equal_split(market)).sum(axis=1)
    worth = market.gpus / np.where(fair > 0.0, fair, 1.0)
    return best_worst(market, worth if weight is None else worth / weight)[0]


def least_makespan(market: Market, steps: FloatArray) -> FloatArray:
    """(J + Q, P) with which the job that takes longest for its `steps` is done soonest (§4.2, minimise makespan).

    Gavel searches the least time in steps of 5 %; it is the inverse of z where worth is one over steps.
    """
    return best_worst(market, 1.0 / np.maximum(steps, 1e-9))[0]


def finish_time_fair(market: Market, steps: FloatArray, since: FloatArray, alone: FloatArray) -> FloatArray:
    """(J + Q, P) that make the worst finish-time fairness rho least (§4.2; Themis):

    rho = (since + steps / speed of X) / alone, with `since` s since submission and `alone` s from submission to
    completion had the job its isolated share all along. rho >= r is a linear condition for a given r, so r is
    searched by halving; worst jobs that even all GPUs can't save decide it.
    """

    def need(r: float) -> FloatArray:
        least: FloatArray = steps / np.maximum(r * alone - since, 1e-9)
        return np.maximum(least, 1e-12)

    def reached(r: float) -> bool:
        return best_worst(market, 1.0 / need(r), corner=True)[1] >= 1.0

    low = float((since / alone).max())
    high = max(1.0, 2.0 * low)
    while not reached(high):
        low, high = high, 2.0 * high
        if high > 1e9:  # a job that can run nowhere
            break
    while high - low > FAIRNESS_STEP * high:
        middle = 0.5 * (low + high)
        if reached(middle):
            high = middle
        else:
            low = middle
    return best_worst(market, 1.0 / need(high))[0]


# ---- the programme ----


def best_worst(market: Market, worth: FloatArray, *, corner: bool = False) -> tuple[FloatArray, float]:
    """A valid X (J + Q, P) with the greatest z <= worth[j] speed[j] for all jobs, and z; worth: (J,).

    A job that can run nowhere is left out of the minimum: it would pull it to 0 for everybody. corner: any optimum
    will do.
    """
    rates = market.rates() * worth[:, None, None]
    jobs, combinations, products = rates.shape
    best = rates.reshape(jobs, -1).max(axis=1)
    counts = best > 0.0
    if not counts.any():
        return np.zeros((combinations, products)), 0.0
    unit = float(best[counts].min())  # z <= 1 in this unit, however far apart the jobs' measures are
    cost, rows, bound = _programme(market, rates / unit, counts)
    large = jobs > LARGEST or rows.shape[1] > WIDEST
    found = (highs if corner or large else centre)(cost, rows, bound)
    shares = np.clip(found[:-1].reshape(combinations, products), 0.0, 1.0).round(DIGITS)
    return shares, float(found[-1]) * unit


def _programme(
    market: Market, rates: FloatArray, counts: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """min cost x with rows x <= bound, x >= 0, of the (J + Q) P shares and z."""
    jobs, combinations, products = rates.shape
    member = np.zeros((jobs, combinations))
    member[np.arange(jobs), np.arange(jobs)] = 1.0
    gpus = np.zeros(combinations)
    gpus[:jobs] = market.gpus
    for place, (first, second) in enumerate(market.pairs, start=jobs):
        member[[first, second], place] = 1.0
        gpus[place] = market.gpus[first]
    time = np.hstack([np.repeat(member, products, axis=1), np.zeros((jobs, 1))])
    use = np.hstack(
        [np.tile(np.eye(products), combinations) * np.repeat(gpus, products), np.zeros((products, 1))]
    )
    worst = np.hstack([-rates.reshape(jobs, -1), np.ones((jobs, 1))])[counts]
    worst /= np.abs(worst).max(axis=1, keepdims=True)
    cost = np.zeros(combinations * products + 1)
    cost[-1] = -1.0
    bound = np.concatenate([np.ones(jobs), market.capacity, np.zeros(len(worst))])
    return cost, np.vstack([time, use, worst]), bound


def highs(cost: FloatArray, rows: FloatArray, bound: FloatArray) -> FloatArray:
    """An optimal corner of min cost x, rows x <= bound, x >= 0. Raises ValueError where there is none."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    result = linprog(cost, A_ub=csr_array(rows), b_ub=bound, bounds=(0.0, None), method="highs")
    if result.status != 0:
        raise ValueError(f"the linear programme has no solution: {result.message}")
    return np.asarray(result.x, dtype=np.float64)


def centre(cost: FloatArray, rows: FloatArray, bound: FloatArray) -> FloatArray:
    """The analytic centre of the optima of min cost x, rows x <= bound, x >= 0, within ACCURACY.

    The central path (Wright, Primal-Dual Interior-Point Methods, 1997, ch. 5): Newton steps to the point where
    every x z equals mu, for ever smaller mu, each reached well before the next. Its limit is the centre. Where
    numbers get the better of it, HiGHS's corner.
    """
    matrix = np.hstack([rows, np.eye(len(rows))])  # slacks make the rows equations
    price = np.concatenate([cost, np.zeros(len(rows))])
    scale = max(1.0, float(np.abs(bound).max()))
    x, z, y = np.full(len(price), scale), np.ones(len(price)), np.zeros(len(rows))
    mu = scale
    for step in range(1, 201):
        short, dual = bound - matrix @ x, price - matrix.T @ y - z
        feasible = max(float(np.abs(short).max()), float(np.abs(dual).max())) < 1e-9 * scale
        if feasible and float(np.abs(x * z / mu - 1.0).max()) < 0.1:
            if mu <= ACCURACY:
                return x[: len(cost)]
            mu *= 0.2
        elif not feasible and step % 3 == 0:
            mu = max(0.5 * mu, ACCURACY)
        try:
            x, y, z = _newton(matrix, x, y, z, short, dual, mu)
        except np.linalg.LinAlgError:
            break
    return highs(cost, rows, bound)


def _newton(
    matrix: FloatArray,
    x: FloatArray,
    y: FloatArray,
    z: FloatArray,
    short: FloatArray,
    dual: FloatArray,
    mu: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """One step towards x z = mu, rows met, prices met; no further than 95 % of the way to the boundary."""
    ratio = x / z
    normal = (matrix * ratio) @ matrix.T
    normal[np.diag_indices_from(normal)] += 1e-14 * float(normal.trace()) / len(normal)
    miss = mu - x * z
    lower = np.linalg.cholesky(normal)
    right = short + matrix @ (ratio * dual - miss / z)
    by_y = np.linalg.solve(lower.T, np.linalg.solve(lower, right))
    by_z = dual - matrix.T @ by_y
    by_x = miss / z - ratio * by_z
    far = _reach(x, by_x)
    back = _reach(z, by_z)
    return x + far * by_x, y + back * by_y, z + back * by_z


def _reach(value: FloatArray, step: FloatArray) -> float:
    falling = step < 0.0
    return min(1.0, 0.95 * float((-value[falling] / step[falling]).min(initial=math.inf)))
