"""What a cycle looks at: nodes and jobs as columns, at one instant."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from muster.cached import MIB, Cache
from muster.types.job import Config, Job
from muster.types.kube import NodeRecord, Use
from muster.types.status import Reason
from muster.types.values import (
    DEVICES,
    GPU,
    PODS,
    WHOLE,
    BoolArray,
    DeviceNames,
    FloatArray,
    IntArray,
    JobKey,
    Port,
    Shape,
    Taint,
    Term,
    Toleration,
    mig_slices,
)

if TYPE_CHECKING:
    from muster.types.plan import Grants

MASKS, VERDICTS = 24 * MIB, 8 * MIB
"""Bytes of what is kept with one set of nodes: masks of constraints, and why jobs fit nowhere."""
Constraint = tuple[tuple[tuple[str, str], ...], tuple[Term, ...], tuple[Toleration, ...], str]
"""A shape's selector, affinity, tolerations and node name: what decides which nodes it may use."""
Demand = tuple[tuple[tuple[Shape, int], ...], str]
"""Shapes with the replicas of each that a job needs at once, and the topology label it needs them within."""
KEEPS_OFF = ("NoSchedule", "NoExecute")


class Nodes:
    """The nodes as columns, sorted by name. Static: rebuilt when a node's labels, taints, allocatable or
    schedulability change, and shared by snapshots until then. Nobody changes them. What follows from them alone is
    kept with them: `masks` by constraint (core.placement.feasibility) and `verdicts`: why such a demand finds no
    place on them while they are empty, "" where it does (core.reasons.refusals). devices: what counts in their GPUs.

    names: N strings; resources: R names; total: (N, R) int64; open: (N,) bool, false for cordoned nodes.
    """

    __slots__ = (
        "_closed_by",
        "_domains",
        "_labels",
        "_usable",
        "devices",
        "index",
        "masks",
        "names",
        "open",
        "records",
        "resource_index",
        "resources",
        "total",
        "verdicts",
    )

    def __init__(self, records: Sequence[NodeRecord], devices: DeviceNames = DEVICES) -> None:
        self.devices = devices
        self.records: tuple[NodeRecord, ...] = tuple(sorted(records, key=lambda n: n.name))
        self.names: tuple[str, ...] = tuple(n.name for n in self.records)
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        names = {resource for node in self.records for resource in node.allocatable}
        self.resources: tuple[str, ...] = tuple(sorted(names | {"cpu", "memory", PODS}))
        self.resource_index: dict[str, int] = {name: i for i, name in enumerate(self.resources)}
        self.total: IntArray = np.zeros((len(self.records), len(self.resources)), dtype=np.int64)
        for i, node in enumerate(self.records):
            for resource, amount in node.allocatable.items():
                self.total[i, self.resource_index[resource]] = amount
        self.open: BoolArray = np.array([not n.unschedulable for n in self.records], dtype=np.bool_)
        self.masks: Cache[Constraint, BoolArray | None] = Cache(MASKS)
        self.verdicts: Cache[Demand, tuple[Reason, str] | None] = Cache(VERDICTS)
        self._domains: dict[str, tuple[IntArray, tuple[str, ...]]] = {}
        self._labels: set[str] | None = None
        self._closed_by: tuple[IntArray, list[NodeRecord]] | None = None
        self._usable: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.names)

    def gpus(self, columns: IntArray) -> IntArray:
        """(N,) GPUs of (N, R) columns, as `Shape.gpus` counts them: nvidia.com/gpu, else whatever ends in /gpu; and
        all else that counts, MIG devices for one."""
        found = {i: name for i, name in enumerate(self.resources) if self.devices.has(name)}
        own = next((i for i, name in found.items() if name == GPU), None)
        if own is not None and len(found) == 1:
            return columns[:, own]
        others = [i for i, name in found.items() if i != own and name.endswith(WHOLE)]
        rest = columns[:, others].sum(axis=1)
        if own is not None:
            rest = np.where(self.total[:, own] > 0, columns[:, own], rest)
        more = [i for i, name in found.items() if not name.endswith(WHOLE)]
        return np.asarray(rest + columns[:, more].sum(axis=1), dtype=np.int64)

    def mig_slices(self, columns: IntArray) -> IntArray:
        """(N,) compute slices of the MIG devices in (N, R) columns: what part of GPUs they are (`gpus` counts each
        device as one)."""
        each = {i: found for i, name in enumerate(self.resources) if (found := mig_slices(name))}
        return np.asarray(
            columns[:, list(each)] @ np.array(list(each.values()), dtype=np.int64), dtype=np.int64
        )

    def domains(self, label: str) -> tuple[IntArray, tuple[str, ...]]:
        """(N,) domain id of each node by a label key (-1 without the label), and the domains' names."""
        if self._labels is None:
            self._labels = set[str]().union(*(n.labels for n in self.records))
        if label not in self._labels:  # tenants name keys that nobody has: one answer for all of them
            label = ""
        if label not in self._domains:
            values = [n.labels.get(label) for n in self.records]
            names = tuple(sorted({v for v in values if v is not None}))
            position = {name: i for i, name in enumerate(names)}
            ids = np.array([-1 if v is None else position[v] for v in values], dtype=np.int64)
            self._domains[label] = (ids, names)
        return self._domains[label]

    def closed_by(self) -> tuple[IntArray, list[NodeRecord]]:
        """(N,) id of what keeps pods off each node, its taints and whether it is cordoned, and a node of each id."""
        if self._closed_by is None:
            kinds: dict[tuple[tuple[Taint, ...], bool], int] = {}
            first: list[NodeRecord] = []
            ids = np.zeros(len(self.records), dtype=np.int64)
            for row, node in enumerate(self.records):
                at = ids[row] = kinds.setdefault((node.taints, node.unschedulable), len(kinds))
                if at == len(first):
                    first.append(node)
            self._closed_by = ids, first
        return self._closed_by

    def usable(self) -> BoolArray:
        """(N,) nodes that are neither cordoned nor taken out by Kubernetes itself (not ready, unreachable, ...)."""
        if self._usable is None:
            out = [
                any(t.key.startswith("node.kubernetes.io/") and t.effect in KEEPS_OFF for t in node.taints)
                for node in self.records
            ]
            self._usable = self.open & ~np.array(out, dtype=np.bool_)
        return self._usable


