"""Scenarios in the domain's words: a cluster, jobs with roles, and what one cycle makes of them.

    before = snapshot(nodes=4, gpus=8, jobs=[job("train", worker=4, gpus=2)])
    assert starts(plan(before)) == {"train": {"n0": 4}}

A job's replicas exist and wait behind the gate, unless `on` says where they run, `pinned` where they were sent
or `held` where the last plan put them. Capacity is charged as the Ledger does: by replica, at one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from muster.core.cycle import cycle
from muster.core.placement.capacity import used_by
from muster.points import Profile
from muster.types import (
    GPU,
    Job,
    JobKey,
    Member,
    NodeRecord,
    Nodes,
    Phase,
    Plan,
    Port,
    Reservation,
    Role,
    Shape,
    Snapshot,
    Taint,
)
from muster_plugins.pack import Pack

NOW = 10_000.0
NAMESPACE = "team"
GIB = 1024**3
RACK = "topology.muster.dev/rack"
BLOCK = "topology.muster.dev/block"
FIFO = Profile(scores=((Pack(), 1.0),))


def key(name: str) -> JobKey:
    """The key of a job of a scenario."""
    return JobKey(NAMESPACE, name)


def node(
    name: str,
    gpus: int = 8,
    *,
    cpu: int = 96,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    cordoned: bool = False,
    **more: int,
) -> NodeRecord:
    """A node of 96 cpu, 1Ti and 110 pods; cpu in cores; `more` = other resources in pieces."""
    allocatable = {"cpu": cpu * 1000, "memory": 1024 * GIB, "pods": 110, **more}
    if gpus:
        allocatable[GPU] = gpus
    return NodeRecord(name, dict(labels or {}), tuple(taints), cordoned, allocatable)


def cluster(nodes: int, gpus: int = 8, *, racks: int = 0, blocks: int = 0) -> list[NodeRecord]:
    """n0, n1, ...: spread over racks r0, r1, ... in turn of equal runs, and racks over blocks b0, b1, ..."""
    width = len(str(max(0, nodes - 1)))
    result = []
    for i in range(nodes):
        labels = {}
        if racks:
            labels[RACK] = f"r{i * racks // nodes}"
        if blocks:
            labels[BLOCK] = f"b{i * blocks // nodes}"
        result.append(node(f"n{i:0{width}d}", gpus, labels=labels))
    return result


def asks(gpus: int = 0, *, cpu: int = 0, memory: int = 0, **more: Any) -> Shape:
    """A shape: GPUs, cpu in millicores, memory in GiB, and any other field of Shape."""
    requests = {GPU: gpus, "cpu": cpu, "memory": memory * GIB}
    return Shape(requests=tuple(sorted((r, v) for r, v in requests.items() if v)), **more)


def role(
    name: str,
    count: int,
    *,
    gpus: int = 1,
    shape: Shape | None = None,
    present: int | None = None,
    least: int | None = None,
    most: int | None = None,
    sizes: Sequence[int] = (),
    on: Sequence[str] = (),
    pinned: Sequence[str] = (),
    ending: Sequence[str] = (),
    stray: int = 0,
    job: str = "job",
    refused: Mapping[int, tuple[float, str]] | None = None,
    evictable: bool = True,
    held_back: int = 0,
    ended: int = 0,
) -> Role:
    """A role: on = nodes of bound replicas (lowest index first), then pinned, ending, stray and gated ones.

    stray: gates that somebody else took off; held_back: replicas with another gate; refused: by index, when
    kube-scheduler refused the pin and its message; the last `held_back` of `present` carry a foreign gate.
    """
    asked = asks(gpus) if shape is None else shape
    present = count if present is None else present
    members = []
    for i in range(present):
        phase, where = Phase.GATED, ""
        if i < len(on):
            phase, where = Phase.BOUND, on[i]
        elif i < len(on) + len(pinned):
            phase, where = Phase.UNGATED, pinned[i - len(on)]
        elif i < len(on) + len(pinned) + len(ending):
            phase, where = Phase.ENDING, ending[i - len(on) - len(pinned)]
        elif i < len(on) + len(pinned) + len(ending) + stray:
            phase = Phase.UNGATED
        elif i >= present - held_back:
            phase = Phase.HELD
        when, why = (refused or {}).get(i, (0.0, ""))
        members.append(
            Member(
                uid=f"{job}-{name}-{i}",
                pod=f"{job}-{name}-{i}",
                phase=phase,
                shape=asked,
                index=i,
                node=where,
                pinned=phase is Phase.UNGATED and bool(where),
                refused_at=when,
                refusal=why,
                evictable=evictable,
            )
        )
    return Role(
        name,
        count if least is None else least,
        count if most is None else most,
        asked,
        tuple(sizes),
        tuple(members),
        ended,
    )


ROLE_WORDS = {
    "gpus", "shape", "present", "least", "most", "sizes", "on", "pinned", "ending", "stray", "refused",
    "evictable", "held_back", "ended",
}  # fmt: skip


def job(name: str, *, roles: Sequence[Role] | None = None, **words: Any) -> Job:
    """A job: `worker=4` (or any role name) counts a role's replicas; the rest are words of `role` and of Job.

    held: (role, node) or (role, node, index) of places that the last plan gave; a job with bound or pinned
    replicas counts as started 1000 s ago.
    """
    ours = {word: words.pop(word) for word in list(words) if word in ROLE_WORDS}
    fields = {word: words.pop(word) for word in list(words) if word in Job.__dataclass_fields__}
    held = words.pop("held", ())
    if roles is None:
        roles = [role(each, count, job=name, **ours) for each, count in words.items()]
    reservations = tuple(
        Reservation(h[0], h[1], f"{name}-{h[0]}-{h[2]}", f"{name}-{h[0]}-{h[2]}")
        if len(h) > 2
        else Reservation(h[0], h[1])
        for h in held
    )
    members = [m for r in roles for m in r.members]
    started = any(m.phase is Phase.BOUND or (m.phase is Phase.UNGATED and m.node) for m in members)
    fields.setdefault("started", started)
    if started:
        fields.setdefault("started_at", NOW - 1000.0)
        pins = tuple(
            Reservation(r.name, m.node, m.pod, m.uid)
            for r in roles
            for m in r.members
            if m.phase is Phase.UNGATED and m.node and m.uid not in {h.uid for h in reservations}
        )
        reservations += pins
    fields.setdefault("submitted", NOW - 60.0)
    fields.setdefault("newest_pod", NOW - 60.0)
    return Job(key(name), roles=tuple(roles), reservations=reservations, **fields)


def snapshot(
    nodes: int | Sequence[NodeRecord] = 4,
    gpus: int = 8,
    jobs: Iterable[Job] = (),
    *,
    now: float = NOW,
    racks: int = 0,
    blocks: int = 0,
    foreign: Mapping[str, Shape] | None = None,
    ports: Mapping[str, Sequence[Port]] | None = None,
    node_backoffs: Mapping[tuple[str, str], Mapping[str, float]] | None = None,
) -> Snapshot:
    """A cluster and its jobs; jobs without a submission time of their own are in the order given.

    foreign: what pods of other schedulers use, by node.
    """
    records = cluster(nodes, gpus, racks=racks, blocks=blocks) if isinstance(nodes, int) else list(nodes)
    table = Nodes(records)
    free, ours = table.total.copy(), np.zeros(len(table), dtype=np.int64)
    ordered = {}
    for i, each in enumerate(jobs):
        queued = each if each.submitted != NOW - 60.0 else replace(each, submitted=each.submitted + i * 0.001)
        ordered[queued.key] = queued
        for place, shape in used_places(queued):
            row = table.index.get(place)
            if row is not None:
                charge(free, row, shape, table)
                ours[row] += 1
    for place, shape in (foreign or {}).items():
        charge(free, table.index[place], shape, table)
    return Snapshot(
        now=now,
        nodes=table,
        free=free,
        jobs=ordered,
        ports={table.index[n]: frozenset(p) for n, p in (ports or {}).items()},
        node_backoffs={(key(j), r): until for (j, r), until in (node_backoffs or {}).items()},
        ours_on=ours,
    )


def used_places(each: Job) -> list[tuple[str, Shape]]:
    """(node, shape) of each replica that uses or will use a node, each once."""
    shapes = {r.name: r.shape for r in each.roles}
    places = {m.uid: (m.node, m.shape) for r in each.roles for m in r.members if m.node}
    for i, reservation in enumerate(each.reservations):
        places.setdefault(reservation.uid or f"open-{i}", (reservation.node, shapes[reservation.role]))
    return list(places.values())


def charge(free: Any, row: int, shape: Shape, table: Nodes) -> None:
    """Take one replica off a node's free columns."""
    for column, value in used_by(shape, table).items():
        free[row, column] -= value


