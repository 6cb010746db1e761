"""Coach's gang scheduler on a cluster, profile `gang`: its queue (Algorithm 1) and its filter (Algorithm 2), each by
what pods do. Its score, and `gang-pack`: test_scored.py."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.elastic import only, replayed
from e2e.lab import Lab
from e2e.operators import pytorch_job, pytorch_pod, serve, withdraw
from e2e.scenario import (
    bound,
    configured,
    ends_now,
    gated,
    in_state,
    job,
    pod,
    priority_class,
    runs_whole,
    scheduled_at,
    seen_at_once,
    show,
    stays,
    wait_until,
)
from e2e.test_families import NODE

pytestmark = [pytest.mark.lab, pytest.mark.referee(again=10)]

A_SECOND = 1.1
"""s: creation times have whole seconds."""
LASTS = 3
"""s that each job of the queue runs: whole seconds tell which of two was bound first."""


# --- Algorithm 1: the queue ---------------------------------------------------------------------------------


@pytest.fixture
def urgent(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A priority class."""
    name = f"urgent-{namespace}"
    cluster.submit(priority_class(name, 1000))
    yield name
    cluster.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")


def member(name: str, gpus: int, of: int = 1, **what: str) -> Json:
    """A pod "job-number" of a job of so many."""
    return pod(name, job=name.rpartition("-")[0], roles=f"worker={of}", gpus=gpus, run_seconds=LASTS, **what)


def in_the_same_second(cluster: Cluster, namespace: str) -> tuple[str, str]:
    """Two jobs of a pod each, the one that comes first by name made last."""
    for attempt in itertools.count():
        time.sleep(1.0 - time.time() % 1.0)
        names = f"a{attempt}", f"b{attempt}"
        made = cluster.submit(*(member(f"{name}-0", 8) for name in reversed(names)), namespace=namespace)
        if len({one["metadata"]["creationTimestamp"] for one in made}) == 1:
            return names
        for one in cluster.pods(namespace):
            if one.labels.get("muster.dev/job") in names:
                cluster.delete_pod(one, grace=0)
    raise AssertionError("the count has no end")


def test_gang_s_queue_goes_by_priority_then_by_the_first_pod_s_time_then_by_name(
    lab: Lab, cluster: Cluster, namespace: str, urgent: str
) -> None:
    """One node, which each of them fills, so that they start one by one. Names and last pods say another order."""
    only(lab, cluster, NODE)
    with configured(lab, profile="gang"):
        cluster.submit(pod("holder", gpus=8), namespace=namespace)
        (holder,) = wait_until(lambda: bound(cluster.pods(namespace), 1), what="the node is full")
        with seen_at_once(lab):
            cluster.submit(member("y-old-0", 4, of=2), namespace=namespace)
            time.sleep(A_SECOND)
            a, b = in_the_same_second(cluster, namespace)
            time.sleep(A_SECOND)
            cluster.submit(
                member("z-urgent-0", 8, priority=urgent), member("y-old-1", 4, of=2), namespace=namespace
            )
        expected = ["z-urgent", "y-old", a, b]

        def shown() -> str:
            return f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}"

        wait_until(
            lambda: all(in_state(cluster, namespace, name, "Waiting") for name in expected),
            what="all of them are in the queue",
            also=shown,
        )
        replayed(lab, cluster)
        ends_now(cluster, holder)
        pods = wait_until(
            lambda: (now := cluster.pods(namespace)) and all(one.terminal for one in now) and now,
            what="all have run",
            also=shown,
        )
        first = {name: min(scheduled_at(one) for one in of_job(pods, name)) for name in expected}
        last = {name: max(scheduled_at(one) for one in of_job(pods, name)) for name in expected}
        assert sorted(expected, key=first.__getitem__) == expected, (first, "who starts first")
        for name, following in itertools.pairwise(expected):
            assert last[name] < first[following], (last, first, "all pods of the one, then any of the next")


def of_job(pods: list[Pod], name: str) -> list[Pod]:
    return [one for one in pods if one.labels.get("muster.dev/job") == name]


# --- Algorithm 2: the filter --------------------------------------------------------------------------------


@pytest.fixture
def definitions(cluster: Cluster) -> Iterator[None]:
    """The cluster serves PyTorchJobs; their operator is played: it makes one type of pod long after the other."""
    made = serve(cluster)
    yield
    for name in made:
        withdraw(cluster, name)


@pytest.mark.usefixtures("definitions")
def test_gang_s_filter_places_no_pod_of_a_job_before_each_type_has_one_where_fifo_starts_the_workers(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Its owner has paused: for all that is known the rest comes when these run, so that fifo begins without it."""
    only(lab, cluster, NODE)
    pauses = {"gang": {"ownerPause": "1s"}}

    def workers_come(name: str) -> Json:
        (owner,) = cluster.submit(pytorch_job(name, workers=2), namespace=namespace)
        cluster.submit(*(pytorch_pod(owner, "worker", index) for index in range(2)), namespace=namespace)
        return owner

    def pods_of(name: str) -> list[Pod]:
        return [one for one in cluster.pods(namespace) if one.name.startswith(f"{name}-")]

    def shown() -> str:
        return f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}"

    def becomes_whole(owner: Json) -> None:
        name = owner["metadata"]["name"]
        cluster.submit(pytorch_pod(owner, "master", 0), namespace=namespace)
        wait_until(lambda: bound(pods_of(name), 3), what=f"{name} has all of its pods bound", also=shown)

    with configured(lab, profile="gang", **pauses):
        owner = workers_come("typed")
        wait_until(
            lambda: "waits until every role has a pod; none yet of: master" in shown(),
            what="its owner reads which type is missing",
            also=shown,
        )
        cluster.submit(job("later", 2), namespace=namespace)
        runs_whole(cluster, namespace, "later", 2)  # it blocks nobody
        stays(
            cluster,
            lambda: len(gated(pods_of("typed"))) == 2,
            what="on a node with room for them both workers are behind the gate",
            also=shown,
        )
        replayed(lab, cluster)
        becomes_whole(owner)
        replayed(lab, cluster)
    with configured(lab, profile="fifo", **pauses):
        owner = workers_come("plain")
        wait_until(lambda: bound(pods_of("plain"), 2), what="two workers without a master", also=shown)
        becomes_whole(owner)
        replayed(lab, cluster)
