"""How jobs of the fluid engine really run: the rows of its table at their start, their work and their speeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from muster.sim.submission import Linear, Model, RoleSpec, Submission
from muster.sim.workload import Cluster, Workload
from muster.types import Config, FloatArray, IntArray

# rows of `floats`
SUBMITTED, FIRST, RUN, RESIZE = 0, 1, 2, 3  # s

GPU_SECONDS, RUN_GPU_SECONDS, EXECUTED, SINCE = 4, 5, 6, 7  # totals at `SINCE`, when `have` last changed

WORK, REMAINING, PAUSE = 8, 9, 10  # iterations left; s on one replica left; when its last pause ends (s)

FLOATS = 11

# rows of `ints`
MIN, MAX, REQUEST, HAVE, UNIT, FIXED, PRIORITY, CURVE, JOB, RESTARTS = range(10)

TRIED = 10  # the largest number of replicas that it has run with for a while

INTS = 11

WORKERS: tuple[str, tuple[tuple[str, int], ...]] = ("worker", ())
"""The elastic role of a job that names none, and its other roles."""


@dataclass(frozen=True)
class Truth:
    """What the jobs of a workload really do on a cluster without placement, by curve.

    seconds: (C, K+1) s of one iteration at 0, 1, ... replicas (inf where it can't run); relative: (C, K+1)
    speed relative to one replica. floats, ints: the columns of each job as it is submitted, jobs as columns.
    roles: name of the elastic role and the others' (name, count), by job. known: whether all lengths are. simple:
    whether every job may have every count from 1, and a replica is a GPU.
    """

    seconds: FloatArray
    relative: FloatArray
    floats: FloatArray
    ints: IntArray
    roles: Sequence[tuple[str, tuple[tuple[str, int], ...]]]
    sizes: Mapping[int, tuple[int, ...]]
    known: bool
    simple: bool


def truth(workload: Workload, cluster: Cluster, whole_seconds: bool) -> Truth:
    """The static columns of every job, and the curves of the models that they train."""
    gpus = cluster.gpus
    per_node = max((g.gpus for g in cluster.groups), default=1)
    product = cluster.groups[0].product if cluster.groups else ""
    jobs = workload.submissions
    floats = np.zeros((FLOATS, len(jobs)), dtype=np.float64)
    ints = np.zeros((INTS, len(jobs)), dtype=np.int64)
    floats[SUBMITTED] = [job.submitted for job in jobs]
    if whole_seconds:
        np.ceil(floats[SUBMITTED], out=floats[SUBMITTED])
    floats[[FIRST, RUN]] = np.inf
    floats[[RESIZE, PAUSE]] = -np.inf
    floats[SINCE] = floats[SUBMITTED]
    floats[WORK] = [job.work for job in jobs]
    most_of = {name: model.max for name, model in workload.models.items()}
    ints[PRIORITY] = [job.priority for job in jobs]
    ints[MIN] = [max(1, job.min) for job in jobs]
    ints[MAX] = [job.max or max(most_of[job.model], job.request) for job in jobs]
    ints[REQUEST] = [job.request for job in jobs]
    ints[UNIT] = 1
    ints[JOB] = np.arange(len(jobs))
    roles: list[tuple[str, tuple[tuple[str, int], ...]]] = [WORKERS] * len(jobs)
    for number, job in enumerate(jobs):
        if job.roles:
            role, others, fixed = elastic(job)
            roles[number] = role.name, others
            unit = max(1, role.gpus)
            ints[[MIN, MAX, UNIT, FIXED], number] = max(1, role.min), role.max, unit, fixed
    np.minimum(ints[REQUEST], np.maximum(ints[MAX], ints[MIN]), out=ints[REQUEST])
    np.maximum(ints[REQUEST], ints[MIN], out=ints[REQUEST])
    capacity = np.maximum(gpus // ints[UNIT], 1)
    np.maximum(np.minimum(ints[MAX], capacity), ints[MIN], out=ints[MAX])
    # a curve for each model, as it is trained: batch and roles
    index: dict[tuple[Any, ...], int] = {}
    keys = zip((job.model for job in jobs), (job.batch for job in jobs), roles, strict=True)
    ints[CURVE] = [index.setdefault(key, len(index)) for key in keys]
    far = np.zeros(max(1, len(index)), dtype=np.int64)
    np.maximum.at(far, ints[CURVE], np.maximum(ints[MAX], np.minimum(ints[REQUEST], capacity)))
    seconds = np.full((len(far), int(far.max(initial=1)) + 1), np.inf)
    for (name, batch, (role_name, others)), at in index.items():
        end = int(far[at])
        model = workload.models[name]
        seconds[at, 1 : end + 1] = _seconds(model, role_name, others, end, per_node, product, batch)
        seconds[at, end + 1 :] = seconds[at, end]
    with np.errstate(invalid="ignore"):
        relative = seconds[:, 1:2] / seconds
    relative[:, 0] = 0.0
    relative[~np.isfinite(relative)] = 0.0
    floats[REMAINING] = floats[WORK] * seconds[ints[CURVE], 1]
    unknown = [n for n, job in enumerate(jobs) if not job.known]
    floats[REMAINING, unknown] = np.nan
    sizes = {n: tuple(sorted(job.sizes)) for n, job in enumerate(jobs) if job.sizes}
    simple = not sizes and bool(
        (ints[UNIT] == 1).all() and (ints[MIN] == 1).all() and (ints[FIXED] == 0).all()
    )
    return Truth(seconds, relative, floats, ints, roles, sizes, not unknown, simple)


def elastic(job: Submission) -> tuple[RoleSpec, tuple[tuple[str, int], ...], int]:
    """The elastic role (as `core.sharing.job_table.elastic_role`), the others at their min, and the GPUs of
    those."""
    role = next((r for r in job.roles if r.max > r.min), job.roles[0])
    others = [r for r in job.roles if r is not role]
    return role, tuple((r.name, r.min) for r in others), sum(r.min * r.gpus for r in others)


def _seconds(
    model: Model,
    role: str,
    others: Sequence[tuple[str, int]],
    most: int,
    per_node: int,
    product: str,
    batch: int,
) -> FloatArray:
    """(most,) s of one iteration at 1, 2, ... replicas: as measured where that is known, else 1 / speed."""
    measured = getattr(model, "seconds", ())
    if measured:
        return np.array([measured[min(n, len(measured)) - 1] for n in range(1, most + 1)])
    if isinstance(model, Linear):
        return 1.0 / np.arange(1, most + 1)
    speeds = [speed_of(model, role, n, others, per_node, product, batch) for n in range(1, most + 1)]
    return np.array([1.0 / s if s > 0.0 else np.inf for s in speeds])


def speed_of(
    model: Model,
    role: str,
    count: int,
    others: Sequence[tuple[str, int]],
    per_node: int,
    product: str,
    batch: int,
) -> float:
    """Iterations/s on as few nodes as hold the replicas: without placement a job has no neighbours. Of a model whose
    speed changes by epoch the mean over the whole job: a curve of this engine holds from its start to its end."""
    whole, rest = divmod(count, per_node)
    nodes = (per_node,) * whole + ((rest,) if rest else ())
    roles = tuple(sorted([(role, count), *others]))
    mean = getattr(model, "mean_speed", model.speed)
    return float(mean(Config(roles=roles, nodes=nodes, product=product, batch=batch)))
