"""Goodput of a training (Pollux, Qiao et al., OSDI'21, section 3): throughput times statistical efficiency.

A step on K replicas on N nodes, of s passes over m samples each on every replica, the last of which exchanges
gradients, takes (section 3.2)

    T(K, N, m, s) = (s - 1) T_grad + (T_grad^g + T_sync^g)^(1/g)          T_grad = a + b m
    T_sync        = 0 for K = 1, else p + q max(0, K - 2), with one (p, q) on one node and another on several

and trains M = K m s samples. Each of those is worth (noise + M0) / (noise + M) of one at the initial batch size M0;
noise is the gradient noise scale in samples (section 3.1). The seven parameters (theta) are fitted to what the job
has tried, and stay optimistic where it has tried nothing (section 4.1). Where the paper only says what is done,
numbers are its artifact's (simulator/goodput.py): starting values, bounds, penalties, 50 batch sizes in equal ratios.
Deviation: the fit is of the parameters' logarithms, since the seven are of very different size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from muster.cached import MIB, cached
from muster.types import BoolArray, FloatArray, IntArray

TINY = 1e-8
"""Least seconds of anything, and what 3.00000001 may be above 3."""
MOST = 1e6
"""Most seconds."""
ROUNDS = 60
"""Most iterations of a fit: it takes some milliseconds."""
SIZES = 50
"""Batch sizes that are compared where any may be chosen."""
START = (0.1, 0.01)
"""Seconds, and seconds a sample or replica, from which a fit begins."""
DEARER = 1.1
"""How much longer an exchange between nodes takes than one on a node, at least, while none was tried."""


class Tried(NamedTuple):
    """One configuration that a job has run with. local: samples a replica and pass; step: s of a pass that exchanges
    gradients; sync: s of the exchange in it, nan = not known."""

    nodes: int
    replicas: int
    local: int
    step: float
    sync: float = math.nan


class Limits(NamedTuple):
    """Batch sizes of a job. initial: M0; least, most: of all replicas together; least_local, most_local: of one
    replica and pass; sizes: the only ones that it takes, rising (empty: any from least to most); halves: one replica
    takes two passes at least for more than M0, as where noise is measured between passes (section 3.1)."""

    initial: int
    least: int
    most: int
    least_local: int = 1
    most_local: int = 1 << 40
    sizes: tuple[int, ...] = ()
    halves: bool = False


class Theta(NamedTuple):
    """(s, s a sample) of a pass; (s, s a further replica) of an exchange between nodes, and on one; how far both
    overlap, from 1 (one after the other) to 10 (at the same time)."""

    compute: tuple[float, float]
    network: tuple[float, float]
    node: tuple[float, float]
    overlap: float


class Best(NamedTuple):
    """(C,) each. goodput: samples/s, as many as at the initial batch size would do as much, 0 = it can't run so;
    throughput: samples/s; batch: the best batch size of all replicas together, 0 = it can't run so."""

    goodput: FloatArray
    throughput: FloatArray
    batch: IntArray


def efficiency(batch: FloatArray | float, initial: float, noise: float) -> FloatArray:
    """What a sample is worth at this batch size, of one at the initial size."""
    return np.asarray((noise + initial) / (noise + np.asarray(batch, dtype=np.float64)))


@cached("goodput", 8 * MIB)
def fitted(tried: frozenset[Tried]) -> Theta:
    """Theta, from one configuration on: least root mean squared error of logarithms, of passes and of steps.

    What nothing was tried of is taken as free: batch sizes beyond the only one tried, exchanges, further replicas.
    The same for the same measurements. Raises ValueError where nothing was tried.
    """
    from scipy.optimize import minimize

    if not tried:
        raise ValueError("tried: must be one configuration or more; found none")
    nodes, replicas, local, step, sync = np.array(sorted(tried), dtype=np.float64).T
    several, beside = nodes > 1, (nodes == 1) & (replicas > 1)
    known = ~np.isnan(sync)
    compute = np.maximum((step - sync)[known], TINY)
    values = np.array([*START * 3, 1.001])
    low, high = np.array([TINY] * 6 + [1.0]), np.array([MOST] * 6 + [10.0])
    fixed: dict[int, float] = {}
    if len(np.unique(local)) == 1:
        fixed[0] = float(compute.mean() if known.any() else step.min()) / 2.0
    if not several.any():
        fixed |= {2: TINY, 3: TINY}
    if not beside.any():
        fixed |= {4: TINY, 5: TINY}
    if not (replicas > 2).any():
        fixed |= {3: TINY, 5: TINY}
    for at, value in fixed.items():
        values[at] = low[at] = high[at] = value
    free = np.array([at for at in range(len(values)) if at not in fixed])

    least, logs = _Error(nodes, replicas, local, np.log(step), known, np.log(compute)), np.log(values)

    def error(some: FloatArray) -> tuple[float, FloatArray]:
        logs[free] = some
        wrong, slopes = least(logs)
        return wrong, slopes[free]

    bounds = list(zip(np.log(low[free]), np.log(high[free]), strict=True))
    done = minimize(
        error,
        logs[free],
        method="L-BFGS-B",
        jac=True,
        bounds=bounds,
        options={"maxiter": ROUNDS},
    )
    values[free] = np.exp(done.x)
    if not several.any():
        values[2:4] = np.maximum(values[2:4], DEARER * values[4:6])
    v = [float(value) for value in values]
    return Theta((v[0], v[1]), (v[2], v[3]), (v[4], v[5]), v[6])


