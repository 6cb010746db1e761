"""KubeRay as it is: its real controller makes the pods, on a lab of 4 nodes x 8 GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster import Cluster, Json
from e2e.elastic import shared_by
from e2e.lab import Lab
from e2e.operated import (
    custom,
    everything,
    has_state,
    is_left_alone,
    of,
    operated,
    path,
    ray_cluster,
    run,
    worker_group,
)
from e2e.scenario import bound, configured, job, pod, runs_whole, stays, wait_until, waits_because

pytestmark = [pytest.mark.lab, pytest.mark.operators("kuberay")]

TIMEOUT = 8.0
"""Seconds of gang.timeout where it is what a scenario is about."""


@pytest.fixture(scope="module", name="_session_lab")
def operated_lab() -> Iterator[Lab]:
    with operated("kuberay") as lab:
        yield lab


def resize(cluster: Cluster, namespace: str, name: str, *groups: Json) -> None:
    cluster.patch(path("RayCluster", namespace, name), {"spec": {"workerGroupSpecs": list(groups)}})


def test_a_raycluster_starts_whole_or_not_at_all(cluster: Cluster, namespace: str) -> None:
    holder = cluster.submit(pod("holder", gpus=8), namespace=namespace)[0]
    wait_until(lambda: bound(cluster.pods(namespace), 1), what="the holder runs")
    cluster.submit(ray_cluster("ray", worker_group("small", 4, gpus=8)), namespace=namespace)
    waits_because(cluster, namespace, "raycluster-ray", "needs 32 GPUs (1 headgroup, 4 small)")
    stays(
        cluster,
        lambda: [one.name for one in bound(cluster.pods(namespace))] == ["holder"],
        what="neither its head nor a worker starts",
    )
    cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{holder['metadata']['name']}")
    run(cluster, namespace, {"headgroup": 1, "small": 4})


@pytest.mark.parametrize("profile", ["fifo", "max-min"])
def test_a_raycluster_that_is_scaled_beyond_the_room_keeps_what_runs(
    lab: Lab, cluster: Cluster, namespace: str, profile: str
) -> None:
    timeout = {"gang": {"timeout": f"{TIMEOUT:.0f}s"}}
    with configured(lab, profile=profile, resizeCost=False, **timeout):
        cluster.submit(ray_cluster("ray", worker_group("small", 3, gpus=8)), namespace=namespace)
        before = run(cluster, namespace, {"headgroup": 1, "small": 3})
        resize(cluster, namespace, "ray", worker_group("small", 9, gpus=8))
        wait_until(lambda: len(cluster.pods(namespace)) == 10, what="KubeRay has made nine workers")
        after = run(cluster, namespace, {"headgroup": 1, "small": 4})
        assert {one.uid for one in before} < {one.uid for one in after}
        is_left_alone(cluster, namespace, after, 1.5 * TIMEOUT)


def test_a_raycluster_whose_head_another_scheduler_binds_is_left_alone(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with configured(lab, gang={"timeout": f"{TIMEOUT:.0f}s"}):
        elsewhere = ray_cluster("ray", worker_group("small", 2, gpus=8), head={"scheduler": None})
        cluster.submit(elsewhere, namespace=namespace)
        pods = run(cluster, namespace, {"headgroup": 1, "small": 2})
        assert has_state(cluster, namespace, "raycluster-ray", "Running")["roles"].keys() == {"small"}
        is_left_alone(cluster, namespace, pods, 1.5 * TIMEOUT)


def test_a_worker_group_that_is_suspended_does_not_count(cluster: Cluster, namespace: str) -> None:
    groups = [worker_group("small", 2, gpus=8), worker_group("large", 2, gpus=8)]
    cluster.submit(ray_cluster("ray", *groups), namespace=namespace)
    run(cluster, namespace, {"headgroup": 1, "small": 2, "large": 2})
    resize(cluster, namespace, "ray", groups[0], {**groups[1], "suspend": True})
    pods = run(cluster, namespace, {"headgroup": 1, "small": 2, "large": 0})
    holder = cluster.submit(job("holder", 2, gpus=8), namespace=namespace)[0]["metadata"]["name"]
    wait_until(lambda: bound(cluster.pods(namespace, holder), 2), what="its GPUs are others'")
    resize(cluster, namespace, "ray", *groups)
    wait_until(lambda: len(cluster.pods(namespace)) == 7, what="KubeRay has made the group again")
    stays(
        cluster,
        lambda: {one.uid for one in pods} < {one.uid for one in bound(cluster.pods(namespace))},
        what="what ran meanwhile goes on",
    )
    cluster.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs/{holder}", propagationPolicy="Background")
    run(cluster, namespace, {"headgroup": 1, "small": 2, "large": 2})


def test_a_suspended_raycluster_says_so_and_comes_back_whole(cluster: Cluster, namespace: str) -> None:
    cluster.submit(ray_cluster("ray", worker_group("small", 4, gpus=8)), namespace=namespace)
    before = run(cluster, namespace, {"headgroup": 1, "small": 4})
    cluster.patch(path("RayCluster", namespace, "ray"), {"spec": {"suspend": True}})
    has_state(cluster, namespace, "raycluster-ray", "Suspended")
    assert bound(cluster.pods(namespace)) == []
    cluster.patch(path("RayCluster", namespace, "ray"), {"spec": {"suspend": False}})
    after = run(cluster, namespace, {"headgroup": 1, "small": 4})
    assert {one.uid for one in after}.isdisjoint(one.uid for one in before)
    has_state(cluster, namespace, "raycluster-ray", "Running")


def test_a_raycluster_shrinks_and_grows_while_its_head_goes_on(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Room for 8 workers of 4 GPUs, which an elastic Job takes a half of for a while."""
    elastic: dict[str, Any] = {"gpus": 4, "min_replicas": 1, "max_replicas": 8}
    head = {"annotations": {"muster.dev/evictable": "true"}}
    with shared_by(lab, "max-min"):
        cluster.submit(
            ray_cluster("ray", worker_group("small", 8, **elastic), head=head), namespace=namespace
        )
        whole = run(cluster, namespace, {"headgroup": 1, "small": 8})
        cluster.submit(job("other", 8, success_on="0", **elastic), namespace=namespace)
        wait_until(
            lambda: (
                len(bound(cluster.pods(namespace, "other"))) == 4
                and len([one for one in bound(cluster.pods(namespace)) if of("small")(one)]) == 4
            ),
            what="each has its half",
            also=lambda: everything(cluster, namespace),
        )
        cluster.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs/other", propagationPolicy="Background")
        again = run(cluster, namespace, {"headgroup": 1, "small": 8})
    heads = [[one.uid for one in pods if of("headgroup")(one)] for pods in (whole, again)]
    assert heads[0] == heads[1]