class Table:
    """The jobs as columns: J rows by submission, then `Job.tie`. What Share plugins read; never written by
    them.

    keys: J job keys. Of each job's *elastic role* (the first whose max is above its min, else the first with GPUs):
    min, max, request, have: (J,) int64 replicas: fewest and most it may have, what its owner asked for, and
    what it has now (held places count). unit: (J,) int64 GPUs of one replica; fixed: (J,) GPUs of its other
    roles together, taken as soon as it runs. priority: (J,) int64.
    submitted, first_start, run_start, last_resize: (J,) s; +inf (the starts) and -inf (last_resize) = never. The run
    of a job that has its places begins now, until what it needs is on its nodes.
    gpu_seconds, run_gpu_seconds, executed, progress: (J,) s, as in `Facts`. remaining: (J,) seconds of work on one
    replica by the profile's Estimate, nan = unknown. speed of a job at n replicas, relative to one replica, is
    curves[curve[j], n]: curve (J,) int64, curves (C, K+1) float64 with column 0 = 0; beyond a job's `max` the
    entries are meaningless. sizes: by row, the allowed counts where not every count from min to max is.
    estimated: by row, speed in any configuration (`Estimation.speed`), None where the Estimate says nothing of it.
    gpus: GPUs that these jobs may use together; products: the same by GPU product; per_node: GPUs of the
    largest node. A job that can't run now (incomplete, invalid, backing off) or that is not ours to end has no row.
    """

    __slots__ = (
        "curve",
        "curves",
        "estimated",
        "executed",
        "first_start",
        "fixed",
        "gpu_seconds",
        "gpus",
        "have",
        "keys",
        "last_resize",
        "max",
        "min",
        "per_node",
        "priority",
        "products",
        "progress",
        "remaining",
        "request",
        "row",
        "run_gpu_seconds",
        "run_start",
        "sizes",
        "submitted",
        "unit",
    )

    keys: Sequence[JobKey]
    submitted: FloatArray
    first_start: FloatArray
    run_start: FloatArray
    last_resize: FloatArray
    gpu_seconds: FloatArray
    run_gpu_seconds: FloatArray
    executed: FloatArray
    progress: FloatArray
    remaining: FloatArray
    min: IntArray
    max: IntArray
    request: IntArray
    have: IntArray
    unit: IntArray
    fixed: IntArray
    priority: IntArray
    curve: IntArray
    curves: FloatArray
    sizes: Mapping[int, tuple[int, ...]]
    estimated: Sequence[Callable[[Config], float] | None]
    row: Mapping[JobKey, int]
    gpus: int
    per_node: int
    products: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.submitted)


@dataclass(frozen=True)
class Snapshot:
    """Everything that a plan may depend on, frozen.

    free: (N, R) int64, what is left after bound, ending, ungated and held replicas and foreign pods.
    ports: host ports in use by node row. ours_on: (N,) int64 pods of ours on each node.
    barred: node names left out for (job, role) since a pin there was refused, with the time until.
    shared_at: when shares were last computed (a profile with rounds does so at whole multiples of its length).
    use: what nodes and pods really use, where a plugin of the profile asks for it (`READS_USE`) and it is known; None
    else, and in simulations.
    """

    now: float
    nodes: Nodes
    free: IntArray
    jobs: Mapping[JobKey, Job]
    ports: Mapping[int, frozenset[Port]] = field(default_factory=dict)
    node_backoffs: Mapping[tuple[JobKey, str], Mapping[str, float]] = field(default_factory=dict)
    ours_on: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    seed: int = 0
    shared_at: float = 0.0
    use: Use | None = None

    @cached_property
    def contending(self) -> int:
        """Jobs that have GPUs or may get some. One that is over is in the snapshot for as long as its owner is on the
        API, with no replica to come; one that is invalid keeps what it has, and gets nothing."""
        return sum([_contends(job) for job in self.jobs.values()])

    def rng(self, plugin: str) -> np.random.Generator:
        """Random numbers that are the same for the same seed, plugin and time (design §3)."""
        return np.random.default_rng([self.seed, zlib.crc32(plugin.encode()), int(self.now * 1000.0)])

    def with_table(self, table: Table) -> SharingSnapshot:
        """What plugins look at that share and rebalance: the same with jobs as columns."""
        return SharingSnapshot(
            self.now,
            self.nodes,
            self.free,
            self.jobs,
            self.ports,
            self.node_backoffs,
            self.ours_on,
            self.seed,
            self.shared_at,
            self.use,
            table=table,
        )


def _contends(job: Job) -> bool:
    takes = job.bound > 0 or (job.max > 0 and not job.invalid)
    return takes and any(role.shape.gpus for role in job.roles)


@dataclass(frozen=True)
class SharingSnapshot(Snapshot):
    """A snapshot with the jobs that share as columns: what Share, Rebalance and Wake are asked with.

    granted: what the policy grants them, before anybody looks for places; Rebalance has it, where GPUs are shared.
    """

    table: Table = field(kw_only=True)
    granted: Grants | None = field(default=None, kw_only=True)