class _Error:
    """What is minimised, and its (7,) slopes, by the logarithms of theta's seven values.

    nodes, replicas, local: (C,) what was tried; step: (C,) logarithms of its seconds; known: (C,) whether the
    exchange is known; compute: logarithms of the seconds of a pass of those.
    """

    def __init__(self, nodes: FloatArray, replicas: FloatArray, local: FloatArray, step: FloatArray,
                 known: BoolArray, compute: FloatArray) -> None:  # fmt: skip
        self.step, self.known, self.compute = step, known, compute
        ones, further = np.ones(len(nodes)), np.maximum(replicas - 2.0, TINY)
        several, beside = nodes > 1, (nodes <= 1) & (replicas > 1)
        self.of_pass = np.stack([ones, local])
        self.of_exchange = np.stack([several, several * further, beside, beside * further])
        self.alone = np.where(several | beside, 0.0, TINY)

    def __call__(self, logs: FloatArray) -> tuple[float, FloatArray]:
        theta, slopes = np.exp(logs), np.zeros(7)
        # 1 seconds, and how their logarithms change with those of theta
        parts = theta[:2, None] * self.of_pass, theta[2:6, None] * self.of_exchange
        seconds = parts[0].sum(axis=0), parts[1].sum(axis=0) + self.alone
        passes, exchange = np.log(seconds[0]), np.log(seconds[1])
        by_pass, by_exchange = parts[0] / seconds[0], parts[1] / seconds[1]
        overlap = theta[6]
        steps = np.logaddexp(overlap * passes, overlap * exchange) / overlap
        share = np.exp(overlap * (passes - steps))  # of the pass in the step
        by_overlap = share * passes + (1.0 - share) * exchange - steps
        # 2 the errors of steps and of passes
        wrong, pull = _rms(steps - self.step)
        slopes[:2] = (by_pass * (pull * share)).sum(
            axis=1
        )  # sums: threads of a BLAS cost more than they do here
        slopes[2:6] = (by_exchange * (pull * (1.0 - share))).sum(axis=1)
        slopes[6] = (by_overlap * pull).sum()
        if self.known.any():
            more, pull = _rms(passes[self.known] - self.compute)
            wrong += more
            slopes[:2] += (by_pass[:, self.known] * pull).sum(axis=1)
        # 3 penalties: overlap above 1, and further replicas that cost as much as the first
        wrong += 1e-3 * (overlap - 1.0) ** 2
        slopes[6] += 2e-3 * (overlap - 1.0) * overlap
        for first, further in ((2, 3), (4, 5)):
            ratio = (theta[further] / theta[first]) ** 2
            wrong += 1e-2 * ratio
            slopes[further] += 2e-2 * ratio
            slopes[first] -= 2e-2 * ratio
        return float(wrong), slopes


def best(
    theta: Theta, noise: float, limits: Limits, nodes: tuple[int, ...], replicas: tuple[int, ...]
) -> Best:
    """The batch size with the greatest goodput on each of C configurations, given as (C,) nodes and replicas.

    More passes than one where a replica's part is larger than most_local, and as the limits' halves say.
    """
    n, k = np.array(nodes, dtype=np.float64), np.array(replicas, dtype=np.float64)
    least = np.maximum(limits.least, limits.least_local * k)
    if limits.sizes:
        asked = np.array(limits.sizes, dtype=np.float64)[:, None] * np.ones(len(k))
    else:
        asked = np.geomspace(np.minimum(least, limits.most), limits.most, SIZES)
    part = asked / k
    passes = np.maximum(1.0, np.ceil(part / limits.most_local - TINY))
    if limits.halves:
        passes = np.where((k == 1) & (part > limits.initial + TINY), np.maximum(passes, 2.0), passes)
    local = np.ceil(part / passes - TINY)
    batch = asked if limits.sizes else k * local * passes
    vector = np.array([*theta.compute, *theta.network, *theta.node, theta.overlap])
    seconds = _pass(vector, local)
    seconds = (passes - 1.0) * seconds + _step(vector, seconds, _exchange(vector, n, k))
    throughput = batch / seconds
    fits = (limits.least_local <= local) & (local <= limits.most_local) & (least <= limits.most)
    goodput = np.where(fits, throughput * efficiency(batch, limits.initial, noise), 0.0)
    rows = goodput.argmax(axis=0), np.arange(len(k))
    chosen = np.where(goodput[rows] > 0.0, np.minimum(batch[rows], limits.most), 0.0)
    return Best(goodput[rows], np.where(chosen > 0.0, throughput[rows], 0.0), chosen.astype(np.int64))


def _pass(theta: FloatArray, local: FloatArray) -> FloatArray:
    found: FloatArray = theta[0] + theta[1] * local
    return found


def _exchange(theta: FloatArray, nodes: FloatArray, replicas: FloatArray) -> FloatArray:
    which = [nodes > 1, replicas > 1]
    first = np.select(which, [theta[2], theta[4]], TINY)
    further = np.select(which, [theta[3], theta[5]], TINY)
    found: FloatArray = first + further * np.maximum(replicas - 2.0, TINY)
    return found


def _step(theta: FloatArray, passes: FloatArray, exchange: FloatArray) -> FloatArray:
    found: FloatArray = (passes ** theta[6] + exchange ** theta[6]) ** (1.0 / theta[6])
    return found


def _rms(errors: FloatArray) -> tuple[float, FloatArray]:
    """Root mean square, and (C,) its slopes."""
    found = float(np.sqrt((errors**2).mean()))
    return found, errors / (len(errors) * found) if found else np.zeros(len(errors))