def test_the_hosts_of_a_worker_of_ray_multiply(cluster: Cluster, namespace: str) -> None:
    cluster.submit(
        ray_cluster("ray", worker_group("hosts", 2, {"numOfHosts": 2}, gpus=2)), namespace=namespace
    )
    run(cluster, namespace, {"headgroup": 1, "hosts": 4})
    roles = has_state(cluster, namespace, "raycluster-ray", "Running")["roles"]
    assert {name: role["min"] for name, role in roles.items()} == {"headgroup": 1, "hosts": 4}


@pytest.mark.parametrize("group", ["small", "headgroup"])
def test_a_pod_of_ray_that_is_killed_comes_again_to_its_place_and_the_others_go_on(
    cluster: Cluster, namespace: str, group: str
) -> None:
    cluster.submit(ray_cluster("ray", worker_group("small", 4, gpus=8)), namespace=namespace)
    before = run(cluster, namespace, {"headgroup": 1, "small": 4})
    cluster.submit(job("later", 1, gpus=8), namespace=namespace)
    has_state(cluster, namespace, "job-later", "Waiting")
    lost = next(filter(of(group), before))
    cluster.delete_pod(lost)
    wait_until(lambda: lost.uid not in {one.uid for one in cluster.pods(namespace)}, what="the pod is gone")
    after = run(cluster, namespace, {"headgroup": 1, "small": 4})
    assert {one.uid for one in before} - {one.uid for one in after} == {lost.uid}
    stays(cluster, lambda: not bound(cluster.pods(namespace, "later")), what="who came later waits")


def test_what_rays_autoscaler_adds_starts_beside_the_others_and_what_it_names_goes(
    cluster: Cluster, namespace: str
) -> None:
    """It patches the number of replicas, and the names of those that idle."""
    ray = ray_cluster("ray", worker_group("small", 2, gpus=8))
    ray["spec"]["enableInTreeAutoscaling"] = True
    cluster.submit(ray, namespace=namespace)
    two = run(cluster, namespace, {"headgroup": 1, "small": 2})
    group = "/spec/workerGroupSpecs/0"

    def scale(replicas: int, *leaving: str) -> None:
        cluster.request(
            "PATCH",
            path("RayCluster", namespace, "ray"),
            [
                {"op": "replace", "path": f"{group}/replicas", "value": replicas},
                {"op": "add", "path": f"{group}/scaleStrategy", "value": {"workersToDelete": list(leaving)}},
            ],
            "application/json-patch+json",
        )

    scale(4)
    four = run(cluster, namespace, {"headgroup": 1, "small": 4})
    assert {one.uid for one in two} < {one.uid for one in four}
    idle = min(one.name for one in four if of("small")(one))
    scale(3, idle)
    three = run(cluster, namespace, {"headgroup": 1, "small": 3})
    assert {one.name for one in four} - {one.name for one in three} == {idle}
    scale(9)
    wait_until(lambda: len(cluster.pods(namespace)) == 10, what="KubeRay has made nine workers")
    full = run(cluster, namespace, {"headgroup": 1, "small": 4})
    assert {one.uid for one in three} < {one.uid for one in full}


def test_a_rayjob_that_ends_takes_its_cluster_along_and_who_waits_has_its_gpus(
    cluster: Cluster, namespace: str
) -> None:
    """It ends by its deadline: there is no Ray here that would say that it has succeeded."""
    spec = {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": ray_cluster("ray", worker_group("small", 4, gpus=8))["spec"],
    }
    cluster.submit(custom("RayJob", "tune", spec), namespace=namespace)
    # The Job that submits, of the RayJob's name, is made as soon as the cluster is ready.
    run(cluster, namespace, {"headgroup": 1, "small": 4}, beside="tune")
    (name,) = wait_until(lambda: cluster.gangs(namespace), what="its Gang is written")
    cluster.submit(job("later", 4, gpus=8), namespace=namespace)
    has_state(cluster, namespace, "job-later", "Waiting")
    cluster.patch(path("RayJob", namespace, "tune"), {"spec": {"activeDeadlineSeconds": 1}})
    runs_whole(cluster, namespace, "later", 4)
    status = cluster.get(path("RayJob", namespace, "tune"))["status"]
    assert (status["jobDeploymentStatus"], status["reason"]) == ("Failed", "DeadlineExceeded")
    wait_until(lambda: name not in cluster.gangs(namespace), what="its Gang is gone with its cluster")
