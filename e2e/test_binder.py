"""`binder: cluster`: the scheduler that the cluster has binds, and no second one runs.

In these labs the stock `default-scheduler` stands for the cluster's own: it knows nothing of Muster."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from e2e.cluster import Cluster, Refused
from e2e.lab import Lab, NodeGroup, Shape
from e2e.labs import own_lab
from e2e.scenario import (
    bound,
    comes_ungated,
    delete_job,
    deployment,
    gang,
    gated,
    job,
    on_node,
    pod,
    runs_whole,
    show,
    wait_until,
    waits_because,
)

pytestmark = pytest.mark.lab
RUNS_ON_KIND = True
LABEL = "muster.dev/scheduler"
RACK = "topology.kubernetes.io/rack"


@pytest.fixture(scope="module")
def binder_lab() -> Iterator[Lab]:
    with own_lab("binder", Shape(groups=(NodeGroup(8),), racks=2, set_values=("binder=cluster",))) as lab:
        yield lab


@pytest.fixture
def lab(binder_lab: Lab) -> Iterator[Lab]:
    yield binder_lab
    binder_lab.restore()


def test_the_clusters_scheduler_binds_pinned_gangs_and_no_second_one_runs(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    assert not any(name.startswith("kube-scheduler") for name in lab.processes)
    assert lab.leader() == 0, "muster holds its Lease itself"
    assert httpx.get(f"{lab.service_url()}/readyz", trust_env=False).status_code == 200
    with pytest.raises(httpx.TransportError):  # there are no verbs
        httpx.get(f"{lab.extender_url()}/filter", trust_env=False)

    cluster.submit(
        job("first", 4, gpus=8), deployment("serve", 2, gpus=8, min_replicas=2), namespace=namespace
    )
    pods = runs_whole(cluster, namespace, "first", 4)
    wait_until(lambda: bound(cluster.pods(namespace, labels="app=serve"), 2), what="the Deployment runs")
    for one in pods:
        assert one.pinned_to == one.node
        assert one.raw["spec"]["schedulerName"] == "default-scheduler"
        assert one.labels[LABEL] == "muster"
    # All or nothing, whoever binds: two of three would fit.
    cluster.submit(job("large", 3, gpus=8), namespace=namespace)
    waits_because(cluster, namespace, "job-large", "needs 24 GPUs (3 replicas of 8)")
    wait_until(lambda: len(gated(cluster.pods(namespace, "large"))) == 3, what="all of it waits at the gate")
    delete_job(cluster, namespace, "first")
    runs_whole(cluster, namespace, "large", 3)


def test_scored_where_the_owner_asks_for_it_is_pinned_since_nobody_asks_our_verbs(
    cluster: Cluster, namespace: str
) -> None:
    cluster.submit(
        job("asked", 2, gpus=4, annotations={"muster.dev/placement": "scored"}), namespace=namespace
    )
    pods = runs_whole(cluster, namespace, "asked", 2)
    assert all(one.pinned_to == one.node for one in pods)
    assert gang(cluster, namespace, "job-asked")["mode"] == "pinned"


def test_what_the_planner_does_not_model_is_nominated_and_kept_in_its_rack(
    cluster: Cluster, namespace: str
) -> None:
    """kube-scheduler tries the nominated node first, and decides: anti-affinity is its own rule."""
    repels = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [repels]}}
    cluster.submit(
        job(
            "apart",
            3,
            gpus=2,
            labels={"app": "apart"},
            affinity=affinity,
            annotations={"muster.dev/topology-required": RACK},
        ),
        namespace=namespace,
    )
    pods = runs_whole(cluster, namespace, "apart", 3)
    assert gang(cluster, namespace, "job-apart")["mode"] == "scored"
    assert len({one.node for one in pods}) == 3
    assert [one.pinned_to for one in pods] == [""] * 3
    racks = {node["metadata"]["name"]: node["metadata"]["labels"].get(RACK) for node in cluster.nodes()}
    assert len({racks[one.node] for one in pods}) == 1
    for one in pods:
        terms = one.raw["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert terms == [{"matchExpressions": [{"key": RACK, "operator": "In", "values": [racks[one.node]]}]}]


def test_a_place_that_a_foreign_pod_took_is_given_up_and_the_gang_goes_elsewhere(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """No filter guards binds here: evidence of the cluster's scheduler undoes the pin.

    That scheduler is down, not paused, while the foreign pod comes: it starts with a whole view before it binds
    anything. One that wakes up takes the pods and the foreign pod from one watch, and binds what it has read."""
    lab.stop("default-scheduler")
    cluster.submit(
        job("train", 2, gpus=8, affinity=on_node("node-00", "node-01", "node-02")), namespace=namespace
    )
    moved, stays = wait_until(
        lambda: (
            len(found := [one for one in cluster.pods(namespace, "train") if one.pinned_to]) == 2 and found
        ),
        what="train is pinned",
        also=lambda: show(cluster.pods(namespace)),
    )
    foreign = pod("foreign", scheduler=None, gpus=8)
    foreign["spec"]["nodeName"] = moved.pinned_to
    cluster.submit(foreign, namespace=namespace)
    lab.start("default-scheduler")
    pods = wait_until(
        lambda: bound(cluster.pods(namespace, "train"), 2),
        what="train runs whole elsewhere",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    assert moved.pinned_to not in {one.node for one in pods}
    assert {one.uid for one in pods} & {moved.uid, stays.uid} == {stays.uid}, "only that pin was undone"


def test_pods_of_others_are_left_alone_and_the_mark_is_frozen(cluster: Cluster, namespace: str) -> None:
    cluster.submit(pod("foreign", scheduler=None, gpus=1), namespace=namespace)
    foreign = wait_until(lambda: bound(cluster.pods(namespace), 1), what="foreign runs")[0]
    assert foreign.gates == []
    assert LABEL not in foreign.labels
    cluster.submit(job("waits", 9, gpus=8), namespace=namespace)
    waiting = wait_until(lambda: gated(cluster.pods(namespace, "waits")), what="waits is gated")
    for one, change in ((foreign, "muster"), (waiting[0], None)):
        with pytest.raises(Refused, match=f"label {LABEL} decides which job the pod belongs to"):
            cluster.patch(
                f"/api/v1/namespaces/{namespace}/pods/{one.name}", {"metadata": {"labels": {LABEL: change}}}
            )
    with pytest.raises(Refused, match=r"the gate muster\.dev/queue is taken off by Muster"):
        cluster.patch(
            f"/api/v1/namespaces/{namespace}/pods/{waiting[0].name}", {"spec": {"schedulingGates": None}}
        )


def test_in_mode_observe_the_clusters_scheduler_places_pods_of_ours_and_a_release_frees_what_waits(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(job("waits", 8, gpus=8), namespace=namespace)
    runs_whole(cluster, namespace, "waits", 8)
    cluster.submit(job("behind", 2, gpus=8), namespace=namespace)
    wait_until(lambda: len(gated(cluster.pods(namespace, "behind"))) == 2, what="behind waits")
    try:
        lab.upgrade("--set", "mode=observe")
        released = lab.muster("release", "-n", namespace, "job-behind", "--timeout", "1")
        assert "2 pods are still Pending" in released.stderr
        delete_job(cluster, namespace, "waits")
        comes_ungated(cluster)
        cluster.submit(job("later", 2, gpus=1), namespace=namespace)
        for name in ("behind", "later"):
            found = wait_until(
                lambda name=name: bound(cluster.pods(namespace, name), 2),
                what=f"{name} runs without Muster's doing",
                also=lambda: show(cluster.pods(namespace)),
            )
            assert [one.pinned_to for one in found] == ["", ""]
            assert {one.labels[LABEL] for one in found} == {"muster"}
    finally:
        lab.upgrade("--set", "mode=active")


def test_the_webhook_hands_pods_over_too(new_lab: Callable[..., Lab]) -> None:
    """Where the cluster has no MutatingAdmissionPolicy."""
    values = ("binder=cluster", "admission.mode=webhook")
    lab = new_lab(Shape(groups=(NodeGroup(2),), set_values=values))
    cluster = Cluster(lab.kubeconfig)
    cluster.submit(job("train", 2, gpus=8, labels={"app": "x"}))
    pods = runs_whole(cluster, "default", "train", 2)
    for one in pods:
        assert one.pinned_to == one.node
        assert one.raw["spec"]["schedulerName"] == "default-scheduler"
        assert (one.labels[LABEL], one.labels["app"]) == ("muster", "x")
