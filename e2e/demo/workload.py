"""The hour to be submitted, as values: drawn from Philly's statistics, or taken from a trace.

A job is a gang of equal pods (workers). The traces say how many GPUs a job had, and not in how many workers; so the
GPUs of one worker are drawn evenly from 1, 2, 4 and 8, as far as they divide the job's (8 GPUs: 8 x 1, 4 x 2, 2 x 4
or 1 x 8), or given for all jobs."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from e2e import scenario
from e2e.demo import trace
from e2e.demo.trace import HOUR, BadTraceError, TracedJob
from muster.sim.philly import CLASSES, Statistics, quantile

Json = dict[str, Any]

WORKERS = (1, 2, 4, 8)
GPU_CPU, GPU_MEMORY = 4, "16Gi"  # of each GPU: what never runs short on the lab's nodes


@dataclass(frozen=True)
class Submission:
    """A job of the hour. `at` and `duration` in seconds of the trace's clock."""

    name: str
    at: float
    duration: float
    pods: int
    pod_gpus: int

    speeds: tuple[float, ...] = ()
    """Of an elastic job: item k is its speed on k workers, in that of one (item 0: 0.0); it may have up to as many as
    there are. Empty: it needs all its pods."""

    @property
    def gpus(self) -> int:
        """What it asks for."""
        return self.pods * self.pod_gpus

    @property
    def least(self) -> int:
        """Workers without which it does not run."""
        return 1 if self.speeds else self.pods

    @property
    def most(self) -> int:
        return max(self.pods, len(self.speeds) - 1)

    def rate(self, workers: int) -> float:
        """Seconds of its duration that pass in one second on so many workers: 1.0 on those that it asks for."""
        if workers < self.least:
            return 0.0
        return self.speeds[min(workers, self.most)] / self.speeds[self.pods] if self.speeds else 1.0


@dataclass(frozen=True)
class Workload:
    """Jobs by submission; `source` is one line on where they are from, `left_out` sentences on what is not."""

    source: str
    jobs: tuple[Submission, ...]
    window: float  # seconds in which they are submitted
    cap: float  # no job runs longer, seconds
    left_out: tuple[str, ...] = field(default=())

    @property
    def gangs(self) -> int:
        """Jobs of more than one pod."""
        return sum(job.pods > 1 for job in self.jobs)

    @property
    def pods(self) -> int:
        return sum(job.pods for job in self.jobs)

    @property
    def gpu_hours(self) -> float:
        return sum(job.gpus * job.duration for job in self.jobs) / HOUR

    def load(self, gpus: int) -> float:
        """What is asked for, over what the cluster has in the time of the submissions."""
        return self.gpu_hours / (gpus * self.window / HOUR)


def drawn(
    statistics: Statistics, seed: int, jobs: int, *, gpus: int, window: float, cap: float, worker: int | None
) -> Workload:
    """So many jobs with the sizes, durations and gaps of the statistics, in a window of so many seconds; none above
    `largest(gpus)`."""
    rng = random.Random(seed)
    sizes = [(size, count) for size, count in statistics.sizes if size <= largest(gpus)]
    gaps = [quantile(statistics.gaps, rng.random()) for _ in range(jobs)]
    scale = window / sum(gaps)
    submissions = []
    now = 0.0
    for number, gap in enumerate(gaps):
        now += gap * scale
        (size,) = rng.choices([size for size, _ in sizes], weights=[count for _, count in sizes])
        duration = quantile(statistics.durations[bisect_left(CLASSES, size)], rng.random())
        submissions.append(
            _submission(number, now - gaps[0] * scale, duration, size, cap, workers(size, worker, rng))
        )
    return Workload(
        source=f"{jobs} jobs drawn with seed {seed} from the statistics of Philly's virtual cluster "
        f"{statistics.cluster} (its busiest hour: {statistics.busiest} jobs)",
        jobs=tuple(submissions),
        window=window,
        cap=cap,
        left_out=(f"sizes of more than {largest(gpus)} GPUs",),
    )


