"""Owners that are custom resources, and what their operators do: pods with the labels and owner references that the
real operator writes, created again when one is gone. The operators are not here; the CRDs in crds/ have no schema.
It is for what an operator does too quickly to be looked at, or does not do here: CI builds JobSet and Trainer only,
and these are nowhere played (e2e/operated.py).

    serve(cluster)                                  # the definitions
    owner = cluster.submit(custom("PyTorchJob", "bert", spec), namespace=namespace)[0]
    with operator(cluster, namespace, pods):        # creates them, and each again when it is gone
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import Cluster, Json, Refused
from e2e.scenario import looking, pod, wait_until

CRDS = {
    crd["spec"]["names"]["kind"]: crd
    for crd in (yaml.safe_load(file.read_text()) for file in (Path(__file__).parent / "crds").glob("*.yaml"))
}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SOON = 0.2
"""Seconds between an operator's looks at its pods."""


def serve(cluster: Cluster) -> list[str]:
    """The cluster serves every definition of crds/; names of those that were not there."""
    there = {item["metadata"]["name"] for item in cluster.get(DEFINITIONS)["items"]}
    made = [crd for crd in CRDS.values() if crd["metadata"]["name"] not in there]
    for crd in made:
        cluster.request("POST", DEFINITIONS, crd)
    for crd in CRDS.values():
        names, version = crd["spec"]["names"], crd["spec"]["versions"][0]["name"]
        path = f"/apis/{crd['spec']['group']}/{version}/namespaces/default/{names['plural']}"
        wait_until(lambda path=path: cluster.get(path), what=f"{path} is served")  # type: ignore[misc]
    return [crd["metadata"]["name"] for crd in made]


def withdraw(cluster: Cluster, name: str) -> None:
    """The definition goes; the next module may make it again."""
    cluster.delete(f"{DEFINITIONS}/{name}")  # and with it all objects of the kind

    def gone() -> bool:
        try:
            cluster.get(f"{DEFINITIONS}/{name}")
        except Refused as refused:
            return refused.status == 404
        return False

    wait_until(gone, what=f"{name} is gone")


def custom(kind: str, name: str, spec: Json) -> Json:
    crd = CRDS[kind]["spec"]
    version = f"{crd['group']}/{crd['versions'][0]['name']}"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def owned(manifest: Json, owner: Json) -> Json:
    """The manifest with `owner`, as the API gave it back, for its controller."""
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    metadata = manifest["metadata"] | {"ownerReferences": [reference | {"controller": True}]}
    return manifest | {"metadata": metadata}


@contextlib.contextmanager
def operator(cluster: Cluster, namespace: str, pods: Sequence[Json]) -> Iterator[None]:
    """Keeps the pods of these manifests in being, as an operator does: a name that is gone is created again."""
    own = Cluster(cluster.kubeconfig)

    def look() -> None:
        with contextlib.suppress(Refused):  # one by one: the next look goes on
            there = {one.name for one in own.pods(namespace)}
            for manifest in pods:
                if manifest["metadata"]["name"] not in there:
                    own.submit(manifest, namespace=namespace)

    with looking(look, SOON):
        yield


# ---- Kubeflow's training operator ----


def pytorch_job(name: str, workers: int, **worker: Any) -> Json:
    """`worker`: what its replica spec says beside the count (restartPolicy)."""
    replicas = {"Master": {"replicas": 1}, "Worker": {"replicas": workers, **worker}}
    return custom("PyTorchJob", name, {"pytorchReplicaSpecs": replicas})


def pytorch_pod(owner: Json, role: str, index: int, **what: Any) -> Json:
    name = owner["metadata"]["name"]
    labels = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/replica-index": str(index),
        "training.kubeflow.org/replica-type": role,
        **what.pop("labels", {}),
    }
    return owned(pod(f"{name}-{role}-{index}", labels=labels, **what), owner)


# ---- Ray ----


def ray_pod(owner: Json, group: str, index: int, **what: Any) -> Json:
    cluster = owner["metadata"]["name"]
    head = group == "headgroup"
    labels = {
        "ray.io/cluster": cluster,
        "ray.io/group": group,
        "ray.io/node-type": "head" if head else "worker",
        "ray.io/is-ray-node": "yes",
        **what.pop("labels", {}),
    }
    what.setdefault("gpus", 0 if head else 2)
    return owned(pod(f"{cluster}-{group.lower()}-{index}", labels=labels, **what), owner)
