"""Who is compared by `python -m e2e.bench peers`: how each is told of a gang, what runs for it, its settings, and
where it says that a gang has to wait; by each one's own documentation (`sources`), on labs that are else the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from e2e.bench import load
from e2e.bench.course import NATIVE_FLAGS, NATIVE_GATE
from e2e.bench.predicted import RESIZE_COST
from e2e.bench.report import OUT
from e2e.cluster import Cluster, Json
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.limits import CLIENT_BURST, CLIENT_QPS
from e2e.operated import path
from e2e.queued import API as KUEUE
from e2e.queued import COMPLETES_WITH_FEWER, LEAST, QUEUE, created, kueue_configured, resources
from e2e.scenario import job
from e2e.volcano import JOBS, queue_is_open, volcano_job
from muster import profiles

OF = "bench/job"
"""The label of a job's pods, whoever makes them."""
Made = list[tuple[str, Json]]
"""What is created for one gang, in this order: where, and what."""


@dataclass(frozen=True)
class Waits:
    """Where a peer says that a gang can't start now: the first object of `path` (of a namespace) whose JSON has
    `needle`; `condition`: the type of the condition with the sentence ("": the status' own, or an Event's)."""

    path: str
    needle: bytes
    condition: str = ""

    def words(self, item: Json) -> str:
        """The sentence in one such object; "" where there is none."""
        status = item.get("status", {})
        if not self.condition:
            return str(status.get("message", "") or item.get("message", ""))
        said = (one for one in status.get("conditions") or () if one["type"] == self.condition)
        return next((str(one.get("message", "")) for one in said), "")


PODS = "/api/v1/namespaces/{}/pods"
BATCH = "/apis/batch/v1/namespaces/{}/jobs"
UNSCHEDULABLE = Waits(PODS, b'"reason":"Unschedulable"', "PodScheduled")


def _stock(namespace: str, name: str, pods: int, **what: Any) -> Made:
    return [(BATCH.format(namespace), _job(name, pods, scheduler=load.STOCK, **what))]


def _muster(namespace: str, name: str, pods: int, **what: Any) -> Made:
    return [(BATCH.format(namespace), _job(name, pods, **what))]


def _native(namespace: str, name: str, pods: int, **what: Any) -> Made:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": pods}}},
    }
    told = {"schedulingGroup": {"podGroupName": name}}
    one = _job(name, pods, scheduler=load.STOCK, **told, **what)
    return [(f"{load.GROUP_API}/namespaces/{namespace}/podgroups", group), (BATCH.format(namespace), one)]


def _kueue(namespace: str, name: str, pods: int, **what: Any) -> Made:
    one = _job(name, pods, scheduler=load.STOCK, **what)
    one["metadata"]["labels"] = {QUEUE: "team"}
    return [(BATCH.format(namespace), one)]


def _kueue_partial(namespace: str, name: str, pods: int, **what: Any) -> Made:
    ((where, one),) = _kueue(namespace, name, pods, **what)
    if pods > 1:  # its webhook wants a least below what is asked for
        one["metadata"]["annotations"] = {LEAST: "1", COMPLETES_WITH_FEWER: "true"}
    return [(where, one)]


def _volcano(namespace: str, name: str, pods: int, **what: Any) -> Made:
    return [(JOBS.format(namespace), volcano_job(name, pods, labels={OF: name}, **what))]


def _job(name: str, pods: int, **what: Any) -> Json:
    return job(name, pods, labels={OF: name}, **what)


