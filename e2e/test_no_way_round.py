"""No way round the queue: what tenants write opens nothing, also where no admission stands in their way.

Each object here belongs to a job that has no turn (62 of its 64 pods do not exist), or to nobody whom Muster queues:
none of them may ever be bound, and another tenant's gang starts as if they were not there. With `binder: cluster`
only admission stands in their way: test_binder_hostile.py."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.elastic import shared_by
from e2e.lab import Lab
from e2e.scenario import (
    bound,
    comes_ungated,
    configured,
    delete_job,
    job,
    planned_after,
    pod,
    runs_whole,
    said,
    show,
    wait_until,
)

pytestmark = pytest.mark.lab

SOON = 60.0
"""Seconds in which another tenant's gang starts: a slow machine's, and less than any after which Muster gives up on
what does not start (gang.timeout, 2 min)."""
NO_TURN = {"roles": "worker=64", "job": "sly"}
NODES = ("node-00", "node-01")


def pin(node: str) -> Json:
    """What Muster adds to a pod that it starts, and a DaemonSet's controller to each of its own."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def owned(manifest: Json, api_version: str, kind: str, name: str, uid: str) -> Json:
    """The same, under a controller that never made it."""
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}
    manifest["metadata"]["ownerReferences"] = [owner]
    return manifest


def daemon_set() -> Json:
    labels = {"app": "agent"}
    body = pod("agent", gpus=8, labels=labels, restart="Always")
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": body["metadata"], "spec": body["spec"]},
        },
    }


@pytest.fixture
def unguarded(lab: Lab, cluster: Cluster) -> Iterator[None]:
    """Nobody guards admission: every policy of Muster's is out of force."""
    group = "admissionregistration.k8s.io"
    served = lab.kubectl(
        "api-resources", f"--api-group={group}", "-o", "name"
    )  # Kubernetes 1.34 has a webhook instead
    kinds = (
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
    )
    for kind in (one for one in kinds if f"{one}.{group}" in served):
        lab.kubectl("delete", kind, "-l", "app.kubernetes.io/name=muster", "--ignore-not-found")
    try:
        comes_ungated(cluster)
        wait_until(
            lambda: cluster.submit(daemon_set(), dry_run=True),
            what="the API server refuses nothing any more",
        )
        yield
    finally:
        lab.upgrade(restart=False)
        wait_until(
            lambda: "schedulingGates" in cluster.submit(pod("probe", gpus=1), dry_run=True)[0]["spec"],
            what="the API server gates again",
        )


Attack = Callable[[Cluster, str, Pod], None]


def of_a_daemon_set(cluster: Cluster, namespace: str, _: Pod) -> None:
    cluster.submit(daemon_set(), namespace=namespace)
    wait_until(lambda: len(cluster.pods(namespace)) >= 16, what="a pod for each node")


def with_a_pin(cluster: Cluster, namespace: str, _: Pod) -> None:
    for node in NODES:
        cluster.submit(pod(f"on-{node}", gpus=8, affinity=pin(node), **NO_TURN), namespace=namespace)


def with_a_forged_owner(cluster: Cluster, namespace: str, victim: Pod) -> None:
    """A Job of another namespace, with its true uid: the garbage collector takes such a pod away in its own time."""
    assert victim.owner is not None
    uid, name = victim.owner["uid"], victim.owner["name"]
    for node in NODES:
        forged = owned(pod(f"as-{node}", gpus=8, affinity=pin(node), **NO_TURN), "batch/v1", "Job", name, uid)
        cluster.submit(forged, namespace=namespace)


def that_says_released(cluster: Cluster, namespace: str, _: Pod) -> None:
    notes = {"muster.dev/released": "true"}
    for number in range(2):
        cluster.submit(pod(f"free-{number}", gpus=8, annotations=notes, **NO_TURN), namespace=namespace)


def that_carries_a_plan(cluster: Cluster, namespace: str, _: Pod) -> None:
    for node in NODES:
        sly = pod(f"planned-{node}", gpus=8, affinity=pin(node), **NO_TURN)
        uid = cluster.submit(sly, namespace=namespace)[0]["metadata"]["uid"]
        plan = [{"role": "worker", "node": node, "pod": sly["metadata"]["name"], "uid": uid}]
        cluster.patch(
            f"/api/v1/namespaces/{namespace}/pods/planned-{node}",
            {"metadata": {"annotations": {"muster.dev/plan": json.dumps(plan)}}},
        )


def with_a_forged_gang(cluster: Cluster, namespace: str, _: Pod) -> None:
    sly = pod("forged", gpus=8, affinity=pin(NODES[0]), **NO_TURN)
    uid = cluster.submit(sly, namespace=namespace)[0]["metadata"]["uid"]
    place = {"role": "worker", "node": NODES[0], "pod": "forged", "uid": uid}
    wait_until(lambda: cluster.gangs(namespace).get("sly"), what="the job has its Gang")
    cluster.patch(
        f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/gangs/sly",
        {"status": {"state": "Starting", "submitted": "2020-01-01T00:00:00Z", "placement": [place]}},
    )


def with_strange_names(cluster: Cluster, namespace: str, _: Pod) -> None:
    """What becomes part of a URL where it is read."""
    strange = owned(pod("owned", gpus=8, **NO_TURN), "../healthz", "Training", "x", "no-such-uid")
    cluster.submit(strange, namespace=namespace)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "../../../../../healthz"}}
    with contextlib.suppress(Exception):  # an API server that validates the name says so
        cluster.submit(pod("claims", gpus=8, volumes=[claim], **NO_TURN), namespace=namespace)


