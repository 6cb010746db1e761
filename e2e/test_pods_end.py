"""Fake nodes end pods as a kubelet ends them: terminal phase with exit codes first, then the deletion. Muster has no
part in it: the pods are the stock scheduler's."""

from __future__ import annotations

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.scenario import bound, delete_job, job, pod, show, stateful_set, wait_until

pytestmark = pytest.mark.lab


def test_the_stock_scheduler_binds_and_the_pod_runs(cluster: Cluster, namespace: str) -> None:
    cluster.submit(pod("runs", scheduler=None, gpus=8), namespace=namespace)
    one = wait_until(lambda: running(cluster, namespace, "runs"), what="pod runs is Running")
    assert one.raw["status"]["podIP"]
    ready = one.condition("Ready")
    assert ready is not None
    assert ready["status"] == "True"
    cluster.delete_pod(one)
    wait_until(lambda: cluster.pod(namespace, "runs") is None, what="pod runs is gone")


def test_a_deleted_member_is_failed_first_and_its_job_counts_it(cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("counted", 2, scheduler=None, gpus=0, backoff_limit=4), namespace=namespace)
    members = wait_until(lambda: bound(cluster.pods(namespace, "counted"), 2), what="both members run")
    wait_until(lambda: running(cluster, namespace, members[0].name), what="the first runs")
    cluster.delete_pod(members[0])

    status = wait_until(
        lambda: counted(cluster, namespace, "counted"),
        what="the Job controller counts the deleted pod as failed",
        also=lambda: show(cluster.pods(namespace, "counted")),
    )
    assert status["failed"] == 1
    # The Job controller has taken its finalizer off by itself: the pod is gone, and its replacement waits the
    # back-off that a stage which strips finalizers would hide.
    wait_until(lambda: cluster.pod(namespace, members[0].name) is None, what="the deleted pod is gone")
    wait_until(lambda: bound(cluster.pods(namespace, "counted"), 2), what="the replacement runs (10 s)")
    delete_job(cluster, namespace, "counted")


def test_a_deleted_pod_shows_a_terminal_phase_with_its_exit_code_before_it_goes(
    cluster: Cluster, namespace: str
) -> None:
    held = pod("held", scheduler=None, gpus=0)
    held["metadata"]["finalizers"] = ["e2e.muster.dev/hold"]
    zero = pod("zero", scheduler=None, gpus=0, exit_on_term=0)
    zero["metadata"]["finalizers"] = ["e2e.muster.dev/hold"]
    cluster.submit(held, zero, namespace=namespace)
    held_to_its_end(cluster, namespace, "held", "Failed", 143)
    held_to_its_end(cluster, namespace, "zero", "Succeeded", 0)


def held_to_its_end(cluster: Cluster, namespace: str, name: str, phase: str, code: int) -> None:
    cluster.delete_pod(wait_until(lambda: running(cluster, namespace, name), what=f"{name} runs"))
    ended = wait_until(lambda: terminal(cluster, namespace, name), what=f"{name} has a terminal phase")
    assert (ended.phase, ended.exit_code) == (phase, code)
    # Somebody else's finalizer stays, and with it the object.
    wait_until(lambda: graceless(cluster, namespace, name), what=f"{name} was deleted by its node")
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": {"finalizers": None}})
    wait_until(lambda: cluster.pod(namespace, name) is None, what=f"{name} is gone")


def test_a_pod_ends_by_itself_after_its_run_seconds_with_its_exit_code(
    cluster: Cluster, namespace: str
) -> None:
    cluster.submit(
        pod("ends", scheduler=None, gpus=0, run_seconds=1),
        pod("fails", scheduler=None, gpus=0, run_seconds=1, exit_code=3),
        namespace=namespace,
    )
    ends = wait_until(lambda: terminal(cluster, namespace, "ends"), what="pod ends has ended")
    fails = wait_until(lambda: terminal(cluster, namespace, "fails"), what="pod fails has ended")
    assert (ends.phase, ends.exit_code, fails.phase, fails.exit_code) == ("Succeeded", 0, "Failed", 3)
    for each in (ends, fails):
        cluster.delete_pod(each)


def test_a_member_of_a_statefulset_comes_back_under_its_name(cluster: Cluster, namespace: str) -> None:
    cluster.submit(stateful_set("named", 1, scheduler=None, gpus=0), namespace=namespace)
    first = wait_until(lambda: running(cluster, namespace, "named-0"), what="named-0 runs")
    cluster.delete_pod(first)
    wait_until(
        lambda: (again := running(cluster, namespace, "named-0")) is not None and again.uid != first.uid,
        what="named-0 runs again, as another pod",
    )
    cluster.delete(f"/apis/apps/v1/namespaces/{namespace}/statefulsets/named")


def running(cluster: Cluster, namespace: str, name: str) -> Pod | None:
    one = cluster.pod(namespace, name)
    return one if one is not None and one.phase == "Running" else None


def terminal(cluster: Cluster, namespace: str, name: str) -> Pod | None:
    one = cluster.pod(namespace, name)
    return one if one is not None and one.terminal else None


def graceless(cluster: Cluster, namespace: str, name: str) -> bool:
    one = cluster.pod(namespace, name)
    return one is not None and one.raw["metadata"].get("deletionGracePeriodSeconds") == 0


def counted(cluster: Cluster, namespace: str, name: str) -> Json | None:
    status: Json = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")["status"]
    return status if status.get("failed") else None
