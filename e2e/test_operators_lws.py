"""LeaderWorkerSet as it is: its real controller makes the pods, on a lab of 4 nodes x 8 GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, Pod
from e2e.lab import Lab
from e2e.operated import everything, has_state, is_left_alone, leader_worker_set, operated, path
from e2e.scenario import (
    PATIENCE,
    bound,
    configured,
    pod,
    show,
    stays,
    wait_until,
    waits_because,
)

pytestmark = [pytest.mark.lab, pytest.mark.operators("lws")]


TIMEOUT = 8.0
"""Seconds of gang.timeout where it is what a scenario is about."""
LONGER = 20.0
"""Seconds until a leader is ready where that is to be longer."""


@pytest.fixture(scope="module", name="_session_lab")
def operated_lab() -> Iterator[Lab]:
    with operated("lws") as lab:
        yield lab


def runs(cluster: Cluster, namespace: str, count: int, within: float = PATIENCE) -> list[Pod]:
    return wait_until(
        lambda: bound(cluster.pods(namespace), count),
        within=within,
        what=f"{count} pods run",
        also=lambda: everything(cluster, namespace),
    )


def test_each_group_of_a_leaderworkerset_starts_whole_or_not_at_all(cluster: Cluster, namespace: str) -> None:
    """Two groups of 3 pods of 8 GPUs: room for one of them, and one node is left."""
    cluster.submit(leader_worker_set("serve", 3, replicas=2, gpus=8), namespace=namespace)
    first = runs(cluster, namespace, 3)
    (group,) = {one.labels["leaderworkerset.sigs.k8s.io/group-index"] for one in first}
    other = {"0": "1", "1": "0"}[group]
    has_state(cluster, namespace, f"leaderworkerset-serve-{other}", "Waiting")
    stays(cluster, lambda: len(bound(cluster.pods(namespace))) == 3, what="the other group waits whole")
    cluster.patch(path("LeaderWorkerSet", namespace, "serve"), {"spec": {"replicas": 1}})
    wait_until(
        lambda: (
            [one.labels["leaderworkerset.sigs.k8s.io/group-index"] for one in bound(cluster.pods(namespace))]
            == ["0", "0", "0"]
        ),
        what="group 0 is left, whole",
        also=lambda: everything(cluster, namespace),
    )


def test_a_leader_that_its_workers_wait_for_waits_until_there_is_room_for_these_too(
    cluster: Cluster, namespace: str
) -> None:
    holder = cluster.submit(pod("holder", gpus=8), namespace=namespace)[0]
    runs(cluster, namespace, 1)
    cluster.submit(leader_worker_set("serve", 4, startup="LeaderReady", gpus=8), namespace=namespace)
    waits_because(cluster, namespace, "leaderworkerset-serve-0", "needs 32 GPUs (4 replicas of 8)")
    stays(
        cluster,
        lambda: [one.name for one in bound(cluster.pods(namespace))] == ["holder"],
        what="no leader starts without room for its workers",
    )
    cluster.delete_pod(Pod(holder))
    wait_until(
        lambda: len(bound(cluster.pods(namespace))) == 4,
        what="leader and workers run",
        also=lambda: show(cluster.pods(namespace)),
    )


def test_a_leader_that_takes_longer_than_the_timeout_is_not_sent_back(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with configured(lab, gang={"timeout": f"{TIMEOUT:.0f}s"}):
        slowly = {"annotations": {"e2e.muster.dev/start-seconds": f"{LONGER:.0f}"}}
        slow = leader_worker_set("slow", 4, startup="LeaderReady", leader=slowly, gpus=8)
        cluster.submit(slow, namespace=namespace)
        (leader,) = runs(cluster, namespace, 1)
        pods = runs(cluster, namespace, 4, within=LONGER + PATIENCE)
        assert leader.uid in {one.uid for one in pods}
        is_left_alone(cluster, namespace, pods, 1.5 * TIMEOUT)


def test_a_group_whose_pod_fails_comes_back_whole_and_before_what_waits(
    cluster: Cluster, namespace: str
) -> None:
    """restartPolicy RecreateGroupOnPodRestart: the controller ends the whole group."""
    cluster.submit(leader_worker_set("serve", 4, gpus=8), namespace=namespace)
    before = runs(cluster, namespace, 4)
    cluster.submit(leader_worker_set("waits", 2, gpus=8), namespace=namespace)
    has_state(cluster, namespace, "leaderworkerset-waits-0", "Waiting")
    cluster.delete_pod(next(one for one in before if one.name != "serve-0"))
    wait_until(
        lambda: {one.uid for one in before}.isdisjoint(one.uid for one in cluster.pods(namespace)),
        what="the controller has ended all of the group",
        also=lambda: everything(cluster, namespace),
    )
    again = runs(cluster, namespace, 4)
    assert {one.labels["leaderworkerset.sigs.k8s.io/name"] for one in again} == {"serve"}


def test_gangs_of_a_leaderworkerset_belong_to_it_and_go_with_it(cluster: Cluster, namespace: str) -> None:
    cluster.submit(leader_worker_set("serve", 2, replicas=2, gpus=2), namespace=namespace)
    names = ["leaderworkerset-serve-0", "leaderworkerset-serve-1"]
    for name in names:
        has_state(cluster, namespace, name, "Running")
    owners = [
        [
            (owner["kind"], owner["name"])
            for owner in cluster.gangs(namespace)[name]["metadata"]["ownerReferences"]
        ]
        for name in names
    ]
    assert owners == [[("LeaderWorkerSet", "serve")]] * 2
    cluster.delete(path("LeaderWorkerSet", namespace, "serve"), propagationPolicy="Background")
    wait_until(
        lambda: not cluster.pods(namespace) and not cluster.gangs(namespace),
        what="neither pods nor Gangs are left",
        also=lambda: everything(cluster, namespace),
    )
    stays(cluster, lambda: not cluster.gangs(namespace), what="and no Gang comes again")