ATTACKS: tuple[Attack, ...] = (
    of_a_daemon_set,
    with_a_pin,
    with_a_forged_owner,
    that_says_released,
    that_carries_a_plan,
    with_a_forged_gang,
    with_strange_names,
)


@pytest.mark.parametrize("profile", ["fifo", "max-min", "afs-l"])
@pytest.mark.unsound(
    "forged pins look like Muster's", r"are planned for \d+ of 8 nvidia.com/gpu of node-0[01]"
)
@pytest.mark.usefixtures("unguarded")
def test_without_admission_nothing_is_bound_past_the_queue_and_others_start(
    lab: Lab, cluster: Cluster, new_namespace: Callable[[], str], profile: str
) -> None:
    tenant = new_namespace()
    with shared_by(lab, profile):
        cluster.submit(job("victim", 2, gpus=1), namespace=tenant)
        victim = runs_whole(cluster, tenant, "victim", 2)[0]
        for attack in ATTACKS:
            attacker = new_namespace()
            attack(cluster, attacker, victim)
            name = f"after-{attack.__name__.replace('_', '-')}"
            cluster.submit(job(name, 2, gpus=8), namespace=tenant)
            runs_whole(cluster, tenant, name, 2, within=SOON)
            planned_after(cluster, tenant)
            assert not bound(cluster.pods(attacker)), f"{attack.__name__}: {show(cluster.pods(attacker))}"
            cluster.delete(f"/apis/apps/v1/namespaces/{attacker}/daemonsets", propagationPolicy="Background")
            delete_job(cluster, tenant, name)
        assert len(bound(cluster.pods(tenant, "victim"))) == 2


@pytest.mark.unsound("its creator bound a member by hand, past everybody's scheduler")
@pytest.mark.usefixtures("unguarded")
def test_a_member_that_was_made_with_a_node_brings_none_of_its_job_past_the_queue(
    cluster: Cluster, namespace: str, new_namespace: Callable[[], str]
) -> None:
    """It is on its node, as any pod of any cluster that is made so; it is charged, and the rest has no turn by it."""
    notes = {"kubernetes.io/config.mirror": "x"}
    cluster.submit(
        pod("by-hand", gpus=8, nodeName=NODES[0], annotations=notes, job="sly", roles="worker=2"),
        pod("rest", gpus=8, job="sly", roles="worker=2"),
        namespace=namespace,
    )
    tenant = new_namespace()
    cluster.submit(job("train", 2, gpus=8), namespace=tenant)
    assert NODES[0] not in {one.node for one in runs_whole(cluster, tenant, "train", 2, within=SOON)}
    planned_after(cluster, tenant)
    assert {one.name for one in bound(cluster.pods(namespace))} == {"by-hand"}
    assert "was created with spec.nodeName" in cluster.gangs(namespace)["sly"]["status"]["message"]


@pytest.mark.usefixtures("room")
def test_nobody_farms_a_place_in_the_queue_with_a_job_that_is_not_whole(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str]
) -> None:
    sly = {"gpus": 8, "job": "sly", "roles": "worker=2"}
    tenant = new_namespace()
    cluster.submit(job("running", 2, gpus=8), namespace=tenant)
    runs_whole(cluster, tenant, "running", 2)
    with configured(lab, gang={"incomplete": "2s"}):
        cluster.submit(pod("sly-0", **sly), namespace=namespace)
        wait_until(lambda: cluster.gangs(namespace).get("sly"), what="the first half of it waits")
        cluster.submit(job("patient", 2, gpus=8), namespace=tenant)
        wait_until(
            lambda: [one for one in said(cluster, namespace, "sly-0") if one.startswith("IncompleteTooLong")],
            what="it is told that its place is not kept",
            also=lambda: said(cluster, namespace, "sly-0"),
        )
        cluster.submit(pod("sly-1", **sly), namespace=namespace)
        wait_until(
            lambda: cluster.gangs(namespace)["sly"]["status"]["state"] == "Waiting",
            what="it is whole, and in the queue",
        )
        lab.restart("muster")  # a restart gives no place back
        delete_job(cluster, tenant, "running")
        runs_whole(cluster, tenant, "patient", 2, within=SOON)
        planned_after(cluster, tenant)
        assert not bound(cluster.pods(namespace))


@pytest.mark.usefixtures("unguarded")
def test_in_a_namespace_that_is_not_ours_nothing_counts_after_a_restart_either(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Nobody gates its pods, so what is written on one may stand there from its creation."""
    sly = pod("sly", gpus=8, annotations={"muster.dev/released": "true"})
    cluster.submit(sly, namespace="kube-system")
    try:
        lab.restart("muster")
        cluster.submit(job("train", 2, gpus=8), namespace=namespace)
        runs_whole(cluster, namespace, "train", 2)
        planned_after(cluster, namespace)
        (one,) = [p for p in cluster.pods("kube-system") if p.name == "sly"]
        assert not one.node
        gang = cluster.gangs("kube-system")["pod-sly"]["status"]
        assert gang["state"] == "Invalid"
        assert gang["message"].startswith("namespace kube-system has not opted in to Muster")
    finally:
        cluster.delete("/api/v1/namespaces/kube-system/pods/sly", gracePeriodSeconds="0")
