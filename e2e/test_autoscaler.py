"""Asking for nodes: autoscalers ignore gated pods. The scenario plays the autoscaler: it adds the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from e2e.cluster import Cluster, Json, Refused
from e2e.lab import Lab, NodeGroup, Shape
from e2e.labs import own_lab
from e2e.scenario import (
    bound,
    configured,
    delete_job,
    gang,
    gated,
    job,
    runs_whole,
    show,
    stays,
    wait_until,
)

RUNS_ON_KIND = True
pytestmark = pytest.mark.lab

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = yaml.safe_load((Path(__file__).parent / "crds" / "provisioningrequest.yaml").read_text())
ASK = ("autoscaler.ask=provisioning-request", "autoscaler.after=2s")


@pytest.fixture(scope="module")
def small_lab() -> Iterator[Lab]:
    with own_lab("small", Shape(groups=(NodeGroup(1),), set_values=ASK)) as lab:
        yield lab


@pytest.fixture
def lab(small_lab: Lab) -> Iterator[Lab]:
    yield small_lab
    small_lab.restore()


def add_nodes(cluster: Cluster, *names: str) -> None:
    """What an autoscaler does: more nodes like the first."""
    like = cluster.get("/api/v1/nodes/node-00")
    for name in names:
        node: Json = deepcopy(like)
        node["metadata"] = {
            "name": name,
            "labels": like["metadata"]["labels"] | {"kubernetes.io/hostname": name},
        }
        cluster.request("POST", "/api/v1/nodes", node)


def requests(cluster: Cluster, namespace: str) -> list[Json]:
    try:
        path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{namespace}/provisioningrequests"
        found: list[Json] = cluster.get(path)["items"]
    except Refused:
        return []
    return found


def templates(cluster: Cluster, namespace: str) -> list[Json]:
    found: list[Json] = cluster.get(f"/api/v1/namespaces/{namespace}/podtemplates")["items"]
    return found


def test_a_provisioning_request_is_made_for_the_head_of_the_queue_and_goes_when_it_starts(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.request("POST", DEFINITIONS, CRD)
    wait_until(lambda: cluster.get("/apis/autoscaling.x-k8s.io/v1"), what="ProvisioningRequests are served")
    cluster.submit(job("first", 2, gpus=8), namespace=namespace)
    wait_until(lambda: gated(cluster.pods(namespace, "first")), what="first waits")
    cluster.submit(job("second", 3, gpus=8), namespace=namespace)
    (made,) = wait_until(
        lambda: requests(cluster, namespace),
        what="a ProvisioningRequest",
        also=lambda: lab.log("muster-0").read_text()[-3000:],
    )
    assert made["metadata"]["name"] == "job-first"
    assert made["spec"]["podSets"] == [{"podTemplateRef": {"name": "job-first-worker"}, "count": 2}]
    (template,) = wait_until(lambda: templates(cluster, namespace), what="its PodTemplate")
    asked = template["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert (asked["nvidia.com/gpu"], asked["cpu"], asked["memory"]) == ("8", "1", "1073741824")
    assert len(gated(cluster.pods(namespace, "first"))) == 2
    wait_until(
        lambda: gang(cluster, namespace, "job-first").get("ledger", {}).get("asked"),
        what="the request is known to whoever comes next",
    )
    lab.kill("muster-0")
    lab.start("muster-0")
    add_nodes(cluster, "new-1")
    runs_whole(cluster, namespace, "first", 2)
    wait_until(
        lambda: [r["metadata"]["name"] for r in requests(cluster, namespace)] == ["job-second"],
        what="the request is gone, and the next head has one",
        also=lambda: str(requests(cluster, namespace)),
    )
    wait_until(
        lambda: [t["metadata"]["name"] for t in templates(cluster, namespace)] == ["job-second-worker"],
        what="and so it is with the templates",
        also=lambda: str(templates(cluster, namespace)),
    )
    delete_job(cluster, namespace, "second")
    wait_until(
        lambda: not requests(cluster, namespace) and not templates(cluster, namespace),
        what="a job that is deleted takes its request along",
        also=lambda: str(requests(cluster, namespace)),
    )


def test_ungated_for_an_autoscaler_the_pods_stay_unbound_until_all_of_them_have_a_place(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with configured(lab, autoscaler={"ask": "ungate", "after": "2s"}):
        cluster.submit(job("train", 3, gpus=8), namespace=namespace)
        wait_until(
            lambda: (
                len(
                    [
                        one
                        for one in cluster.pods(namespace, "train")
                        if (one.condition("PodScheduled") or {}).get("reason") == "Unschedulable"
                    ]
                )
                == 3
            ),
            what="an autoscaler sees three unschedulable pods",
            also=lambda: show(cluster.pods(namespace)),
        )
        add_nodes(cluster, "new-2")
        stays(cluster, lambda: not bound(cluster.pods(namespace, "train")), what="two nodes are one too few")
        add_nodes(cluster, "new-3")
        pods = runs_whole(cluster, namespace, "train", 3)
        assert sorted(one.node for one in pods) == ["new-2", "new-3", "node-00"]
        assert not [e for e in cluster.events(namespace) if e["reason"] == "CreatedUngated"]