def traced(
    jobs: Sequence[TracedJob],
    *,
    gpus: int,
    cap: float,
    seed: int,
    worker: int | None,
    cluster: str | None = None,
    hour: int | None = None,
) -> Workload:
    """An hour of a trace, nothing thinned out and nothing scaled: every job that one virtual cluster got in it, at
    its moment, and at second 0 those that were running then, with what they had left.

    `cluster`: None for the one whose mean use comes nearest to the lab's `gpus`, "all" for the whole trace. `hour`:
    counted from the full hour in which the trace begins; None for the one whose submissions ask for the most
    GPU-hours (of each job the first `cap` seconds). Left out are jobs above `largest(gpus)`. BadTraceError where
    there is no such cluster or hour."""
    origin = trace.first_hour(jobs)
    clusters = trace.by_cluster(jobs)
    name = trace.nearest_cluster(jobs, gpus) if cluster is None else cluster
    if name != "all" and name not in clusters:
        raise BadTraceError(
            f"the trace has no virtual cluster {name!r}; it has {', '.join(sorted(clusters))}"
        )
    ours = list(jobs) if name == "all" else clusters[name]
    fitting = [job for job in ours if job.gpus <= largest(gpus)]
    if not fitting:
        raise BadTraceError(f"virtual cluster {name} has no job of at most {largest(gpus)} GPUs")
    at = trace.busiest_hour(fitting, origin, cap) if hour is None else hour
    chosen = trace.by_hour(fitting, origin).get(at, [])
    if not chosen:
        raise BadTraceError(f"hour {at} of virtual cluster {name} has no submission")
    start = origin + timedelta(hours=at)
    running = trace.standing(fitting, start)
    too_big = len(trace.by_hour(ours, origin)[at]) - len(chosen)
    too_big += len(trace.standing(ours, start)) - len(running)
    rng = random.Random(seed)
    hour_of_it = [(job.gpus, 0.0, left) for job, left in running]
    hour_of_it += [(job.gpus, (job.submitted - start).total_seconds(), job.duration) for job in chosen]
    return Workload(
        source=f"virtual cluster {name or '(unnamed)'} ({trace.mean_use(ours):.0f} GPUs in use on average), "
        f"{start:%Y-%m-%d %H:%M}, hour {at} of the trace: the {len(running)} jobs that run and all {len(chosen)} "
        "that are submitted",
        jobs=tuple(
            _submission(number, moment, duration, size, cap, workers(size, worker, rng))
            for number, (size, moment, duration) in enumerate(hour_of_it)
        ),
        window=HOUR,
        cap=cap,
        left_out=(f"{too_big} jobs of more than {largest(gpus)} GPUs",) if too_big else (),
    )


def elastic(workload: Workload, gpus: int, serial: float) -> Workload:
    """The same jobs, those of more than one GPU elastic: from one worker to twice what they ask for, but no more than
    `largest(gpus)`. Speeds by Amdahl's law, by GPUs: `serial` is the part that more of them do not shorten."""

    def speed(used: int) -> float:
        return used / (1.0 + serial * (used - 1))

    def stretched(job: Submission) -> Submission:
        if job.gpus == 1:
            return job
        most = max(job.pods, min(2 * job.gpus, largest(gpus)) // job.pod_gpus)
        one = speed(job.pod_gpus)
        return replace(job, speeds=(0.0, *(speed(n * job.pod_gpus) / one for n in range(1, most + 1))))

    return replace(workload, jobs=tuple(stretched(job) for job in workload.jobs))


def largest(gpus: int) -> int:
    """The most GPUs that a job of the hour asks for: half of the lab. A bigger one never starts on a busy cluster
    without gangs, and would make the rest of the comparison meaningless."""
    return max(1, gpus // 2)


def manifest(job: Submission, attempt: int, scheduler: str, pace: float = 1.0) -> Json:
    """The Job object of an attempt: all its pods at once, and it runs until the demo ends it.

    An elastic one has all the pods that it may have, says what it asks for, how fast it is and how long it takes on
    one worker: seconds of this machine, in each of which `pace` of the trace pass. Its leader's end is its end."""
    notes, shape = {}, {}
    if job.speeds:
        notes = {
            "muster.dev/request": str(job.pods),
            "muster.dev/speed": ",".join(f"{n}={job.speeds[n]:.4f}" for n in range(1, job.most + 1)),
            "muster.dev/remaining-work": f"{job.duration * job.speeds[job.pods] / pace:.3f}",
        }
        shape = {"min_replicas": job.least, "max_replicas": job.most, "success_on": "0", "stop_seconds": 0}
    return scenario.job(
        object_name(job.name, attempt),
        job.most,
        gpus=job.pod_gpus,
        cpu=str(GPU_CPU * job.pod_gpus),
        memory=f"{int(GPU_MEMORY[:-2]) * job.pod_gpus}Gi",
        scheduler=scheduler,
        labels={"demo/job": job.name, "demo/attempt": str(attempt)},
        annotations=notes,
        **shape,
    )


def object_name(name: str, attempt: int) -> str:
    return name if attempt == 1 else f"{name}-try{attempt}"


def workers(gpus: int, worker: int | None, rng: random.Random) -> tuple[int, int]:
    """Pods and GPUs of each. `worker`: None for a draw, else the most GPUs of one: as few pods as can be."""
    if worker is None:
        size = rng.choice([size for size in WORKERS if gpus % size == 0])
    else:
        size = max(divisor for divisor in range(1, min(gpus, worker) + 1) if gpus % divisor == 0)
    return gpus // size, size


def _submission(
    number: int, at: float, duration: float, gpus: int, cap: float, worker: tuple[int, int]
) -> Submission:
    pods, size = worker
    return Submission(f"job-{number:03}-{gpus}gpu", at, min(duration, cap), pods, size)
