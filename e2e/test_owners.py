# Over 300 lines: each kind of owner has its scenarios.
"""Gangs of every owner that Kubernetes brings along: how each creates its pods, scales, ends, and goes."""

from __future__ import annotations

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.scenario import (
    bound,
    deployment,
    ends_now,
    gang,
    gated,
    holds_for,
    in_state,
    job,
    on_node,
    pod,
    show,
    stateful_set,
    stays,
    wait_until,
)

pytestmark = pytest.mark.lab


def living(cluster: Cluster, namespace: str, prefix: str) -> list[Pod]:
    return [one for one in cluster.pods(namespace) if one.name.startswith(prefix) and not one.terminal]


def runs(cluster: Cluster, namespace: str, name: str, replicas: int, gang_name: str) -> list[Pod]:
    """That many pods whose names begin with `name` are bound, and the Gang is Running."""
    found = wait_until(
        lambda: bound(living(cluster, namespace, name), replicas),
        what=f"{replicas} pods of {name} are bound",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    wait_until(
        lambda: (
            in_state(cluster, namespace, gang_name, "Running").get("replicas") == f"{replicas}/{replicas}"
        ),
        what=f"Gang {gang_name} is Running with {replicas}",
        also=lambda: str(cluster.gangs(namespace)),
    )
    return found


def waits(cluster: Cluster, namespace: str, gang_name: str, message: str = "") -> None:
    """The Gang is Waiting, with this message where one is given."""
    wait_until(
        lambda: (
            (found := in_state(cluster, namespace, gang_name, "Waiting"))
            and message in ("", found["message"])
        ),
        what=f"{gang_name} waits: {message}",
        also=lambda: str(cluster.gangs(namespace)),
    )


def wait_gated(cluster: Cluster, namespace: str, prefix: str, count: int) -> None:
    """So many of its pods wait. Their owner may take its time: where it pauses, the Gang waits, or runs, before all
    of them are there."""
    wait_until(
        lambda: len(gated(living(cluster, namespace, prefix))) == count,
        what=f"{count} pods of {prefix} wait behind the gate",
        also=lambda: show(cluster.pods(namespace)),
    )


def delete(cluster: Cluster, namespace: str, plural: str, name: str) -> None:
    group = "batch" if plural == "jobs" else "apps"
    path = f"/apis/{group}/v1/namespaces/{namespace}/{plural}/{name}"
    cluster.delete(path, propagationPolicy="Background")


def holder(cluster: Cluster, namespace: str, *nodes: str) -> Json:
    """A job on the first of these nodes, so that a gang for all of them has to wait; the affinity for it."""
    cluster.submit(job("holder", 1, gpus=8, affinity=on_node(nodes[0])), namespace=namespace)
    runs(cluster, namespace, "holder", 1, "job-holder")
    return on_node(*nodes)


# --- StatefulSet --------------------------------------------------------------------------------------------


def test_a_statefulset_that_creates_pods_one_after_another_starts_on_a_reservation(
    cluster: Cluster, namespace: str
) -> None:
    capacity = holder(cluster, namespace, "node-00", "node-01", "node-02")
    cluster.submit(stateful_set("ps", 3, ordered=True, gpus=8, affinity=capacity), namespace=namespace)
    # Its first pod fits by itself, and waits for all three.
    waits(cluster, namespace, "statefulset-ps", "needs 24 GPUs (3 replicas of 8)")
    stays(
        cluster,
        lambda: [one.name for one in gated(living(cluster, namespace, "ps"))] == ["ps-0"],
        what="ps-0 waits for the room of all three",
    )
    delete(cluster, namespace, "jobs", "holder")
    # From the first pod on the others' room is kept: somebody who comes in between does not get it.
    wait_until(lambda: bound(living(cluster, namespace, "ps-0"), 1), what="ps-0 runs")
    cluster.submit(job("greedy", 1, gpus=8, affinity=capacity), namespace=namespace)
    pods = runs(cluster, namespace, "ps", 3, "statefulset-ps")
    assert [one.name for one in pods] == ["ps-0", "ps-1", "ps-2"]
    waits(cluster, namespace, "job-greedy")


def test_a_parallel_statefulset_is_a_gang_and_scales(cluster: Cluster, namespace: str) -> None:
    capacity = holder(cluster, namespace, "node-00", "node-01")
    cluster.submit(stateful_set("ps", 2, gpus=8, affinity=capacity), namespace=namespace)
    waits(cluster, namespace, "statefulset-ps")
    wait_gated(cluster, namespace, "ps", 2)
    delete(cluster, namespace, "jobs", "holder")
    runs(cluster, namespace, "ps", 2, "statefulset-ps")
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/ps"
    cluster.patch(path, {"spec": {"replicas": 1}})
    runs(cluster, namespace, "ps", 1, "statefulset-ps")
    cluster.patch(path, {"spec": {"replicas": 2}})
    runs(cluster, namespace, "ps", 2, "statefulset-ps")


def test_a_statefulset_pod_that_comes_back_gets_its_place_again(cluster: Cluster, namespace: str) -> None:
    capacity = on_node("node-00", "node-01")
    cluster.submit(stateful_set("ps", 2, gpus=8, affinity=capacity), namespace=namespace)
    first = runs(cluster, namespace, "ps", 2, "statefulset-ps")[0]
    cluster.submit(job("greedy", 1, gpus=8, affinity=capacity), namespace=namespace)
    waits(cluster, namespace, "job-greedy")
    cluster.delete_pod(first)
    wait_until(
        lambda: (again := cluster.pod(namespace, "ps-0")) is not None and again.uid != first.uid,
        what="ps-0 is there again",
    )
    runs(cluster, namespace, "ps", 2, "statefulset-ps")
    waits(cluster, namespace, "job-greedy")


# --- Deployment ---------------------------------------------------------------------------------------------


def test_a_deployment_is_a_gang_named_after_itself_and_scales(cluster: Cluster, namespace: str) -> None:
    capacity = holder(cluster, namespace, "node-00", "node-01")
    cluster.submit(deployment("serve", 4, gpus=4, affinity=capacity), namespace=namespace)
    waits(cluster, namespace, "deployment-serve", "needs 16 GPUs (4 replicas of 4)")
    wait_gated(cluster, namespace, "serve", 4)
    delete(cluster, namespace, "jobs", "holder")
    runs(cluster, namespace, "serve", 4, "deployment-serve")
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/serve"
    for size in (2, 3):
        cluster.patch(path, {"spec": {"replicas": size}})
        runs(cluster, namespace, "serve", size, "deployment-serve")


def test_a_new_template_of_a_deployment_rolls_out(cluster: Cluster, namespace: str) -> None:
    """Old and new ReplicaSet are one job: new pods start beside the old ones, which then go."""
    cluster.submit(deployment("serve", 2, gpus=2), namespace=namespace)
    before = {one.uid for one in runs(cluster, namespace, "serve", 2, "deployment-serve")}
    patch = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    cluster.patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/serve", patch)
    wait_until(
        lambda: (
            (found := bound(living(cluster, namespace, "serve"), 2))
            and not before & {one.uid for one in found}
        ),
        what="two new pods run, the old ones are gone",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


# --- Job ----------------------------------------------------------------------------------------------------


def test_an_indexed_job_ends_and_its_gang_is_finished(cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("train", 3, gpus=8, run_seconds=2), namespace=namespace)
    completes(cluster, namespace, "train")
    is_finished(cluster, namespace, "job-train")


def is_finished(cluster: Cluster, namespace: str, gang_name: str) -> None:
    wait_until(
        lambda: in_state(cluster, namespace, gang_name, "Finished"),
        what=f"{gang_name} is Finished",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def completes(cluster: Cluster, namespace: str, name: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    wait_until(
        lambda: any(
            condition["type"] == "Complete" and condition["status"] == "True"
            for condition in cluster.get(path)["status"].get("conditions", [])
        ),
        what=f"Job {name} is complete",
        also=lambda: (
            f"{cluster.get(path)['status']}\n{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}"
        ),
    )


def test_a_job_with_more_completions_than_parallelism_goes_on_until_all_are_done(
    cluster: Cluster, namespace: str
) -> None:
    cluster.submit(job("batch", 2, completions=5, gpus=8, run_seconds=1), namespace=namespace)
    completes(cluster, namespace, "batch")


def test_a_success_policy_on_the_leader_ends_the_job_with_others_still_gated(
    cluster: Cluster, namespace: str
) -> None:
    capacity = on_node("node-00")
    elastic = job("elastic", 4, gpus=4, min_replicas=1, success_on="0", affinity=capacity)
    cluster.submit(elastic, namespace=namespace)
    leader = runs(cluster, namespace, "elastic", 2, "job-elastic")[0]
    wait_gated(cluster, namespace, "elastic", 2)
    ends_now(cluster, leader)
    completes(cluster, namespace, "elastic")
    wait_until(
        lambda: not living(cluster, namespace, "elastic"),
        what="nothing of it is left",
        also=lambda: show(cluster.pods(namespace)),
    )
    is_finished(cluster, namespace, "job-elastic")


def test_a_job_that_has_failed_for_good_is_finished(cluster: Cluster, namespace: str) -> None:
    failing = job("fails", 2, gpus=4, run_seconds=1, exit_code=1, backoff_limit=0)
    cluster.submit(failing, namespace=namespace)
    is_finished(cluster, namespace, "job-fails")


@pytest.mark.ends("EndedLeftover")
def test_a_work_queue_ends_although_replicas_of_it_never_ran(cluster: Cluster, namespace: str) -> None:
    """parallelism 4, no completions: when one pod has succeeded, Muster takes away those that still wait."""
    queue = job(
        "queue",
        4,
        indexed=False,
        gpus=4,
        min_replicas=1,
        max_replicas=4,
        affinity=on_node("node-00"),
    )
    cluster.submit(queue, namespace=namespace)
    running = wait_until(lambda: bound(living(cluster, namespace, "queue"), 2), what="two of the queue run")
    wait_gated(cluster, namespace, "queue", 2)
    ends_now(cluster, *running)
    completes(cluster, namespace, "queue")
    status = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/queue")["status"]
    assert (status.get("succeeded"), status.get("failed")) == (2, None)


def test_a_failed_replica_of_a_job_is_replaced(cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("train", 2, gpus=8, backoff_limit=6), namespace=namespace)
    pods = runs(cluster, namespace, "train", 2, "job-train")
    first = {one.uid for one in pods}
    ends_now(cluster, *pods, exit_code=1)
    wait_until(
        lambda: (
            (found := bound(living(cluster, namespace, "train"), 2))
            and not first & {one.uid for one in found}
        ),
        what="both run again after they failed",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def test_a_suspended_job_that_is_resumed_starts(cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("train", 2, gpus=8, job_spec={"suspend": True}), namespace=namespace)
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/train"
    wait_until(
        lambda: any(
            one["type"] == "Suspended" and one["status"] == "True"
            for one in cluster.get(path)["status"].get("conditions", [])
        ),
        what="its controller has read it",
    )
    assert cluster.pods(namespace) == []
    cluster.patch(path, {"spec": {"suspend": False}})
    runs(cluster, namespace, "train", 2, "job-train")
    cluster.patch(path, {"spec": {"suspend": True}})
    wait_until(lambda: not living(cluster, namespace, "train"), what="its pods are gone")
    cluster.patch(path, {"spec": {"suspend": False}})
    runs(cluster, namespace, "train", 2, "job-train")


# --- bare pods ----------------------------------------------------------------------------------------------


def test_a_bare_pod_is_a_job_of_its_own(cluster: Cluster, namespace: str) -> None:
    cluster.submit(pod("alone", gpus=2), pod("beside", gpus=2), namespace=namespace)
    runs(cluster, namespace, "alone", 1, "pod-alone")
    runs(cluster, namespace, "beside", 1, "pod-beside")
    one = cluster.pod(namespace, "alone")
    assert one is not None
    cluster.delete_pod(one)
    wait_until(lambda: not gang(cluster, namespace, "pod-alone"), what="its Gang goes with it")


def test_bare_pods_of_one_label_without_a_size_start_as_they_come(cluster: Cluster, namespace: str) -> None:
    cluster.submit(pod("one", job="loose", gpus=4), namespace=namespace)
    runs(cluster, namespace, "one", 1, "loose")
    cluster.submit(pod("two", job="loose", gpus=4), namespace=namespace)
    wait_until(
        lambda: bound(cluster.pods(namespace, "loose"), 2),
        what="the second starts too",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def test_a_job_of_two_owners_starts_when_both_are_there(cluster: Cluster, namespace: str) -> None:
    """A parameter server (StatefulSet) and workers (Job), one label."""
    roles = "server=1,worker=2"
    cluster.submit(stateful_set("ps", 1, job="both", role="server", roles=roles, gpus=0), namespace=namespace)
    wait_until(
        lambda: in_state(cluster, namespace, "both", "Incomplete"),
        what="it is incomplete",
        also=lambda: str(cluster.gangs(namespace)),
    )
    # Longer than an owner's pause (10 s): nobody here is known to create the workers.
    holds_for(
        lambda: not bound(cluster.pods(namespace)), seconds=12, what="the server does not start without them"
    )
    cluster.submit(job("workers", 2, job="both", role="worker", roles=roles, gpus=8), namespace=namespace)
    wait_until(
        lambda: in_state(cluster, namespace, "both", "Running").get("replicas") == "3/3",
        what="the job of both owners runs",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


# --- owner gone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "plural", "gang_name"),
    [
        (job("gone", 2, gpus=8), "jobs", "job-gone"),
        (stateful_set("gone", 2, gpus=8), "statefulsets", "statefulset-gone"),
        (deployment("gone", 2, gpus=8), "deployments", "deployment-gone"),
    ],
    ids=["job", "statefulset", "deployment"],
)
def test_an_owner_that_goes_takes_its_pods_and_its_gang_along(
    cluster: Cluster, namespace: str, manifest: Json, plural: str, gang_name: str
) -> None:
    cluster.submit(manifest, namespace=namespace)
    runs(cluster, namespace, "gone", 2, gang_name)
    delete(cluster, namespace, plural, "gone")
    wait_until(
        lambda: not cluster.pods(namespace) and not cluster.gangs(namespace),
        what="pods and Gang are gone",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def test_pods_that_their_owner_leaves_behind_keep_running(cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("left", 2, gpus=8), namespace=namespace)
    before = {one.uid for one in runs(cluster, namespace, "left", 2, "job-left")}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/left"
    cluster.delete(path, propagationPolicy="Orphan")
    wait_until(
        lambda: not any(one.owner for one in cluster.pods(namespace)),
        what="nobody owns its pods",
    )
    stays(
        cluster,
        lambda: {one.uid for one in bound(living(cluster, namespace, "left"))} == before,
        what="they go on",
    )
