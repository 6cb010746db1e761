"""GPUs that are not called nvidia.com/gpu: another maker's, MIG devices, each of which counts as one, and what a
configuration lists (deviceResources)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from copy import deepcopy

import httpx
import pytest
import yaml

from e2e.cluster import Cluster, Json
from e2e.elastic import has, reader, settles, shared_by, train
from e2e.lab import Lab
from e2e.scenario import delete_job, in_state, job, on_node, wait_until
from e2e.test_words import metrics, table

pytestmark = pytest.mark.lab

LISTED = "google.com/tpu"
KINDS = ("amd.com/gpu", "nvidia.com/mig-2g.20gb", LISTED)
NODES = ("other-0", "other-1")


@contextlib.contextmanager
def counting(lab: Lab, *resources: str) -> Iterator[None]:
    """Muster is started with these deviceResources, and again without them."""
    before = (lab.folder / "config" / "muster-0.yaml").read_text()

    def started(text: str) -> None:
        lab.write_configuration(text)
        lab.restart("muster-0")

    started(yaml.safe_dump(yaml.safe_load(before) | {"deviceResources": list(resources)}))
    try:
        yield
    finally:
        started(before)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, lab: Lab, cluster: Cluster) -> Iterator[str]:
    """Two nodes with 4 devices of the kind, and none of nvidia.com/gpu."""
    if request.param != LISTED:
        yield from offered(cluster, request.param)
        return
    with counting(lab, "nvidia.com/gpu", LISTED):
        yield from offered(cluster, LISTED)


def offered(cluster: Cluster, kind: str) -> Iterator[str]:
    like = cluster.get("/api/v1/nodes/node-00")
    for name in NODES:
        node: Json = deepcopy(like)
        kept = {k: v for k, v in like["metadata"]["labels"].items() if not k.startswith("nvidia.com/")}
        node["metadata"] = {"name": name, "labels": kept | {"kubernetes.io/hostname": name}}
        for amounts in (node["status"]["allocatable"], node["status"]["capacity"]):
            del amounts["nvidia.com/gpu"]
            amounts[kind] = "4"
        cluster.request("POST", "/api/v1/nodes", node)
    yield kind
    for name in NODES:  # not under its pods: what collects those takes 40 s
        on = f"spec.nodeName={name}"
        wait_until(
            lambda on=on: not cluster.get("/api/v1/pods", fieldSelector=on)["items"], what=f"none {on}"
        )
        cluster.delete(f"/api/v1/nodes/{name}")


def asking(manifest: Json, kind: str, count: int = 1) -> Json:
    """The same job, each replica of which asks for `count` devices of the kind."""
    for amounts in manifest["spec"]["template"]["spec"]["containers"][0]["resources"].values():
        amounts.pop("nvidia.com/gpu", None)
        amounts[kind] = str(count)
    return manifest


def test_a_gang_of_other_devices_is_whole_counted_and_drawn(
    lab: Lab, cluster: Cluster, namespace: str, kind: str
) -> None:
    wait_until(lambda: metrics(lab)["muster_gpus"] == 128 + 8, what="/metrics counts the devices")
    cluster.submit(asking(job("first", 3), kind, 2), namespace=namespace)
    has(cluster, namespace, "first", 3)
    cluster.submit(asking(job("second", 2), kind, 2), namespace=namespace)  # one place of two is free
    wait_until(lambda: in_state(cluster, namespace, "job-second", "Waiting"), what="second waits whole")
    wait_until(lambda: metrics(lab)["muster_gpus_free"] == 128 + 2, what="/metrics counts what is free")
    rows = {row["NAME"]: row for row in table(lab.kubectl("get", "gangs", "-n", namespace))}
    assert [rows["job-first"][name] for name in ("STATE", "REPLICAS", "GPUS")] == ["Running", "3/3", "6"]
    assert [rows["job-second"][name] for name in ("STATE", "REPLICAS", "GPUS")] == ["Waiting", "0/2", "4"]

    def drawn() -> Json:
        token = {"Authorization": f"Bearer {reader(cluster)}"}
        answer = httpx.get(f"{lab.service_url()}/v1/cluster", headers=token, timeout=60, trust_env=False)
        return {node["name"]: node for node in answer.json()["nodes"] if node["name"] in NODES}

    found = wait_until(drawn, what="the picture has the nodes")
    assert [found[name]["gpus"] for name in NODES] == [4, 4]
    slices = sorted(tuple(found[name].get("slices", ())) for name in NODES)
    assert slices == ([(0, 8), (4, 8)] if "mig-2g" in kind else [(), ()])
    assert metrics(lab)["muster_mig_slices_free"] == (4 if "mig-2g" in kind else 0)
    assert sorted(sum(count for _, _, count in found[name]["cells"]) for name in NODES) == [2, 4]
    delete_job(cluster, namespace, "first")
    has(cluster, namespace, "second", 2)
    delete_job(cluster, namespace, "second")


def test_jobs_of_other_devices_share_them(lab: Lab, cluster: Cluster, namespace: str, kind: str) -> None:
    there = on_node(*NODES)
    with shared_by(lab, "max-min"):
        cluster.submit(asking(train("one", most=8, affinity=there), kind), namespace=namespace)
        settles(cluster, namespace, {"one": 8})
        cluster.submit(asking(train("two", most=8, affinity=there), kind), namespace=namespace)
        settles(cluster, namespace, {"one": 4, "two": 4})
        for name in ("one", "two"):
            delete_job(cluster, namespace, name)
