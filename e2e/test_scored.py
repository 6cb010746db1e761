"""Scored placement: the plan fixes the job and its size, and kube-scheduler picks the nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, Json, Refused
from e2e.elastic import only
from e2e.lab import Lab
from e2e.scenario import (
    bound,
    configured,
    delete_job,
    gang,
    gated,
    in_state,
    job,
    on_node,
    pod,
    runs_whole,
    show,
    wait_until,
)

pytestmark = pytest.mark.lab


def waits(cluster: Cluster, namespace: str, name: str, replicas: int, message: str) -> None:
    """All of it waits behind the gate, with this message."""
    wait_until(
        lambda: (
            in_state(cluster, namespace, f"job-{name}", "Waiting").get("message", "").startswith(message)
            and len(gated(cluster.pods(namespace, name))) == replicas
        ),
        what=f"{name} waits, all {replicas} pods behind the gate: {message}",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def room(*nodes: str) -> Json:
    """These nodes, and never two pods of label app=apart on one of them."""
    repels = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
    return on_node(*nodes) | {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [repels]}}


FOUR = ("node-00", "node-01", "node-02", "node-03")


# --- what the planner does not model ------------------------------------------------------------------------


def test_a_job_with_pod_anti_affinity_starts_whole_among_pinned_jobs_on_the_same_nodes(
    cluster: Cluster, namespace: str
) -> None:
    apart = job("apart", 4, gpus=4, labels={"app": "apart"}, affinity=room(*FOUR))
    pinned = [job(f"pinned-{n}", 2, gpus=2, affinity=on_node(*FOUR), run_seconds=2) for n in range(8)]
    cluster.submit(*pinned[:4], apart, *pinned[4:], namespace=namespace)
    pods = runs_whole(cluster, namespace, "apart", 4)
    assert sorted(one.node for one in pods) == list(FOUR)
    assert [one.pinned_to for one in pods] == [""] * 4
    assert gang(cluster, namespace, "job-apart")["mode"] == "scored"
    wait_until(
        lambda: (
            [one.phase for one in cluster.pods(namespace) if one.name.startswith("pinned")]
            == ["Succeeded"] * 16
        ),
        what="the pinned jobs run to their end beside it",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def test_a_job_with_pod_anti_affinity_that_lacks_a_node_waits_whole(cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("holder", 1, gpus=8, affinity=on_node("node-03")), namespace=namespace)
    runs_whole(cluster, namespace, "holder", 1)
    cluster.submit(
        job("apart", 4, gpus=2, labels={"app": "apart"}, affinity=room(*FOUR)), namespace=namespace
    )
    waits(cluster, namespace, "apart", 4, "needs 8 GPUs (4 replicas of 2)")
    delete_job(cluster, namespace, "holder")
    runs_whole(cluster, namespace, "apart", 4)


STORAGE = "e2e-local"


@pytest.fixture
def local_volumes(cluster: Cluster, namespace: str) -> Iterator[list[str]]:
    """Claims of a StorageClass that binds at first use, with volumes on two nodes only; the claims' names."""
    nodes = ("node-05", "node-06")
    made = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": f"{STORAGE}-{namespace}"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        *(volume(f"{namespace}-{node}", node, f"{STORAGE}-{namespace}") for node in nodes),
    ]
    claims = [f"data-{number}" for number in range(len(nodes))]
    for manifest in made:
        group = {"StorageClass": "storage.k8s.io/v1"}.get(manifest["kind"])
        path = f"/apis/{group}/storageclasses" if group else "/api/v1/persistentvolumes"
        cluster.request("POST", path, manifest)
    for claim in claims:
        cluster.submit(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": f"{STORAGE}-{namespace}",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            },
            namespace=namespace,
        )
    try:
        yield claims
    finally:
        for one in cluster.pods(namespace):
            cluster.delete_pod(one, grace=0)
        for node in nodes:
            path = f"/api/v1/persistentvolumes/{namespace}-{node}"
            cluster.delete(path)
            # pv-protection holds a volume while its claim is there, and the claim goes with the namespace.
            with contextlib.suppress(Refused):  # it is gone
                cluster.patch(path, {"metadata": {"finalizers": None}})
        cluster.delete(f"/apis/storage.k8s.io/v1/storageclasses/{STORAGE}-{namespace}")


def volume(name: str, node: str, storage_class: str) -> Json:
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
        },
    }


