"""A day like Philly's, drawn from statistics: arrivals by hour of the day, sizes, durations; 128 GPUs.

Arrivals follow the whole trace's submissions by hour; sizes and durations (by class of size) are those of the
virtual cluster that had about 128 GPUs in use (muster.sim.philly). Assumed, since Philly does not tell it: a job's
length does not depend on the hour; jobs are linear and rigid at their request, as nothing is known of their models
(`muster workload --models FILE --arrivals day --lengths philly` draws models).

jobs: how many, 0 = as many as ask for `load` times the GPU-seconds that the cluster offers in the day. No job
asks for more than half of the cluster, none is longer than `cap` hours.
"""

from __future__ import annotations

import math

import numpy as np

from muster.sim.arguments import even
from muster.sim.philly import PHILLY
from muster.sim.synthetic import DAY, made, of_the_day, philly_lengths
from muster.sim.workload import Workload

MOST = 100_000


def workload(
    seed: int = 0,
    jobs: int = 0,
    load: float = 1.2,
    gpus: int = 128,
    gpus_per_node: int = 8,
    cap: float = 24.0,
) -> Workload:
    if jobs < 0 or gpus < 1 or gpus_per_node < 1 or not 0 < load < math.inf or not 0 < cap < math.inf:
        raise ValueError("jobs must be 0 or more, all others above 0 and finite")
    sizes = [(size, count) for size, count in PHILLY.sizes if size <= max(1, gpus // 2)]
    counts = np.array([size for size, _ in sizes], dtype=np.int64)
    chances = np.array([count for _, count in sizes]) / sum(count for _, count in sizes)
    some = jobs or max(64, int(load * gpus))
    while True:
        # Drawn again, twice as many, until the load is reached: a longer draw begins with the shorter one.
        drawn = np.random.default_rng([seed, 0]).choice(counts, size=some, p=chances)
        length = np.minimum(philly_lengths(drawn, np.random.default_rng([seed, 1])), cap * 3600.0)
        if jobs:
            break
        asked = np.cumsum(drawn * length)
        enough = int(np.searchsorted(asked, load * gpus * DAY)) + 1
        if enough <= some or some >= MOST:
            drawn, length = drawn[:enough], length[:enough]
            break
        some *= 2
    at = of_the_day(len(drawn), np.random.default_rng([seed, 2]))
    return made(at, drawn, length, {}, seed, even(gpus, gpus_per_node))
