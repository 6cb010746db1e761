"""A large cluster made of values: 5,000 nodes, thousands of running and waiting jobs, for in-process measures.

It is full, so that what waits has to wait; the waiting jobs are of many sizes and of a few dozen shapes, as
in a real queue. Seeded: the same cluster every time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from muster.core.ledger import Ledger
from muster.core.views.view import View
from muster.points import Profile
from muster.types import (
    GPU,
    Action,
    Event,
    GangRecord,
    GangSeen,
    Job,
    JobKey,
    Member,
    NodeRecord,
    NodeSeen,
    Outcome,
    Phase,
    PodRecord,
    PodSeen,
    Reservation,
    Role,
    Shape,
    WriteGang,
)

NOW = 1_700_000_000.0
GPUS = 8
LEVELS = ("topology.kubernetes.io/rack", "topology.kubernetes.io/zone")


@cache
def shape(gpus: int, cpus: int) -> Shape:
    """What one replica asks for; pods of one template share it, as after decoding."""
    return Shape(requests=(("cpu", cpus * 1000), ("memory", gpus << 33), (GPU, gpus)))


def nodes(count: int) -> Iterator[Event]:
    """Nodes in racks of four, as the lab's."""
    for i in range(count):
        name = f"node-{i:04d}"
        labels = {"kubernetes.io/hostname": name, LEVELS[0]: f"rack-{i // 4}", LEVELS[1]: "zone-0"}
        has = {GPU: GPUS, "cpu": 96_000, "memory": 1 << 40, "pods": 110}
        yield NodeSeen(NodeRecord(name, labels, allocatable=has))


def pod(job: str, number: int, replicas: int, asks: Shape, *, node: str = "", version: int = 1) -> PodRecord:
    """A replica; with a node it runs there."""
    return PodRecord(
        uid=f"uid-{job}-{number}",
        namespace=f"team-{hash_of(job) % 50}",
        name=f"{job}-{number}",
        version=str(version),
        created=NOW - 10_000 + hash_of(job) % 9_000,
        phase=Phase.BOUND if node else Phase.GATED,
        node=node,
        shape=asks,
        labels={"muster.dev/job": job},
        annotations={"muster.dev/roles": f"worker={replicas}"},
    )


def hash_of(text: str) -> int:
    """As hash(), but the same in every process."""
    value = 0
    for letter in text:
        value = (value * 31 + ord(letter)) & 0x7FFFFFFF
    return value


def filled(count: int, running: int, waiting: int, seed: int = 1) -> Iterator[Event]:
    """Nodes, running jobs that use every GPU, and waiting jobs, with the Gangs that Muster has written."""
    yield from nodes(count)
    whole = shape(GPUS, 64)
    for i in range(running):  # an even share of the nodes each, one pod a node
        mine = range(i * count // running, (i + 1) * count // running)
        job = f"run-{i:05d}"
        for number, row in enumerate(mine):
            yield PodSeen(pod(job, number, len(mine), whole, node=f"node-{row:04d}"))
        yield _gang(job, "Running", "Ok", f"{len(mine)} replicas running", f"{len(mine)}/{len(mine)}")
    chance = random.Random(seed)
    for i in range(waiting):
        yield from arrival(f"wait-{i:05d}", chance)


def arrival(job: str, chance: random.Random) -> Iterator[Event]:
    """The pods of one job that has to wait."""
    replicas = chance.choice((1, 1, 1, 2, 2, 4, 8))
    asks = shape(chance.choice((1, 2, 4, 8)), chance.choice((4, 8, 16)))
    for number in range(replicas):
        yield PodSeen(pod(job, number, replicas, asks))


def _gang(job: str, state: str, reason: str, message: str, replicas: str) -> Event:
    key = JobKey(f"team-{hash_of(job) % 50}", job, "")
    return GangSeen(
        GangRecord(key, job, f"gang-{job}", "1", state, reason, message, NOW, NOW, NOW, (), replicas)
    )


def scored_view(view: View, job: str, replicas: int) -> tuple[View, str]:
    """The View with one scored job that has places, for filter and prioritize; the uid of its first pod."""
    asks = replace(shape(1, 4), unmodelled=("podAntiAffinity",))
    key = JobKey("team-0", job, "")
    names = view.snapshot.nodes.names
    reservations = tuple(
        Reservation("worker", names[i], f"{job}-{i}", f"uid-{job}-{i}") for i in range(replicas)
    )
    members = tuple(Member(h.uid, h.pod, Phase.UNGATED, asks) for h in reservations)
    role = Role("worker", replicas, replicas, asks, members=members)
    found = Job(key, roles=(role,), reservations=reservations, started=True, scored=asks.unmodelled)
    snapshot = replace(view.snapshot, jobs={**view.snapshot.jobs, key: found})
    places = {**view.reservations, **{h.uid: (key, h) for h in reservations}}
    return replace(view, snapshot=snapshot, reservations=places), reservations[0].uid


def written(actions: Iterable[Action]) -> Iterator[Event]:
    """What an apiserver answers to the Gangs that are written."""
    for action in actions:
        if isinstance(action, WriteGang):
            status = action.status
            record = GangRecord(
                key=action.job,
                name=action.gang,
                object_uid=f"gang-{action.job.name}",
                version="2",
                state=str(status["state"]),
                reason=str(status["reason"]),
                message=str(status["message"]),
                submitted=NOW,
                placement=action.reservations,
                replicas=str(status["replicas"]),
            )
            yield GangSeen(record)
            yield Outcome(action, 200)


def ledger_of(profile: Profile, count: int, running: int, waiting: int) -> Ledger:
    """A Ledger that has seen `filled`."""
    ledger = Ledger(profile)
    for event in filled(count, running, waiting):
        ledger.apply(event, NOW)
    ledger.take_over()
    return ledger