def plan(before: Snapshot, profile: Profile = FIFO, **changes: Any) -> Plan:
    """One cycle with a profile, changed in the fields named."""
    return cycle(before, replace(profile, **changes))


def starts(after: Plan) -> dict[str, dict[str, int]]:
    """Replicas by node of every job that has places (not bound yet) after the plan."""
    return {
        k.name: dict(Counter(h.node for h in reservations))
        for k, reservations in after.reservations.items()
        if reservations
    }


def starts_by_role(after: Plan) -> dict[str, dict[str, dict[str, int]]]:
    """Replicas by role and node of every job that has places after the plan."""
    result: dict[str, dict[str, dict[str, int]]] = {}
    for k, reservations in after.reservations.items():
        for reservation in reservations:
            places = result.setdefault(k.name, {}).setdefault(reservation.role, {})
            places[reservation.node] = places.get(reservation.node, 0) + 1
    return result


def queue(after: Plan) -> list[str]:
    """Names of the waiting jobs, first first."""
    return [k.name for k in after.order]


def said(after: Plan) -> dict[str, str]:
    """What each job's owner reads: "State Reason: message; detail"."""
    return {
        k.name: f"{s.state} {s.reason}: {s.message}" + (f"; {s.detail}" if s.detail else "")
        for k, s in after.statuses.items()
    }
