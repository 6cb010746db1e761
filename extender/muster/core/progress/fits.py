"""Curves fitted to what jobs report: where a loss is going, how speed grows with replicas.

Every fit here is least squares with non-negative coefficients, as Optimus has them (its section 3; papers/
adaptive-gpu-scheduler-sidecar III-C and papers/gang-scheduler-coach 4.2 take them over), and each says what it
does where the points do not determine the coefficients. None of them knows a policy.

- `fit_convergence`: the evaluation function over iterations, l(k) = 1 / (b0 k + b1) + b2.
- `fit_speed`: Optimus's speed of a job with parameter servers (or, without servers, of an all-reduce job).
- `fit_surface`: Coach's quadratic surface over workers and servers.
- `reached`: Coach's rule for the end, the target several epochs running.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.types import FloatArray

COARSE = np.geomspace(1.0, 1e-6, 48)
"""Asymptotes tried, as distances from the highest possible one relative to it: from 0 to ever closer to it, since
the residual may have several valleys."""
FINE, ZOOMS = 17, 8
"""Then the best is refined, to 1 / 8 of the interval each time."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """l(k) = 1 / (b0 k + b1) + b2 over iterations k, all coefficients >= 0 (Optimus section 3.1, equation 1).

    `mirror` is c where the curve was fitted to c - value (an accuracy that rises towards c), nan for a loss.
    """

    b0: float
    b1: float
    b2: float
    mirror: float = math.nan

    def value(self, step: float) -> float:
        bottom = self.b0 * step + self.b1
        falling = (1.0 / bottom if bottom > 0.0 else math.inf) + self.b2
        return falling if math.isnan(self.mirror) else self.mirror - falling

    def step_at(self, target: float) -> float:
        """Iterations until the value is at `target`; +inf where the curve never gets there, never below 0."""
        above = (target if math.isnan(self.mirror) else self.mirror - target) - self.b2
        if above <= 0.0:
            return math.inf
        if self.b0 <= 0.0:
            return 0.0 if self.b1 * above >= 1.0 else math.inf
        return max(0.0, (1.0 / above - self.b1) / self.b0)


def fit_convergence(
    steps: Sequence[float],
    values: Sequence[float],
    ceiling: float = math.nan,
    target: float | None = None,
) -> Convergence | None:
    """The curve through (iterations, evaluation) points; None for fewer than three points or no fall at all.

    ceiling: for a value that rises (Top-5 accuracy: 1.0), the fit is to ceiling - value. target: a value that the
    curve is known to reach in the end (the training stops there), which keeps b2 below it. With b2 fixed,
    1 / (l - b2) = b0 k + b1 is linear: a non-negative least-squares problem of two unknowns (solved directly),
    its rows weighted with (l - b2)^2 so that what is least is the error in l and not in its inverse, where the last
    points would drown all others. b2 itself is found by a scan over [0, min l), ever closer around the best (Optimus
    leaves open how it finds b2).
    """
    k = np.asarray(steps, dtype=np.float64)
    l = np.asarray(values, dtype=np.float64)  # noqa: E741 - the paper's letter
    goal = math.inf if target is None else target
    if not math.isnan(ceiling):
        l = ceiling - l  # noqa: E741
        goal = math.inf if target is None else ceiling - target
    good = np.isfinite(k) & np.isfinite(l) & (l > 0.0)
    k, l = k[good], l[good]  # noqa: E741
    scale = float(k.max(initial=0.0))
    if len(np.unique(k)) < 3 or scale <= 0.0 or goal <= 0.0:
        return None
    k = k / scale
    roof = min(float(l.min()), goal)

    def linear(b2: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """b0 (per scaled step), b1 and the squared error in l, for each of some asymptotes."""
        x = l - b2[:, None]
        weights = x**4
        kk, k1, one = (weights * k**2).sum(1), (weights * k).sum(1), weights.sum(1)
        kx, x1 = (x**3 * k).sum(1), (x**3).sum(1)
        determinant = np.maximum(kk * one - k1**2, 1e-300)
        b0 = (kx * one - x1 * k1) / determinant
        b1 = (kk * x1 - k1 * kx) / determinant
        level, steep = b0 < 0.0, (b0 >= 0.0) & (b1 < 0.0)  # the optimum is where the negative one is 0
        b0, b1 = (
            np.where(level, 0.0, np.where(steep, kx / kk, b0)),
            np.where(level, x1 / one, np.where(steep, 0.0, b1)),
        )
        bottom = b0[:, None] * k + b1[:, None]
        errors = np.where(bottom > 0.0, 1.0 / np.maximum(bottom, 1e-300) - x, np.inf)
        return b0, b1, (errors**2).sum(1)

    tried = roof * (1.0 - COARSE)
    errors = linear(tried)[2]
    best = int(np.argmin(errors))
    for _ in range(ZOOMS):  # each a closer look between the neighbours of the best so far
        low, high = tried[max(0, best - 1)], tried[min(len(tried) - 1, best + 1)]
        tried = np.linspace(low, high, FINE)
        errors = linear(tried)[2]
        best = int(np.argmin(errors))
    b2 = float(tried[best])
    b0, b1, left = (float(x[0]) for x in linear(np.array([b2])))
    if b0 <= 0.0 or not math.isfinite(left):
        return None
    return Convergence(b0 / scale, b1, b2, ceiling)


@dataclass(frozen=True, slots=True)
class SpeedLaw:
    """Optimus's speed (iterations/s) of w workers and p servers, all coefficients >= 0 (its section 3.2).

    synchronous: 1 / f = t0 M / w + t1 + t2 w / p + t3 w + t4 p, M = global batch size (equation 4);
    asynchronous: w / f = t0 + t1 w / p + t2 w + t3 p (equation 3), and t4 is 0.
    p = 0 means a job without servers: the terms with p are absent.
    """

    t: tuple[float, float, float, float, float]
    batch: float = 1.0
    synchronous: bool = True

    def speed(self, workers: int, servers: int = 0) -> float:
        if workers <= 0:
            return 0.0
        row = _speed_row(float(workers), float(servers), self.batch, self.synchronous)
        time = float(np.dot(row, self.t))
        if time <= 0.0:
            return 0.0
        return (1.0 if self.synchronous else workers) / time


def fit_speed(
    workers: Sequence[float],
    servers: Sequence[float],
    speeds: Sequence[float],
    batch: float = 1.0,
    synchronous: bool = True,
) -> SpeedLaw | None:
    """The law through measured speeds; None without a positive one. Rows are weighted with the measured speed,
    so what is least is the relative error. Fewer points than coefficients: the solver's solution, in which terms
    that nothing tells of stay 0 (non-negative least squares starts from 0 and adds a term only for a gain)."""
    from scipy.optimize import nnls  # here: most who import this module never fit, and scipy is slow to load

    rows = [
        (_speed_row(float(w), float(p), batch, synchronous), float(f) / (1.0 if synchronous else float(w)))
        for w, p, f in zip(workers, servers, speeds, strict=True)
        if f > 0.0 and w > 0.0
    ]
    if not rows:
        return None
    matrix = np.array([np.asarray(row) * weight for row, weight in rows])
    columns = np.maximum(np.abs(matrix).max(axis=0), 1e-300)  # scaled, since a batch size is worth thousands
    t, _ = nnls(matrix / columns, np.ones(len(rows)))
    t = t / columns
    return SpeedLaw((float(t[0]), float(t[1]), float(t[2]), float(t[3]), float(t[4])), batch, synchronous)


def _speed_row(
    w: float, p: float, batch: float, synchronous: bool
) -> tuple[float, float, float, float, float]:
    ratio = w / p if p > 0.0 else 0.0
    return (batch / w, 1.0, ratio, w, p) if synchronous else (1.0, ratio, w, p, 0.0)


@dataclass(frozen=True, slots=True)
class Surface:
    """e = -b1 (w - b2)^2 - b3 (p - b4)^2 + b5, kept as c0 + cw w - b1 w^2 + cp p - b3 p^2 (Coach section 4.2).

    e: epochs/s with w workers and p servers. b1, b3 >= 0: the paper's minus signs mean a surface that bends
    down. Kept linear in its coefficients, since b2 = cw / (2 b1) is infinite on a surface that does not bend.
    """

    c0: float
    cw: float
    cp: float
    b1: float
    b3: float

    def speed(self, workers: float, servers: float) -> float:
        bend = self.b1 * workers**2 + self.b3 * servers**2
        return self.c0 + self.cw * workers + self.cp * servers - bend

    @property
    def b2(self) -> float:
        """Workers at the top, +-inf (or nan on a level surface) where it does not bend."""
        return _top(self.cw, self.b1)

    @property
    def b4(self) -> float:
        """Servers at the top."""
        return _top(self.cp, self.b3)

    @property
    def b5(self) -> float:
        """Epochs/s at the top."""
        extra = 0.0
        for c, b in ((self.cw, self.b1), (self.cp, self.b3)):
            if c != 0.0:
                extra += c * c / (4.0 * b) if b > 0.0 else math.inf
        return self.c0 + extra


def _top(linear: float, bend: float) -> float:
    if bend > 0.0:
        return linear / (2.0 * bend)
    return math.nan if linear == 0.0 else math.copysign(math.inf, linear)


def fit_surface(
    workers: Sequence[float], servers: Sequence[float], speeds: Sequence[float], straight: float = 1e-4
) -> Surface | None:
    """Coach's surface through measured (w, p, epochs/s); None for no points.

    Four mini-epochs are four equations for five coefficients, and on the grid {1, 2} x {1, 2} w^2 = 3 w - 2, so
    they say nothing of either bend (the paper does not notice). What is done: of all surfaces that fit equally
    well the one that bends least, by a penalty of `straight` (relative to the speeds) on b1 and b3. So with
    the mini-epochs alone the surface is the plane through them, its gains those that were measured, and later
    epochs in other configurations give it its bend. Where a slope was not measured (one value of w or of p
    only) it is 0: nothing is gained by what nobody tried. The penalty vanishes beside real evidence.
    """
    from scipy.optimize import lsq_linear

    w = np.asarray(workers, dtype=np.float64)
    p = np.asarray(servers, dtype=np.float64)
    e = np.asarray(speeds, dtype=np.float64)
    if len(e) == 0:
        return None
    unit = float(np.abs(e).max()) or 1.0
    # Centred columns: a level part that takes no share in the penalty, slopes that are small where unmeasured.
    mw, mp = float(w.mean()), float(p.mean())
    u, v = w - mw, p - mp
    size = max(1.0, float(np.abs(u).max()), float(np.abs(v).max()))
    u, v = u / size, v / size
    matrix = np.column_stack((np.ones(len(e)), u, v, -(u**2), -(v**2)))
    weak = straight * 1e-3  # slopes: a much weaker pull than the bends', only to make an unmeasured one 0
    pull = np.diag([0.0, weak, weak, straight, straight])
    found = lsq_linear(
        np.vstack((matrix, pull)),
        np.concatenate((e / unit, np.zeros(5))),
        bounds=([-np.inf, -np.inf, -np.inf, 0.0, 0.0], np.inf),
        method="bvls",
        tol=1e-15,
    )
    a0, au, av, bu, bv = (float(x) * unit for x in found.x)
    au, av, bu, bv = au / size, av / size, bu / size**2, bv / size**2
    return Surface(
        c0=a0 - au * mw - av * mp - bu * mw**2 - bv * mp**2,
        cw=au + 2.0 * bu * mw,
        cp=av + 2.0 * bv * mp,
        b1=bu,
        b3=bv,
    )


def reached(losses: Sequence[float], target: float, running: int = 3) -> int:
    """Epochs until `losses` (one an epoch) have been at or below `target` `running` times in a row; 0 = not yet
    (Coach section 4.1: three epochs in a row)."""
    row = 0
    for epoch, loss in enumerate(losses, start=1):
        row = row + 1 if loss <= target else 0
        if row == running:
            return epoch
    return 0


def residual(curve: Convergence, steps: Sequence[float], values: Sequence[float]) -> float:
    """Root mean square of the curve's error at the points."""
    errors: FloatArray = np.array([curve.value(k) - v for k, v in zip(steps, values, strict=True)])
    return float(np.sqrt(np.mean(errors**2))) if len(errors) else 0.0
