"""A run of a paper's own workload on a lab: its jobs train by its models and report what these tell."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from e2e.bench.by_physics import WORKER, ByPhysics
from e2e.bench.live import Dumping, Going, Run, finish, seen, told_of, trains
from e2e.bench.on_devices import DEVICES
from e2e.bench.paper import Paper
from e2e.bench.paper_in_place import InPlace
from e2e.bench.trainings import Seen, Trained, Trainings
from e2e.cluster import Cluster, Json, Pod
from e2e.demo.drive import under_way
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.shape import CPU
from e2e.reports import AsPods
from e2e.scenario import a_namespace, delete_job, job
from muster.policylib.references import PAPER
from muster.sim.presets.similarity import parts
from muster.sim.submission import Submission
from muster.sim.workload import Workload

ROLE = "muster.dev/role"
PRODUCT = "nvidia.com/gpu.product"
EVERY = 1.0
"""Seconds between two reports of a job."""


def shape(paper: Paper, folder: Path) -> Shape:
    """Nodes like the workload's; Muster's settings as values of the chart, in a file there."""
    given, workload = paper.settings(), paper.workload()
    values = {key: given.pop(key) for key in ("profile", "order")} | {"config": given}
    file = folder.resolve() / "values.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    assert workload.cluster is not None
    groups = tuple(
        NodeGroup(g.nodes, max(1, g.gpus), g.product or "gpu", g.memory or 16384)
        for g in workload.cluster.groups
    )
    devices = DEVICES if isinstance(paper, InPlace) else ()
    return Shape(groups=groups, racks=0, values=(str(file),), set_values=devices)


def trained(workload: Workload, speed: float) -> list[Trained]:
    """Its jobs, from the first submission on, in seconds of this machine; work in iterations."""
    first = workload.submissions[0].submitted
    return [
        Trained(
            one.name, (one.submitted - first) / speed, one.request, one.min, one.max, one.work, (), one.model
        )
        for one in workload.submissions
    ]


def manifests(one: Submission, places: int) -> list[Json]:
    """The Job of a submission, or one for each of its roles. places: pods of a job with roles that fit on a node."""
    notes: dict[str, str] = {}
    if one.tags.get("resize") == "restart":
        notes["muster.dev/resize"] = "restart"
    if one.tags.get("resize_at") == "boundary":
        notes["muster.dev/resize-at"] = "boundary"
    common: dict[str, Any] = {"success_on": "0", "labels": {"bench/job": one.name}, "stop_seconds": 0}
    if not one.roles:
        model, batch = parts(one.model)
        layers, parameters = PAPER.characteristics[model]
        notes |= {
            "muster.dev/request": str(one.request),
            "muster.dev/model": f"layers={layers},parameters={parameters}",
            "muster.dev/batch-sizes": str(batch),
        }
        return [
            job(one.name, one.max, min_replicas=one.min, max_replicas=one.max, annotations=notes, **common)
        ]
    if len(one.roles) == 1:
        (role,) = one.roles
        return [
            job(one.name, role.max, min_replicas=role.min, max_replicas=role.max, annotations=notes,
                gpus=role.gpus, cpu=f"{role.cpu}m", **common)
        ]  # fmt: skip
    said = ",".join(f"{role.name}={role.max}" for role in one.roles)
    return [
        job(f"{one.name}-{role.name}s", role.max, min_replicas=role.min, max_replicas=role.max, job=one.name,
            role=role.name, roles=said, gpus=role.gpus, cpu=str(int(CPU) // places), annotations=notes, **common)
        for role in one.roles
    ]  # fmt: skip


@dataclass
class Reporting:
    """Reports of the jobs that run, each with the token of a pod of it, at most once in EVERY. pods: by name."""

    url: str
    tokens: AsPods
    pods: dict[str, Pod]
    last: dict[str, float] = field(default_factory=dict)
    sent: int = 0
    refused: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        self.http = httpx.Client(trust_env=False, timeout=30.0)

    def due(self, trainings: ByPhysics, now: float) -> list[tuple[str, Pod, Json]]:
        """Who reports now what: a job's first pod that runs; of several roles, a worker."""
        found = []
        for name, one in trainings.paced.items():
            if now - self.last.get(name, -EVERY) < EVERY:
                continue
            body = trainings.tells(name, now)
            if body is None:
                continue
            speakers = [
                pod for pod in sorted(one.on) if self.pods[pod].annotations.get(ROLE, WORKER) == WORKER
            ]
            self.last[name] = now
            found.append((name, self.pods[speakers[0]], body))
        return found

    def tell(self, trainings: ByPhysics, name: str, pod: Pod, body: Json) -> None:
        bearer = {"Authorization": f"Bearer {self.tokens.bearer(pod)}"}
        self.sent += 1
        try:
            answer = self.http.post(f"{self.url}/v1/report", json=body, headers=bearer)
        except (
            httpx.TransportError
        ):  # a connection that was idle is closed just then: the next one tells more
            self.lost += 1
            return
        if answer.status_code != 200:  # it has ended meanwhile, or tells more often than it may
            self.refused += 1
        elif "epoch" in body:
            trainings.heard(name, int(body["epoch"]))


def run(going: Going, lab: Lab, paper: Paper, folder: Path, later: float) -> Run:
    """All jobs of the workload, begun so much later (s): seconds of this machine. LabError where they come to no
    end."""
    name, speed, workload = paper.profile, paper.speed, paper.workload()
    going.over.wait(later)
    cluster = Cluster(lab.kubeconfig)
    pods: dict[str, Pod] = {}
    submissions = {one.name: one for one in workload.submissions}
    reports = Reporting(lab.service_url(), AsPods(lab, cluster), pods)
    counting = ByPhysics(
        workload,
        speed,
        paper.round,
        products_of(cluster),
        lambda pod: pods[pod].annotations.get(ROLE, WORKER),
    )
    with a_namespace(cluster, f"bench-{name}") as namespace, ThreadPoolExecutor(6) as several:
        dumping = Dumping(lab, cluster, folder, several)
        calls: list[Future[None]] = []

        def saw(pod: Pod, gone: bool) -> Seen:
            pods[pod.name] = pod
            return seen(pod, gone)

        def meanwhile(now: float, _: Trainings) -> None:
            nonlocal calls
            calls += [several.submit(reports.tell, counting, *one) for one in reports.due(counting, now)]
            calls = under_way(calls)
            dumping.look(now)

        def submit(one: Trained) -> None:
            for body in manifests(submissions[one.name], paper.places):
                cluster.submit(body, namespace=namespace)

        def end(which: str) -> None:
            roles = submissions[which].roles
            if len(roles) < 2:
                finish(cluster, namespace, which)
                return
            for role in roles:
                delete_job(cluster, namespace, f"{which}-{role.name}s")

        _, seconds = trains(
            going, name, cluster, namespace, trained(workload, speed), counting,
            submit=submit, finish=end, meanwhile=meanwhile, reads=saw,
        )  # fmt: skip
    return told_of(counting, seconds, dumping) | reported(counting, reports)


def products_of(cluster: Cluster) -> dict[str, str]:
    """GPU product by node."""
    nodes = cluster.get("/api/v1/nodes")["items"]
    return {node["metadata"]["name"]: node["metadata"]["labels"].get(PRODUCT, "") for node in nodes}


def reported(counting: ByPhysics, reports: Reporting) -> Run:
    """What is kept of such a run besides."""
    ended = [t.ended for t in counting.jobs.values() if t.ended is not None]
    return {
        "makespan_s": round(max(ended), 3),
        "reports": reports.sent,
        "refused": reports.refused,
        "lost": reports.lost,
    }
