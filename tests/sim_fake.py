"""An engine for tests of what stands around the engines: first come, first served, rigid.

A job takes work / (request x speed of one replica) seconds: enough to have starts, ends, waits and a history.
"""

from __future__ import annotations

import heapq

import numpy as np

from muster.points import Profile
from muster.sim.options import Interrupted, Options, Progress
from muster.sim.result import Result, Segment
from muster.sim.workload import Cluster, Workload
from muster.types import Config


def fifo(
    workload: Workload,
    cluster: Cluster,
    profile: Profile,
    options: Options = Options(),
    progress: Progress | None = None,
) -> Result:
    """In order of submission; the head of the queue blocks all others."""
    jobs = workload.submissions
    count = len(jobs)
    started, ended = np.full(count, np.nan), np.full(count, np.nan)
    gpu_seconds = np.zeros(count)
    free, now, cut = cluster.gpus, 0.0, ""
    running: list[tuple[float, int, int]] = []
    segments, changes = [], []
    try:
        for number, job in enumerate(jobs):
            now = max(now, job.submitted)
            while running and (running[0][0] <= now or free < job.request):
                end, _, gpus = heapq.heappop(running)
                free += gpus
                now = max(now, end)
            length = job.work / job.request / workload.models[job.model].speed(Config((("worker", 1),), (1,)))
            started[number] = now
            if progress:
                progress(number, count, now)
            ended[number] = now + length
            gpu_seconds[number] = length * job.request
            free -= job.request
            heapq.heappush(running, (now + length, number, job.request))
            segments.append(Segment(number, now, now + length, job.request, ("node-0",)))
            changes += [(job.submitted, 1), (now, -1)]
    except Interrupted:
        cut = f"interrupted at {now:.0f} s of simulated time"
    queue, waiting = [], 0
    for at, change in sorted(changes):
        waiting += change
        queue.append((at, waiting))
    span = np.nanmax(ended) - jobs[0].submitted if np.isfinite(ended).any() else np.nan
    return Result(
        profile=profile.name,
        names=[job.name for job in jobs],
        submitted=np.array([job.submitted for job in jobs]),
        started=started,
        ended=ended,
        restarts=np.zeros(count, dtype=np.int64),
        moves=np.zeros(count, dtype=np.int64),
        gpu_seconds=gpu_seconds,
        gpus=cluster.gpus,
        gauges={"utilisation": float(gpu_seconds.sum() / span / cluster.gpus)},
        segments=segments if options.record else (),
        queue=queue if options.record else (),
        cut=cut,
        interrupted=bool(cut),
        events=2 * count,
        requests=[job.request for job in jobs],
        models=[job.model for job in jobs],
    )
