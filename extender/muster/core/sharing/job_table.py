"""The jobs as columns: what Share plugins read (`muster.types.Table`), made from Job objects.

The fluid simulator keeps its columns itself, without Job objects; what a column means is said in one place,
at `Table`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from muster.core.placement.capacity import Capacity
from muster.core.placement.preemption import releasing
from muster.core.placement.reservations import placed
from muster.core.progress.estimate import declared
from muster.points import Estimation
from muster.types import (
    PRODUCT,
    FloatArray,
    IntArray,
    Job,
    JobKey,
    Nodes,
    Phase,
    Reservation,
    Role,
    Snapshot,
    Table,
    between_runs,
    elastic_role,
)

COLUMNS = (
    *("submitted", "first_start", "run_start", "last_resize", "gpu_seconds", "run_gpu_seconds", "executed"),
    *("remaining", "unit", "fixed", "min", "max", "request", "have", "priority", "curve", "curves"),
)


def table_of(
    jobs: Iterable[Job],
    now: float,
    gpus: int,
    *,
    estimate: Callable[[Job], Estimation] | None = None,
    have: Callable[[Job, Role], int] | None = None,
    products: Mapping[str, int] | None = None,
    per_node: int = 0,
) -> Table:
    """The table of `jobs`, rows by submission and `Job.tie`. gpus: GPUs that they may use together.

    estimate: speed and remaining work (default: as declared). have: replicas that a role has now (default:
    those on nodes).
    """
    rows = sorted(jobs, key=lambda job: (job.submitted, job.tie))
    roles = [elastic_role(job) for job in rows]
    estimations = [estimate(job) if estimate else declared(job, now) for job in rows]
    count = have or (lambda _, role: len(role.on))
    facts = [job.facts for job in rows]
    table = Table()
    table.keys = [job.key for job in rows]
    table.row = {key: row for row, key in enumerate(table.keys)}
    table.gpus, table.per_node, table.products = gpus, per_node or gpus, dict(products or {})
    table.submitted = _floats(job.submitted for job in rows)
    table.first_start = _floats(math.inf if f.first_start is None else f.first_start for f in facts)
    table.run_start = _floats(math.inf if f.run_start is None else f.run_start for f in facts)
    table.last_resize = _floats(-math.inf if f.last_resize is None else f.last_resize for f in facts)
    table.gpu_seconds = _floats(f.gpu_seconds.at(now) for f in facts)
    table.run_gpu_seconds = _floats(f.run_gpu_seconds.at(now) for f in facts)
    table.executed = _floats(f.executed.at(now) for f in facts)
    table.progress = _floats(f.progress.at(now) for f in facts)
    table.remaining = _floats(e.remaining for e in estimations)
    table.unit = _ints(max(1, role.shape.gpus) for role in roles)
    table.fixed = _ints(
        sum(r.min * r.shape.gpus for r in job.roles if r is not role)
        for job, role in zip(rows, roles, strict=True)
    )
    table.min = _ints(max(1, role.min) for role in roles)
    capacity = [max(1, gpus // max(1, role.shape.gpus)) for role in roles]
    table.max = _ints(max(1, role.min, min(role.max, fit)) for role, fit in zip(roles, capacity, strict=True))
    wished = [job.request or role.max for job, role in zip(rows, roles, strict=True)]
    # One that was scaled down below what it has counts as at its most: that is what it is cut to.
    table.have = np.minimum(_ints(count(job, role) for job, role in zip(rows, roles, strict=True)), table.max)
    _begin(table, [row for row in np.flatnonzero(table.have).tolist() if between_runs(rows[row])], now)
    table.priority = _ints(job.priority for job in rows)
    most = table.max.tolist()
    table.sizes = {
        row: tuple(s for s in role.sizes if s <= most[row]) for row, role in enumerate(roles) if role.sizes
    }
    # Never more than there is: it would wait for ever.
    table.request = np.clip(_ints(wished), table.min, table.max)
    for row, sizes in table.sizes.items():
        if wished[row] > most[row]:
            table.request[row] = max(sizes, default=int(table.min[row]))
    table.estimated = [e.speed for e in estimations]
    table.curve, table.curves = curves([e.speeds for e in estimations], int(table.max.max(initial=1)))
    for column in COLUMNS:
        getattr(table, column).flags.writeable = False  # a plugin that writes is found out
    return table


def asked_for(nodes: Nodes, jobs: Sequence[Job]) -> list[int]:
    """Columns of the kinds of GPU that are shared out: where nodes have several, those that the jobs ask for."""
    found = [i for i, name in enumerate(nodes.resources) if nodes.devices.has(name)]
    if len(found) < 2:
        return found
    wanted = {
        name for shape in {role.shape for job in jobs for role in job.roles} for name, _ in shape.requests
    }
    return [column for column in found if nodes.resources[column] in wanted]


def table_in(
    snapshot: Snapshot,
    capacity: Capacity,
    reservations: Mapping[JobKey, Sequence[Reservation]],
    jobs: Sequence[Job],
    estimate: Callable[[Job], Estimation],
) -> Table:
    """The table of `jobs` in the middle of a cycle: the GPUs that they may use are those free on usable nodes, those
    that come free, and those that they have; of two jobs on one GPU it counts for one."""
    nodes = snapshot.nodes
    free = np.zeros(len(nodes), dtype=np.int64)
    columns = asked_for(nodes, jobs)
    if columns:
        soon = np.zeros(len(nodes), dtype=np.int64)
        for at, shape in releasing(snapshot):
            soon[at] += sum(shape.request(nodes.resources[column]) for column in columns)
        left = capacity.free[:, columns].sum(axis=1)
        free = np.where(nodes.usable(), np.maximum(left + soon, 0), 0)
    ids, names = nodes.domains(PRODUCT)
    products = {name: int(free[ids == i].sum()) for i, name in enumerate(names)}
    gpus = int(free.sum())
    counted: set[JobKey] = set()
    for job in jobs:
        beside = job.grant.beside if job.grant else None
        if beside is not None and beside in snapshot.jobs and beside not in counted:
            counted.add(job.key)
            continue
        held = reservations.get(job.key, ())
        uids = {h.uid for h in held if h.uid}
        for role in job.roles:
            if not held and not names:  # most jobs in most cycles: counted once, when the role was made
                gpus += role.bound * role.shape.gpus
                continue
            places = [h.node for h in held if h.role == role.name]
            places += [m.node for m in role.members if m.phase is Phase.BOUND and m.uid not in uids]
            gpus += len(places) * role.shape.gpus
            for node in places if names else ():
                row = nodes.index.get(node)
                if row is not None and ids[row] >= 0:
                    products[names[ids[row]]] += role.shape.gpus
    return table_of(
        jobs,
        snapshot.now,
        gpus,
        estimate=estimate,
        have=lambda job, role: max(placed(role, reservations.get(job.key, ())), len(job.restart_on)),
        products=products,
        per_node=int(nodes.total[:, columns].sum(axis=1).max(initial=0)),
    )


def narrowed(table: Table, out: Collection[JobKey], most: Mapping[JobKey, int]) -> Table:
    """The table without some jobs. most: where others may have no more than so many replicas (a legal count)."""
    kept = np.array([row for row, key in enumerate(table.keys) if key not in out], dtype=np.int64)
    result = copy.copy(table)
    result.keys = [table.keys[row] for row in kept.tolist()]
    result.row = {key: row for row, key in enumerate(result.keys)}
    for column in COLUMNS:
        if column != "curves":
            setattr(result, column, getattr(table, column)[kept])
    result.progress = table.progress[kept]
    result.estimated = [table.estimated[row] for row in kept.tolist()]
    for key, count in most.items():
        if key in result.row:
            row = result.row[key]
            result.max[row] = min(count, result.max[row])
            result.request[row] = min(count, result.request[row])
    result.request = np.maximum(result.request, result.min)
    upmost = result.max.tolist()
    result.sizes = {
        result.row[table.keys[row]]: tuple(s for s in sizes if s <= upmost[result.row[table.keys[row]]])
        for row, sizes in table.sizes.items()
        if table.keys[row] in result.row
    }
    for column in COLUMNS:
        getattr(result, column).flags.writeable = False
    return result


def as_decided(table: Table, replicas: IntArray, now: float) -> Table:
    """The table once `replicas` are granted: what a plugin that is asked when to wake looks at."""
    result = copy.copy(table)
    for column in ("first_start", "run_start", "run_gpu_seconds"):
        setattr(result, column, getattr(table, column).copy())
    _begin(result, np.flatnonzero((replicas > 0) & (table.have == 0)).tolist(), now)
    result.have = replicas
    return result


def _begin(table: Table, rows: Sequence[int], now: float) -> None:
    """The runs of these rows begin now: of jobs that have their places, and whose least is not on its nodes yet. In a
    simulation nothing lies between, and what their last runs were is no more theirs."""
    at = list(rows)
    table.first_start[at] = np.minimum(table.first_start[at], now)
    table.run_start[at] = now
    table.run_gpu_seconds[at] = 0.0


def curves(speeds: Sequence[tuple[float, ...]], most: int) -> tuple[IntArray, FloatArray]:
    """(J,) curve of each job and (C, K+1) curves, each different one once; an empty one is linear.

    Beyond its last entry a curve stays at its last speed.
    """
    distinct: dict[tuple[float, ...], int] = {}
    index = _ints(distinct.setdefault(s, len(distinct)) for s in speeds)
    width = max([most, *(len(s) - 1 for s in distinct)], default=1)
    matrix = np.empty((max(1, len(distinct)), width + 1), dtype=np.float64)
    matrix[:] = np.arange(width + 1)
    for points, row in distinct.items():
        if points:
            matrix[row, : len(points)] = points
            matrix[row, len(points) :] = points[-1]
    return index, matrix


def _floats(values: Iterable[float]) -> FloatArray:
    return np.array(list(values), dtype=np.float64)


def _ints(values: Iterable[int]) -> IntArray:
    return np.array(list(values), dtype=np.int64)
