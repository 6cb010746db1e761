"""What a move is weighed by: which running jobs may be placed again, where they stand, how fast they are
elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Assignment, Need
from muster.core.placement.preemption import releasing
from muster.core.progress.report_filter import trained_on
from muster.types import (
    PRODUCT,
    Config,
    Job,
    JobKey,
    Move,
    Nodes,
    Phase,
    SharingSnapshot,
    Snapshot,
    between_runs,
    elastic_role,
)

# ---- jobs ----


def settled(job: Job) -> bool:
    """Whether nothing of it is on its way: each replica runs or waits behind the gate, and no place is held."""
    phases = (Phase.BOUND, Phase.GATED, Phase.HELD)
    return not job.reservations and all(m.phase in phases for role in job.roles for m in role.members)


def leaves(job: Job) -> bool:
    """Whether a replica of it is on its way out."""
    return any(m.phase is Phase.ENDING for role in job.roles for m in role.on)


def on_its_way(job: Job) -> bool:
    """Whether a replica of it is on its way out, or all of one that ran on its way back."""
    back = between_runs(job) and job.facts.first_start is not None
    return leaves(job) or (back and bool(job.reservations or job.restart_on))


def is_rigid(job: Job) -> bool:
    """Whether it has one size only, and its owner never said that it can be restarted: then no share ends it."""
    return job.resize != "restart" and all(role.max <= role.min for role in job.roles)


def can_change(job: Job, shared: Collection[JobKey]) -> bool:
    """Whether it may be ended and placed again at all: it is elastic, or its owner says that it can be restarted.

    shared: jobs whose GPUs another one uses, too.
    """
    if (
        not settled(job)
        or job.invalid
        or job.released
        or job.preempted
        or job.shrink_blocked_by
        or job.scored
    ):
        return False
    if is_rigid(job):
        return False
    if job.resize_at == "boundary" and not (job.report is not None and job.report.boundary):
        return False
    if not all(m.evictable for role in job.roles for m in role.on):
        return False
    return job.key not in shared and (job.grant is None or job.grant.beside is None)


def on_shared_gpus(snapshot: Snapshot) -> set[JobKey]:
    """Jobs beside which another one runs."""
    grants = [job.grant for job in snapshot.jobs.values() if job.grant is not None and job.bound]
    return {grant.beside for grant in grants if grant.beside is not None}


def changed_at(job: Job) -> float:
    """When it last started or changed."""
    facts = job.facts
    return max(job.started_at, facts.run_start or 0.0, facts.last_resize or 0.0)


def waits_for_room(job: Job, now: float) -> bool:
    """Whether all of its minimum exists, waits behind the gate, and asks for GPUs."""
    if (
        job.started
        or job.reservations
        or job.invalid
        or job.released
        or job.not_before > now
        or job.preempted
    ):
        return False
    return bool(job.gpus) and all(role.devices or role.ready >= role.min for role in job.roles)


def least_of(job: Job) -> list[Need]:
    """What a job needs to start, most GPUs a replica first."""
    needs = [Need(role, role.min) for role in job.roles if role.min > 0]
    return sorted(needs, key=lambda n: (-n.role.shape.gpus, n.role.name))


def as_bound(job: Job) -> list[Need]:
    """As many replicas as run."""
    return [Need(role, role.bound) for role in job.roles if role.bound]


def gpus_of(job: Job) -> int:
    """GPUs that its replicas use."""
    return sum(member.shape.gpus for role in job.roles for member in role.on)


def by_node(jobs: Mapping[JobKey, Job]) -> dict[str, list[Job]]:
    """Jobs with a replica on each node, by key."""
    result: dict[str, list[Job]] = {}
    for _, job in sorted(jobs.items()):
        for name in dict.fromkeys(m.node for role in job.roles for m in role.on):
            result.setdefault(name, []).append(job)
    return result


def leave(capacity: Capacity, job: Job, nodes: Nodes) -> None:
    """Its places are free in a trial, but for those that `come_free` gives."""
    for role in job.roles:
        for member in role.on:
            row = nodes.index.get(member.node)
            if row is not None and member.phase is Phase.BOUND:
                capacity.give(row, member.shape)


def come_free(capacity: Capacity, snapshot: Snapshot) -> None:
    """Places that others leave without anything more being ended are free in a trial."""
    capacity.give_all(releasing(snapshot))


# ---- nodes ----


def rows_on(job: Job, nodes: Nodes) -> Counter[int]:
    """Replicas by node row, where it runs."""
    return Counter(nodes.index[m.node] for role in job.roles for m in role.on if m.node in nodes.index)


def rows_of(assignments: Sequence[Assignment]) -> Counter[int]:
    """Replicas by node row, where it would run."""
    counts: Counter[int] = Counter()
    for _, row, count in assignments:
        counts[row] += count
    return counts


def racks(rows: Mapping[int, int], nodes: Nodes, label: str) -> int:
    """Racks that these nodes are in; nodes without the label count as one."""
    ids, _ = nodes.domains(label)
    return len({int(ids[row]) for row in rows})


def move_to(
    job: Job,
    assignments: Sequence[Assignment],
    nodes: Nodes,
    gain: float,
    cost: float,
    why: str,
    replicas: int = 0,
) -> Move:
    """The move, one node name a replica. replicas: as in `Move`."""
    to = tuple(nodes.names[row] for row, count in sorted(rows_of(assignments).items()) for _ in range(count))
    return Move(job.key, to=to, replicas=replicas, gain=gain, cost=cost, why=why)


# ---- speed ----


def speed_of(job: Job, snapshot: SharingSnapshot) -> Callable[[Config], float] | None:
    """Speed by configuration: the profile's Estimate, else what was measured; None where nothing is known."""
    table = snapshot.table
    row = table.row.get(job.key)
    estimated = table.estimated[row] if row is not None else None
    if estimated is not None:
        return estimated
    if job.samples:
        return lambda config: measured(job, config)
    return None


def measured(job: Job, config: Config) -> float:
    """The measured speed with these replicas on so many nodes (0 = never tried; exact distribution first)."""
    exact = job.samples.get(config)
    if exact is not None:
        return exact
    alike = [
        speed
        for found, speed in job.samples.items()
        if found.roles == config.roles
        and len(found.nodes) == len(config.nodes)
        and found.product == config.product
        and found.batch == config.batch
        and found.beside == config.beside
    ]
    return max(alike, default=0.0)


def config_now(job: Job, snapshot: Snapshot) -> Config:
    """How it runs."""
    on = Counter(m.node for m in elastic_role(job).members if m.phase is Phase.BOUND)
    return _config(job, on, snapshot)


def config_on(job: Job, assignments: Sequence[Assignment], snapshot: Snapshot) -> Config:
    """How it would run on these spots."""
    elastic = elastic_role(job)
    on: Counter[str] = Counter()
    for role, row, count in assignments:
        if role == elastic.name:
            on[snapshot.nodes.names[row]] += count
    return _config(job, on, snapshot)


def _config(job: Job, on: Mapping[str, int], snapshot: Snapshot) -> Config:
    records = snapshot.nodes.records
    index = snapshot.nodes.index
    products = {records[index[name]].labels.get(PRODUCT, "") for name in on if name in index}
    return Config(
        roles=tuple(sorted((role.name, role.bound) for role in trained_on(job) if role.bound)),
        nodes=tuple(sorted(on.values(), reverse=True)),
        product=products.pop() if len(products) == 1 else "",
        batch=job.batch,
    )
