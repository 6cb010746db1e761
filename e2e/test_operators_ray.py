"""KubeRay as it is: its real controller makes the pods, on a lab of 4 nodes x 8 GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import yaml

from e2e.cluster import Cluster, Json
from e2e.elastic import only, shared_by
from e2e.every_operator import (
    ELASTIC,
    MINUTES,
    TIMEOUT,
    gives_a_half_and_has_it_back,
    is_left_alone_while_one_of_it_starts,
    is_scaled_beyond_the_room_and_keeps_what_runs,
    is_suspended_and_comes_back_whole,
    loses_one_that_comes_again_to_its_place,
    start_in_order_of_submission,
    starts_whole_or_not_at_all,
)
from e2e.lab import Lab
from e2e.lab.places import CHECKOUT
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
from e2e.scenario import START_SECONDS, bound, configured, gated, job, pod, runs_whole, stays, wait_until
from e2e.stopped_operator import waits_for_the_last_of_its_pods_and_starts_whole

pytestmark = [pytest.mark.lab, pytest.mark.operators("kuberay")]


@pytest.fixture(scope="module", name="_session_lab")
def operated_lab() -> Iterator[Lab]:
    with operated("kuberay") as lab:
        yield lab


def resize(cluster: Cluster, namespace: str, name: str, *groups: Json) -> None:
    cluster.patch(path("RayCluster", namespace, name), {"spec": {"workerGroupSpecs": list(groups)}})


def rigid(name: str = "ray") -> Json:
    """All of the lab's GPUs, and a head without any."""
    return ray_cluster(name, worker_group("small", 4, gpus=8))


ROLES = {"headgroup": 1, "small": 4}


def test_a_raycluster_starts_whole_or_not_at_all(cluster: Cluster, namespace: str) -> None:
    needs = "needs 32 GPUs (1 headgroup, 4 small)"
    starts_whole_or_not_at_all(cluster, namespace, rigid(), "raycluster-ray", needs, ROLES)


def test_rayclusters_start_in_order_of_submission(cluster: Cluster, namespace: str) -> None:
    start_in_order_of_submission(cluster, namespace, rigid, "raycluster-{}", 5)


