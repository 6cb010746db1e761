"""Owners that are custom resources without their operators, for what admission says of them and for what no operator
would let pass: the definitions in crds/ have no schema. Jobs of real operators are e2e/operated.py's.

    serve(cluster)                                  # the definitions
    owner = cluster.submit(custom("PyTorchJob", "bert", spec), namespace=namespace)[0]
    cluster.submit(pytorch_pod(owner, "worker", 0), namespace=namespace)
"""

from __future__ import annotations

from pathlib import Path

import yaml

from e2e.cluster import Cluster, Json, Refused
from e2e.scenario import pod, wait_until

CRDS = {
    crd["spec"]["names"]["kind"]: crd
    for crd in (yaml.safe_load(file.read_text()) for file in (Path(__file__).parent / "crds").glob("*.yaml"))
}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


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


# ---- Kubeflow's training operator ----


def pytorch_job(name: str, workers: int) -> Json:
    replicas = {"Master": {"replicas": 1}, "Worker": {"replicas": workers}}
    return custom("PyTorchJob", name, {"pytorchReplicaSpecs": replicas})


def pytorch_pod(owner: Json, role: str, index: int) -> Json:
    """With the labels that the real operator writes."""
    name = owner["metadata"]["name"]
    labels = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/replica-index": str(index),
        "training.kubeflow.org/replica-type": role,
    }
    return owned(pod(f"{name}-{role}-{index}", labels=labels), owner)
