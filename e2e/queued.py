"""Kueue's words for scenarios: queues with a quota, jobs and pods in them, and what Kueue says of each.

with quota(cluster, namespace, gpus=16):
    cluster.submit(queued(job("train", 2, gpus=8)), namespace=namespace)
    is_admitted(cluster, namespace, "train")
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from e2e.cluster import Cluster, Json, Refused
from e2e.lab import Lab
from e2e.operated import KUEUE_API, everything, path
from e2e.scenario import PATIENCE, wait_until

API = f"/apis/kueue.x-k8s.io/{KUEUE_API}"
QUEUE = "kueue.x-k8s.io/queue-name"
GATE = "kueue.x-k8s.io/admission"
OF_GROUP = "kueue.x-k8s.io/pod-group-name"
GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
LEAST = "kueue.x-k8s.io/job-min-parallelism"
COMPLETES_WITH_FEWER = "kueue.x-k8s.io/job-completions-equal-parallelism"
PRIORITY = "kueue.x-k8s.io/priority-class"
PLENTY = "100000"
"""Of CPUs, and of GiB: quotas have to name what pods ask for, and are about GPUs here."""


@contextlib.contextmanager
def quota(cluster: Cluster, namespace: str, gpus: int, **spec: Any) -> Iterator[str]:
    """A ClusterQueue of so many GPUs and a LocalQueue `team` of the namespace on it; its path. `spec`: what else
    the ClusterQueue says."""
    created(cluster, f"{API}/resourceflavors", {"kind": "ResourceFlavor", "metadata": {"name": "any"}})
    body = {
        "kind": "ClusterQueue",
        "metadata": {"name": namespace},
        "spec": {"namespaceSelector": {}, "resourceGroups": resources(gpus), **spec},
    }
    created(cluster, f"{API}/clusterqueues", body)
    team = {"kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {"clusterQueue": namespace}}
    created(cluster, path("LocalQueue", namespace), team)
    try:
        yield f"{API}/clusterqueues/{namespace}"
    finally:
        with contextlib.suppress(Refused):  # Kueue keeps it until no Workload is in it
            cluster.delete(f"{API}/clusterqueues/{namespace}")


def resources(gpus: int) -> list[Json]:
    """`resourceGroups` of a ClusterQueue."""
    given = {"cpu": PLENTY, "memory": f"{PLENTY}Gi", "nvidia.com/gpu": str(gpus)}
    of = [{"name": name, "nominalQuota": quantity} for name, quantity in given.items()]
    return [{"coveredResources": list(given), "flavors": [{"name": "any", "resources": of}]}]


def created(cluster: Cluster, where: str, body: Json) -> None:
    """Once; there already is as good."""
    try:
        cluster.request("POST", where, {"apiVersion": f"kueue.x-k8s.io/{KUEUE_API}", **body})
    except Refused as refused:
        if refused.status != 409:
            raise


def queued(
    manifest: Json, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> Json:
    """The same job or pod, in the queue `team`."""
    metadata = manifest["metadata"]
    return manifest | {
        "metadata": {
            **metadata,
            "labels": {**metadata.get("labels", {}), QUEUE: "team", **(labels or {})},
            "annotations": {**metadata.get("annotations", {}), **(annotations or {})},
        }
    }


def workload(cluster: Cluster, namespace: str, name: str) -> Json:
    """Kueue's Workload of a Job, a pod or a group of pods; {} where there is none yet."""
    for one in cluster.get(path("Workload", namespace))["items"]:
        owners = {owner["name"] for owner in one["metadata"].get("ownerReferences", ())}
        if name in owners or one["metadata"]["name"] == name:
            return dict(one)
    return {}


def true_conditions(cluster: Cluster, namespace: str, name: str) -> dict[str, str]:
    """Reasons by condition of the Workload."""
    found = workload(cluster, namespace, name).get("status", {}).get("conditions", ())
    return {one["type"]: one["reason"] for one in found if one["status"] == "True"}


def is_admitted(cluster: Cluster, namespace: str, name: str, within: float = PATIENCE) -> None:
    wait_until(
        lambda: "Admitted" in true_conditions(cluster, namespace, name),
        within=within,
        what=f"Kueue admits {name}",
        also=lambda: f"{workload(cluster, namespace, name)}\n{everything(cluster, namespace)}",
    )


def waits_for_quota(cluster: Cluster, namespace: str, name: str) -> None:
    """Kueue has looked at it, and there is no room in the quota."""

    def pending() -> bool:
        found = workload(cluster, namespace, name).get("status", {}).get("conditions", ())
        return any(
            (one["type"], one["status"], one["reason"]) == ("QuotaReserved", "False", "Pending")
            for one in found
        )

    wait_until(
        pending,
        what=f"Kueue lets {name} wait",
        also=lambda: f"{workload(cluster, namespace, name)}\n{everything(cluster, namespace)}",
    )


@contextlib.contextmanager
def kueue_configured(lab: Lab, **changes: Any) -> Iterator[None]:
    """Kueue is started again with these in its configuration, and without them afterwards."""
    file = lab.folder / "config" / "kueue.yaml"
    before = file.read_text()
    try:
        file.write_text(json.dumps(json.loads(before) | changes))
        lab.restart("kueue")
        yield
    finally:
        file.write_text(before)
        lab.restart("kueue")