def with_claim(claim: str, number: int, **what: object) -> Json:
    """A pod of job `data`, of two, that mounts a claim."""
    made = pod(f"data-{number}", job="data", roles="worker=2", **what)
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return made


def test_a_job_whose_volumes_wait_for_it_starts_where_they_are_among_pinned_jobs(
    cluster: Cluster, namespace: str, local_volumes: list[str]
) -> None:
    """The planner does not know where volumes can be: kube-scheduler finds the two nodes that have one."""
    pinned = [job(f"pinned-{number}", 4, gpus=2) for number in range(4)]
    data = [with_claim(claim, number, gpus=4) for number, claim in enumerate(local_volumes)]
    cluster.submit(*pinned[:2], *data, *pinned[2:], namespace=namespace)
    pods = wait_until(
        lambda: bound(cluster.pods(namespace, "data"), 2),
        what="both pods with a volume are bound",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    assert sorted(one.node for one in pods) == ["node-05", "node-06"]
    for number in range(4):
        runs_whole(cluster, namespace, f"pinned-{number}", 4)


def test_a_bound_volume_that_any_node_can_use_is_no_obstacle_and_its_pods_are_pinned(
    cluster: Cluster, namespace: str
) -> None:
    shared = volume(f"{namespace}-shared", "", f"none-{namespace}")
    del shared["spec"]["nodeAffinity"]
    del shared["spec"]["local"]
    shared["spec"] |= {"nfs": {"server": "nfs.invalid", "path": "/"}, "accessModes": ["ReadWriteMany"]}
    cluster.request("POST", "/api/v1/persistentvolumes", shared)
    try:
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "shared"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": f"none-{namespace}",
                "volumeName": f"{namespace}-shared",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        cluster.submit(claim, namespace=namespace)
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/shared"
        wait_until(lambda: cluster.get(path)["status"]["phase"] == "Bound", what="the claim is bound")
        cluster.submit(*(with_claim("shared", number, gpus=4) for number in range(2)), namespace=namespace)
        pods = wait_until(
            lambda: bound(cluster.pods(namespace, "data"), 2),
            what="both pods are bound",
            also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
        )
        assert all(one.pinned_to == one.node for one in pods)
        status = wait_until(lambda: gang(cluster, namespace, "data"), what="its Gang is written")
        assert status["mode"] == "pinned"
    finally:
        for one in cluster.pods(namespace):
            cluster.delete_pod(one, grace=0)
        path = f"/api/v1/persistentvolumes/{namespace}-shared"
        cluster.delete(path)
        with contextlib.suppress(Refused):  # pv-protection; the claim goes with the namespace
            cluster.patch(path, {"metadata": {"finalizers": None}})


# --- the profiles gang and gang-pack ------------------------------------------------------------------------


def test_two_score_plugins_place_the_same_job_differently_and_kube_scheduler_decides(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Algorithm 3 gives 0 to a node that another job uses; gang-pack prefers nodes in use."""
    only(lab, cluster, *FOUR)
    with configured(lab, profile="gang"):
        cluster.submit(job("first", 2, gpus=1, affinity=on_node("node-02")), namespace=namespace)
        runs_whole(cluster, namespace, "first", 2)

        cluster.submit(job("second", 2, gpus=1), namespace=namespace)
        alone = runs_whole(cluster, namespace, "second", 2)
        assert "node-02" not in {one.node for one in alone}, "Algorithm 3: not beside another job"
        assert [one.pinned_to for one in alone] == ["", ""]
        assert gang(cluster, namespace, "job-second")["mode"] == "scored"
        delete_job(cluster, namespace, "second")
        wait_until(lambda: not cluster.pods(namespace, "second"), what="second is gone")

    with configured(lab, profile="gang-pack"):
        cluster.submit(job("second", 2, gpus=1), namespace=namespace)
        packed = runs_whole(cluster, namespace, "second", 2)
        assert {one.node for one in packed} == {"node-02"}, "gang-pack: where others are"
        assert [one.pinned_to for one in packed] == ["", ""]
    # All or nothing holds in the paper's profile too, which the paper's scheduler did not promise.
    with configured(lab, profile="gang"):
        cluster.submit(job("large", 4, gpus=8), namespace=namespace)
        waits(cluster, namespace, "large", 4, "needs 32 GPUs (4 replicas of 8)")