def test_a_raycluster_starts_its_head_together_with_the_last_of_its_workers(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    waits_for_the_last_of_its_pods_and_starts_whole(
        lab,
        cluster,
        namespace,
        ray_cluster("ray", worker_group("small", 1, gpus=8), worker_group("large", 2, gpus=8)),
        "raycluster-ray",
        {"headgroup": 1, "small": 1, "large": 2},
        {"ray.io/group": "large"},
        "2 of 4 pods exist; missing: 2 large",
    )


@pytest.mark.parametrize("profile", ["fifo", "max-min"])
def test_a_raycluster_that_is_scaled_beyond_the_room_keeps_what_runs(
    lab: Lab, cluster: Cluster, namespace: str, profile: str
) -> None:
    three = ray_cluster("ray", worker_group("small", 3, gpus=8))
    nine = {"workerGroupSpecs": [worker_group("small", 9, gpus=8)]}
    is_scaled_beyond_the_room_and_keeps_what_runs(
        lab, cluster, namespace, profile, three, "headgroup", "small", nine
    )


def test_a_raycluster_whose_head_another_scheduler_binds_is_left_alone(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with configured(lab, gang={"timeout": f"{TIMEOUT:.0f}s"}):
        elsewhere = ray_cluster("ray", worker_group("small", 2, gpus=8), head={"scheduler": None})
        cluster.submit(elsewhere, namespace=namespace)
        pods = run(cluster, namespace, {"headgroup": 1, "small": 2})
        assert has_state(cluster, namespace, "raycluster-ray", "Running")["roles"].keys() == {"small"}
        is_left_alone(cluster, namespace, pods, 1.5 * TIMEOUT)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_raycluster_whose_head_takes_three_minutes_goes_on_under_a_timeout_of_two(
    cluster: Cluster, namespace: str
) -> None:
    slowly = {"annotations": {START_SECONDS: f"{MINUTES:.0f}"}}
    owner = ray_cluster("ray", worker_group("small", 4, gpus=8), head=slowly)
    is_left_alone_while_one_of_it_starts(cluster, namespace, owner, ROLES, "headgroup")


def test_a_worker_group_that_is_suspended_does_not_count(cluster: Cluster, namespace: str) -> None:
    groups = [worker_group("small", 2, gpus=8), worker_group("large", 2, gpus=8)]
    cluster.submit(ray_cluster("ray", *groups), namespace=namespace)
    run(cluster, namespace, {"headgroup": 1, "small": 2, "large": 2})
    resize(cluster, namespace, "ray", groups[0], {**groups[1], "suspend": True})
    pods = run(cluster, namespace, {"headgroup": 1, "small": 2, "large": 0})
    holder = cluster.submit(job("holder", 2, gpus=8), namespace=namespace)[0]["metadata"]["name"]
    wait_until(lambda: bound(cluster.pods(namespace, holder), 2), what="its GPUs are others'")
    resize(cluster, namespace, "ray", *groups)
    wait_until(
        lambda: len([one for one in gated(cluster.pods(namespace)) if of("large")(one)]) == 2,
        what="KubeRay has made the group again, and it waits",
        also=lambda: everything(cluster, namespace),
    )
    stays(
        cluster,
        lambda: {one.uid for one in pods} < {one.uid for one in bound(cluster.pods(namespace))},
        what="what ran meanwhile goes on",
    )
    cluster.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs/{holder}", propagationPolicy="Background")
    run(cluster, namespace, {"headgroup": 1, "small": 2, "large": 2})


def test_a_suspended_raycluster_says_so_and_comes_back_whole(cluster: Cluster, namespace: str) -> None:
    is_suspended_and_comes_back_whole(
        cluster, namespace, rigid(), "raycluster-ray", ROLES, lambda so: {"suspend": so}
    )


def test_a_raycluster_shrinks_and_grows_while_its_head_goes_on(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    head = {"annotations": {"muster.dev/evictable": "true"}}
    with shared_by(lab, "max-min"):
        cluster.submit(
            ray_cluster("ray", worker_group("small", 8, **ELASTIC), head=head), namespace=namespace
        )
        for _ in range(2):
            parts = gives_a_half_and_has_it_back(cluster, namespace, "small", {"headgroup": 1, "small": 8})
            for group, stay in (("headgroup", 1), ("small", 4)):
                before, after = ({one.uid for one in pods if of(group)(one)} for pods in parts)
                assert len(before & after) == stay, group


@pytest.fixture
def one_node(lab: Lab, cluster: Cluster) -> None:
    """Room for 8 GPUs."""
    only(lab, cluster, lab.nodes[0])


def ray_train() -> list[Json]:
    """The sample of Ray Train as it is shipped: the script, and the cluster for it, of 4 GPUs."""
    return list(yaml.safe_load_all((CHECKOUT / "config/samples/pytorch/ray-train.yaml").read_text()))


RAY_TRAIN = {"headgroup": 1, "workers": 4}


@pytest.mark.usefixtures("one_node")
def test_the_sample_of_ray_train_starts_whole_or_not_at_all_and_gives_its_gpus_to_who_waits_when_it_is_deleted(
    cluster: Cluster, namespace: str
) -> None:
    """A RayCluster has no other end, and no Ray runs here that would train."""
    script, ray = ray_train()
    cluster.submit(script, namespace=namespace)
    needs = "needs 4 GPUs (1 headgroup, 4 workers)"
    starts_whole_or_not_at_all(cluster, namespace, ray, "raycluster-pytorch", needs, RAY_TRAIN, held=[5])
    cluster.submit(job("later", 8), namespace=namespace)
    has_state(cluster, namespace, "job-later", "Waiting")
    cluster.delete(path("RayCluster", namespace, "pytorch"), propagationPolicy="Background")
    runs_whole(cluster, namespace, "later", 8)
    wait_until(lambda: [*cluster.gangs(namespace)] == ["job-later"], what="its Gang is gone with it")


@pytest.mark.usefixtures("one_node")
def test_the_sample_of_ray_train_shrinks_and_grows_by_the_annotations_that_it_names(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str]
) -> None:
    elsewhere = new_namespace()
    cluster.submit(pod("holder", gpus=4), namespace=elsewhere)
    wait_until(lambda: bound(cluster.pods(elsewhere), 1), what="4 GPUs are left")
    script, ray = ray_train()
    (group,) = ray["spec"]["workerGroupSpecs"]
    group["template"]["metadata"] = {"annotations": {"muster.dev/min-replicas": "1"}}
    ray["spec"]["headGroupSpec"]["template"]["metadata"] = {"annotations": {"muster.dev/evictable": "true"}}
    with shared_by(lab, "max-min"):
        cluster.submit(script, ray, namespace=namespace)
        whole, again = gives_a_half_and_has_it_back(cluster, namespace, "workers", RAY_TRAIN, gpus=1)
    assert (
        len({one.uid for one in whole} & {one.uid for one in again}) == 3
    )  # its head, and half of its workers


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
    loses_one_that_comes_again_to_its_place(cluster, namespace, rigid(), ROLES, group, cluster.delete_pod)


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
        "rayClusterSpec": rigid()["spec"],
    }
    cluster.submit(custom("RayJob", "tune", spec), namespace=namespace)
    # The Job that submits, of the RayJob's name, is made as soon as the cluster is ready.
    run(cluster, namespace, ROLES, beside="tune")
    (name,) = wait_until(lambda: cluster.gangs(namespace), what="its Gang is written")
    cluster.submit(job("later", 4, gpus=8), namespace=namespace)
    has_state(cluster, namespace, "job-later", "Waiting")
    cluster.patch(path("RayJob", namespace, "tune"), {"spec": {"activeDeadlineSeconds": 1}})
    runs_whole(cluster, namespace, "later", 4)
    status = cluster.get(path("RayJob", namespace, "tune"))["status"]
    assert (status["jobDeploymentStatus"], status["reason"]) == ("Failed", "DeadlineExceeded")
    wait_until(lambda: name not in cluster.gangs(namespace), what="its Gang is gone with its cluster")