@dataclass(frozen=True)
class Peer:
    """One that is compared. says: how a gang is told, in words; sources: its documentation; processes: that schedule;
    profile, order: of Muster's chart, "" where it is not in the lab; operators: of the lab; strategy: of Kueue's
    queue; partial: a gang may start with fewer pods than it asks for, and keeps those: (d) only, since the other
    parts' gangs are whole or wait; hurried: by how much jobs are compressed, and so the seconds that Muster's default
    resizeCost counts in."""

    name: str
    says: str
    sources: tuple[str, ...]
    gang: Callable[..., Made]
    waits: Waits
    processes: tuple[str, ...]
    profile: str = ""
    order: str = "backfill"
    operators: tuple[str, ...] = ()
    native: bool = False
    strategy: str = ""
    partial: bool = False
    hurried: float = 1.0

    def shape(self, nodes: int, gpus: int = 8) -> Shape:
        """Its lab: the same control plane, nodes and client limits for all."""
        return Shape(
            groups=(NodeGroup(nodes, gpus),),
            chart=bool(self.profile),
            set_values=(f"profile={self.profile}", f"order={self.order}") if self.profile else (),
            values=(self._compressed(),) if self.profile and profiles.NAMED[self.profile].shares else (),
            operators=self.operators,
            apiserver_args=NATIVE_FLAGS,
            scheduler_args=(f"--feature-gates={NATIVE_GATE}",) if self.native else (),
        )

    def _compressed(self) -> str:
        """Values of Muster's chart, as a file: what `--set` has of a number with a point is text."""
        counted = {name: seconds / self.hurried for name, seconds in RESIZE_COST.items()}
        told = {"estimate": "declared", "pluginArgs": {"resize-cost": counted}}
        file = OUT / f"resize-cost-{self.hurried:g}x.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump({"config": told}))
        return str(file)

    @contextlib.contextmanager
    def configured(self, lab: Lab, cluster: Cluster, gpus: int) -> Iterator[None]:
        """What is set once in its lab: of Kueue a queue with a quota of all GPUs, and its configuration."""
        if not self.strategy:
            if "volcano" in self.operators:
                queue_is_open(cluster)
            yield
            return
        with kueue_configured(lab, **KUEUE_CONFIGURED):
            created(
                cluster, f"{KUEUE}/resourceflavors", {"kind": "ResourceFlavor", "metadata": {"name": "any"}}
            )
            queue = {
                "queueingStrategy": self.strategy,
                "namespaceSelector": {},
                "resourceGroups": resources(gpus),
            }
            created(
                cluster,
                f"{KUEUE}/clusterqueues",
                {"kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": queue},
            )
            yield

    def prepare(self, cluster: Cluster, namespace: str) -> None:
        """What a namespace needs before jobs are in it."""
        if self.strategy:
            team = {"kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {"clusterQueue": "all"}}
            created(cluster, path("LocalQueue", namespace), team)


KUEUE_CONFIGURED: Json = {
    # As for all others here; its manifests have 50 and 100.
    "clientConnection": {"qps": CLIENT_QPS, "burst": CLIENT_BURST},
    # The values that its own config/components/manager/controller_manager_config.yaml shows.
    "waitForPodsReady": {
        "timeout": "5m",
        "recoveryTimeout": "3m",
        "blockAdmission": False,
        "requeuingStrategy": {"timestamp": "Eviction", "backoffBaseSeconds": 60, "backoffMaxSeconds": 3600},
    },
}
_KUEUE_SOURCES = (
    "https://kueue.sigs.k8s.io/docs/tasks/run/jobs/",
    "https://kueue.sigs.k8s.io/docs/tasks/manage/setup_wait_for_pods_ready/",
    "https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#queueing-strategy",
)


def _a_muster(name: str, profile: str, order: str = "backfill") -> Peer:
    return Peer(
        name,
        f"a Job with schedulerName: muster; order: {order}",
        ("README.md", "config/concepts.md"),
        _muster,
        Waits("/apis/muster.dev/v1alpha1/namespaces/{}/gangs", b'"state":"Waiting"'),
        ("muster", "kube-scheduler"),
        profile=profile,
        order=order,
    )


def _a_kueue(name: str, strategy: str) -> Peer:
    return Peer(
        name,
        f"a Job with a queue-name; waitForPodsReady; {strategy}",
        _KUEUE_SOURCES,
        _kueue,
        Waits(f"{KUEUE}/namespaces/{{}}/workloads", b'"type":"QuotaReserved"', "QuotaReserved"),
        ("kueue", "default-scheduler"),
        operators=("kueue",),
        strategy=strategy,
    )


PEERS: dict[str, Peer] = {
    one.name: one
    for one in (
        _a_muster("muster fifo", "fifo"),
        _a_muster("muster strict", "fifo", "strict"),
        _a_muster("muster afs-l", "afs-l"),
        Peer("stock", "nothing: a Job", (), _stock, UNSCHEDULABLE, ("default-scheduler",)),
        Peer(
            "native",
            "a PodGroup of minCount pods, and a Job whose pods name it",
            ("https://kubernetes.io/docs/concepts/scheduling-eviction/gang-scheduling/",),
            _native,
            UNSCHEDULABLE,
            ("default-scheduler",),
            native=True,
        ),
        _a_kueue("kueue", "BestEffortFIFO"),
        _a_kueue("kueue strict", "StrictFIFO"),
        replace(
            _a_kueue("kueue partial", "BestEffortFIFO"),
            says="a Job with a queue-name and job-min-parallelism: 1; waitForPodsReady; BestEffortFIFO",
            sources=(*_KUEUE_SOURCES, "https://kueue.sigs.k8s.io/docs/tasks/run/jobs/#partial-admission"),
            gang=_kueue_partial,
            partial=True,
        ),
        Peer(
            "volcano",
            "its own Job with minAvailable; its chart's scheduler configuration",
            (
                "https://volcano.sh/en/docs/vcjob/",
                "https://volcano.sh/en/docs/podgroup/",
                "https://github.com/volcano-sh/volcano/blob/v1.14.1/installer/helm/chart/volcano/config/volcano-scheduler.conf",
            ),
            _volcano,
            Waits("/api/v1/namespaces/{}/events", b'"reason":"Unschedulable"'),
            ("volcano", "volcano-controllers", "volcano-admission"),
            operators=("volcano",),
        ),
    )
}


def turn(peers: Sequence[Peer], number: int) -> list[Peer]:
    """Each round begins with another one, so that none is always the first."""
    by = number % len(peers)
    return [*peers[by:], *peers[:by]]
