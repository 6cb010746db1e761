"""From a few measured speeds to a curve over all numbers of replicas, for whoever believes reports (`reported`).

Nothing here is more than a guess but at the measured counts. The order of what is believed elsewhere, and its bounds,
stand at `curve`. Pure and remembered: the same points are asked for by every cycle until the next speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from muster.cached import MIB, cached
from muster.core.progress.fits import fit_speed, fit_surface
from muster.types import Config

Points = tuple[tuple[int, float], ...]
"""(replicas, speed), by replicas, each above 0."""
FALLS = 0.98
"""A speed below this part of one at fewer replicas is a fall, not noise."""


def alone(samples: Mapping[Config, float]) -> Iterator[tuple[Config, float]]:
    """What was measured of a job while it had its GPUs to itself; what it does beside another one, which says nothing
    of its curve, is for `core.progress.pairs`."""
    return ((config, speed) for config, speed in samples.items() if not config.beside)


def by_count(samples: Mapping[Config, float], role: str) -> dict[int, float]:
    """The same by replicas of a role: the fastest of several placements. Only such as have a replica and a speed."""
    best: dict[int, float] = {}
    for config, speed in alone(samples):
        count = config.count(role)
        if count > 0 and speed > 0.0:
            best[count] = max(speed, best.get(count, 0.0))
    return best


@cached("speed curves", 64 * MIB)
def curve(
    points: Points,
    most: int,
    known: tuple[float, ...] = (),
    prior: tuple[float, ...] = (),
    roof: tuple[float, ...] = (),
) -> tuple[float, ...]:
    """Speeds at 0, 1 ... most replicas, in the unit of the points.

    At measured counts: as measured, but never more than linear from the smallest one. Between: the time of an
    iteration is interpolated. Below and beyond, the first of these that there is:
    1. `known`, a curve that was measured of the same model before (scaled to meet what is measured now), as far as
       it goes;
    2. the law through the points: of three and more Optimus's (its equation 4 without servers: 1/f = t0/n + t1 +
       t3 n), of two Amdahl's, which is the same without its growing term;
    3. `prior`, a curve that is believed of it without a measurement (declared, or of a reference), as far as it
       goes;
    4. linear from the nearest measured count (papers/afs-coddl 4.5).
    Bounds of what was not measured: never more than `roof` (declared speeds), scaled likewise; beyond the largest
    measured count no more than there where the speed has fallen already; below the smallest no less than linear.
    """
    first = points[0]
    points = tuple((n, min(s, first[1] * n / first[0])) for n, s in points)
    top, exact = points[-1], dict(points)
    law = _law(points)
    fallen = top[1] < FALLS * max(s for _, s in points)
    middle = interpolated(points) if len(points) > 1 else ()
    result = [0.0]
    for n in range(1, most + 1):
        if first[0] <= n <= top[0]:
            result.append(exact[n] if n in exact else middle[n] / middle[first[0]] * first[1])
            continue
        at, there = first if n < first[0] else top
        guess = there * n / at
        for shape in (known, law, prior):
            ratio = _ratio(shape, n, at)
            if ratio > 0.0:
                guess = there * ratio
                break
        limit = _ratio(roof, n, at)
        if limit > 0.0 or (roof and n >= len(roof)):
            guess = min(guess, there * (limit or max(1.0, _ratio(roof, len(roof) - 1, at))))
        if n > top[0]:
            guess = min(guess, top[1] if fallen else guess, first[1] * n / first[0])
        else:
            guess = max(guess, there * n / at)
        result.append(guess)
    return tuple(result)


def _ratio(shape: Sequence[float] | Callable[[int], float] | None, n: int, at: int) -> float:
    """Speed at n over that at `at`, 0 where the shape does not tell."""
    if not shape:
        return 0.0
    if callable(shape):
        top, bottom = shape(n), shape(at)
    elif n < len(shape) and at < len(shape):
        top, bottom = shape[n], shape[at]
    else:
        return 0.0
    return max(0.0, top / bottom) if bottom > 0.0 else 0.0


def _law(points: Points) -> Callable[[int], float] | None:
    if len(points) < 2:
        return None
    if len(points) == 2:
        (n, f), (m, g) = points
        b = (m / g - n / f) / (m - n)  # n / f = a + b n
        a = n / f - b * n
        if a < 0.0 or b < 0.0:
            return None
        return lambda count: count / (a + b * count)
    found = fit_speed([n for n, _ in points], [0.0] * len(points), [s for _, s in points])
    return None if found is None else lambda count: found.speed(count)


@cached("speed surfaces", 16 * MIB)
def with_servers(points: tuple[tuple[int, int, float], ...], servers: int, most: int) -> tuple[float, ...]:
    """Speeds at 0 ... most workers beside `servers` on Coach's surface through (workers, servers, speed); empty where
    the points don't determine its slopes (two different numbers of each, four points)."""
    if len(points) < 4 or len({w for w, _, _ in points}) < 2 or len({p for _, p, _ in points}) < 2:
        return ()
    surface = fit_surface([w for w, _, _ in points], [p for _, p, _ in points], [s for _, _, s in points])
    if surface is None:
        return ()
    least = 0.01 * min(s for _, _, s in points)  # a surface that bends down crosses 0 somewhere
    speeds = np.array([surface.speed(n, servers) for n in range(1, most + 1)])
    return (0.0, *np.maximum(speeds, least).tolist())


@cached("declared curves", 16 * MIB)
def interpolated(points: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
    """Speeds at 0, 1, 2 ... replicas from measured points (replicas, speed), relative to one replica."""
    if not points:
        return ()
    counts = np.array([0, *(n for n, _ in points)], dtype=np.float64)
    if np.array_equal(counts, np.arange(len(counts))):
        speeds = [0.0, *(s for _, s in points)]
    else:
        known = counts[1:]
        times = 1.0 / np.array([s for _, s in points], dtype=np.float64)
        at = np.arange(1, int(known[-1]) + 1)
        filled = np.where(at < known[0], times[0] * known[0] / at, np.interp(at, known, times))
        speeds = [0.0, *(1.0 / filled).tolist()]
    return tuple(s / speeds[1] for s in speeds)


def at_count(speeds: Sequence[float], count: int) -> float:
    """The speed with so many replicas, of speeds at 0, 1, 2 ...: beyond the last it stays what it is there, and
    without any it is linear."""
    return speeds[min(count, len(speeds) - 1)] if speeds else float(count)
