"""Work out the constants of muster.sim.philly from the trace: `python -m e2e.demo.statistics ../shared/data`.

The part of Philly that is as big as the demo's 128 GPUs is one of its virtual clusters (`nearest_cluster`).
Of its jobs: how many of each size; quantiles (each 5 %) of duration, for four classes of size; quantiles of the
gap between two submissions of one busy hour (10 jobs or more), in units of that hour's mean gap; and the
submissions of its busiest hour. Of the whole trace: submissions by hour of the day."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np

from e2e.demo import trace
from muster.sim.philly import CLASSES, Statistics

QUANTILES = 21
BUSY = 10  # submissions an hour
GPUS = 128


def work_out(path: Path) -> Statistics:
    """Of a trace file. BadTraceError as trace.read."""
    everything = trace.read(path)
    cluster = trace.nearest_cluster(everything, GPUS)
    jobs = trace.by_cluster(everything)[cluster]
    hours = trace.by_hour(jobs, trace.first_hour(everything))
    gaps: list[float] = []
    for hour in hours.values():
        if len(hour) >= BUSY:
            between = np.diff([(job.submitted - hour[0].submitted).total_seconds() for job in hour])
            if between.sum() > 0:
                gaps.extend(between / between.mean())
    lowest = (0, *CLASSES[:-1])
    return Statistics(
        cluster=cluster,
        jobs=len(jobs),
        mean_use=round(trace.mean_use(jobs)),
        busiest=max(len(hour) for hour in hours.values()),
        sizes=tuple(sorted(Counter(job.gpus for job in jobs).items())),
        durations=tuple(
            _quantiles([job.duration for job in jobs if above < job.gpus <= most], 0)
            for above, most in zip(lowest, CLASSES, strict=True)
        ),
        gaps=_quantiles(gaps, 3),
        hours=tuple(Counter(job.submitted.hour for job in everything)[hour] for hour in range(24)),
    )


def _quantiles(values: list[float], digits: int) -> tuple[float, ...]:
    found = np.quantile(np.array(values), np.linspace(0, 1, QUANTILES))
    return tuple(round(float(value), digits) for value in found)


if __name__ == "__main__":
    print(work_out(Path(sys.argv[1]) / "philly" / "philly.csv.gz"))
