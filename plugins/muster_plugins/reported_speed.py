"""What `reported` believes of a job's speed: measured, declared, learned, of a reference, or linear."""

from __future__ import annotations

from typing import NamedTuple

from muster.core.placement.reservations import placed
from muster.core.progress.curves import Points, alone, curve, interpolated, with_servers
from muster.core.progress.estimate import fair_replicas
from muster.core.progress.learned import Lesson
from muster.core.progress.report_filter import config_of
from muster.policylib.references import PAPER, References
from muster.types import PRODUCT, Config, Job, Snapshot, elastic_role

MOST = 1024
"""Replicas up to which a curve is made; the core stays at its last speed beyond."""
SERVERS = ("server", "ps", "parameter-server")


class Believed(NamedTuple):
    """speeds: at 0, 1 ... replicas, in the unit of the measurements where there are any, empty = linear.
    one: speed on one replica in samples/s (iterations/s), 0 = never measured.
    """

    speeds: tuple[float, ...]
    one: float


def believed(job: Job, snapshot: Snapshot, lesson: Lesson | None, *, fair: bool) -> Believed:
    """The curve by the first source that there is. fair: as in `Reported`."""
    role = elastic_role(job)
    max_count = max(1, min(role.max, MOST))
    owned = interpolated(job.speed)
    learned = lesson.curve(role.name) if lesson is not None else ()
    if job.samples:
        points = points_of(job, snapshot)
        if points:
            servers = _servers(job, role.name)
            if servers:
                surface = with_servers(_surface_points(job, role.name, servers), servers[1], max_count)
                learned = surface or learned
            prior = owned or ((0.0, *reference(job, snapshot)) if len(points) == 1 else ())
            speeds = curve(points, max_count, learned, prior, owned)
            return Believed(speeds, speeds[1])
    one = 0.0
    if lesson is not None and learned and lesson.counts_samples == tells_samples(job, lesson):
        one = learned[1]
    if owned:
        return Believed(owned, one)
    if lesson is not None and learned:
        return Believed(curve(lesson.points(role.name), max_count), one)
    found = reference(job, snapshot)
    if found:
        return Believed(curve(tuple(enumerate(found, start=1)), max_count), 0.0)
    if fair and job.report is not None:
        part = min(max(fair_part(job, snapshot), has(job)), max_count)
        return Believed(tuple([float(n) for n in range(part + 1)]), 0.0)
    return Believed((), 0.0)


def has(job: Job) -> int:
    """Replicas of the elastic role that it has: on nodes, or with a place to start, or to start again, in."""
    role = elastic_role(job)
    return max(len(role.on), placed(role, job.reservations), len(job.restart_on))


def points_of(job: Job, snapshot: Snapshot) -> Points:
    """(replicas of the elastic role, speed) as measured, by replicas; see `reported`."""
    role = elastic_role(job)
    servers = _servers(job, role.name) if len(job.roles) > 1 else None
    found = []
    for config, speed in alone(job.samples):
        count = config.count(role.name)
        if count and speed > 0.0 and not (servers and _other(config, servers)):
            found.append((config.product, count, speed, config.batch))
    sizes = {size for *_, size in found}
    if len(sizes) > 1:  # those of the batch size that it has, or had last
        size = job.batch if job.batch in sizes else found[-1][3]
        found = [one for one in found if one[3] == size]
    kinds = {product for product, *_ in found}
    # most jobs: nothing to choose from
    if len({count for _, count, *_ in found}) == len(found) and len(kinds) <= 1:
        return tuple(sorted([(count, speed) for _, count, speed, _ in found]))
    now = config_of(job, lambda node: product_of(snapshot, node)) if job.running else Config()
    chosen = now.product
    if chosen not in kinds or not job.running:
        chosen = max(kinds, key=lambda kind: (sum(1 for product, *_ in found if product == kind), kind))
    points: dict[int, float] = {}
    for product, count, speed, _ in found:
        if product == chosen:
            points[count] = max(speed, points.get(count, 0.0))
    if now.count(role.name) in points and now in job.samples:
        points[now.count(role.name)] = job.samples[now]
    return tuple(sorted(points.items()))


def _other(config: Config, servers: tuple[str, int]) -> bool:
    return config.count(servers[0]) != servers[1]


def _servers(job: Job, elastic: str) -> tuple[str, int] | None:
    """The role of the parameter servers, and how many there are now (else at least)."""
    for role in job.roles:
        if role.name in SERVERS and role.name != elastic:
            return role.name, role.bound or max(1, role.min)
    return None


def _surface_points(job: Job, elastic: str, servers: tuple[str, int]) -> tuple[tuple[int, int, float], ...]:
    best: dict[tuple[int, int], float] = {}
    for config, speed in alone(job.samples):
        counts = config.count(elastic), config.count(servers[0])
        if speed > 0.0 and min(counts) > 0:
            best[counts] = max(speed, best.get(counts, 0.0))
    return tuple((w, p, s) for (w, p), s in sorted(best.items()))


def speed_at(job: Job, config: Config, speeds: tuple[float, ...]) -> float:
    """Of any configuration: as measured, else the curve, scaled by what is measured of the same product."""
    found = job.samples.get(config)
    if found is not None:
        return found
    name = elastic_role(job).name
    count = config.count(name)
    if not speeds:
        return float(count)
    believed = speeds[min(count, len(speeds) - 1)]
    own = [
        s / speeds[min(c.count(name), len(speeds) - 1)]
        for c, s in job.samples.items()
        if c.product == config.product and c.beside == config.beside and c.count(name)
    ]
    return believed * (sum(own) / len(own) if own else 1.0)


def product_of(snapshot: Snapshot, node: str) -> str:
    row = snapshot.nodes.index.get(node)
    return "" if row is None else snapshot.nodes.records[row].labels.get(PRODUCT, "")


def fair_part(job: Job, snapshot: Snapshot) -> int:
    """Replicas of the elastic role in an equal share M / n of the GPUs, at least what it needs to run."""
    return max(1, elastic_role(job).min, fair_replicas(job, snapshot))


def reference(job: Job, snapshot: Snapshot, known: References = PAPER) -> tuple[float, ...]:
    """Speeds at 1, 2 ... replicas by the reference table; empty for a model or a product that it does not know."""
    role = elastic_role(job)
    if job.model not in known.characteristics:
        return ()
    product = next((product_of(snapshot, m.node) for m in role.on), "")
    if not product:
        _, names = snapshot.nodes.domains(PRODUCT)
        product = names[0] if names else ""
    match = next((p for p in known.products if p and p in product.replace(" ", "")), "")
    gpus = max(1, role.shape.gpus)
    batch = job.batch or max(known.batches)
    speeds = [known.speed(job.model, match, n * gpus, batch) for n in range(1, known.most // gpus + 1)]
    return tuple(speeds) if speeds and min(speeds) > 0.0 else ()


def tells_samples(job: Job, lesson: Lesson) -> bool:
    """Whether the job counts in samples; before its first report it is believed to do as others did."""
    return lesson.counts_samples if job.report is None else job.report.samples > 0.0
