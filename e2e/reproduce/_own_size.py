"""How many GPUs each of Philly's virtual clusters had of its own, by its trace.

`python -m e2e.reproduce._own_size FOLDER` prints them, of the folder of traces.

Nothing says it, so it is taken from what was used. Own size: the 99th percentile over time, from a virtual cluster's
first submission to the last end, of the GPUs that its jobs use at once, rounded up to whole nodes of NODE (Jeon et
al., ATC'19, section 2: servers of 8 and of 2 GPUs). The trace (`philly/philly.csv.gz`) says when a job was submitted
and for how long it ran; that it began at once is taken for granted, so where jobs waited the size is too large. It
has fewer jobs than AFS's traces of the same virtual clusters, and for these the size is rather too small.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from e2e.demo.trace import TracedJob, by_cluster, read

NODE = 8
AT = 0.99


def own_size(jobs: Sequence[TracedJob]) -> int:
    """GPUs of one virtual cluster, by its jobs (one at least)."""
    first = min(job.submitted for job in jobs)
    starts = np.array([(job.submitted - first).total_seconds() for job in jobs])
    ends = starts + np.array([job.duration for job in jobs])
    gpus = np.array([job.gpus for job in jobs])
    at, change = np.concatenate((starts, ends)), np.concatenate((gpus, -gpus))
    order = np.argsort(at, kind="stable")
    used, lasts = np.cumsum(change[order])[:-1], np.diff(at[order])
    rising = np.argsort(used, kind="stable")
    part = np.cumsum(lasts[rising]) / lasts.sum()
    peak = int(used[rising][np.searchsorted(part, AT)])
    return -(-max(peak, 1) // NODE) * NODE


def own_sizes(path: Path) -> dict[str, int]:
    """By virtual cluster, of a trace file. BadTraceError as `e2e.demo.trace.read`."""
    return {cluster: own_size(jobs) for cluster, jobs in sorted(by_cluster(read(path)).items())}


if __name__ == "__main__":
    print(own_sizes(Path(sys.argv[1]) / "philly" / "philly.csv.gz"))
