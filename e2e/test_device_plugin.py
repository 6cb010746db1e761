"""Devices of a real node by the kubelet's own API: which one a pod got, what becomes of it, who starts again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, Json
from e2e.lab import Lab, Shape
from e2e.lab.devices import HEALTHY, UNHEALTHY, device_ids
from e2e.lab.realnode import GPU, PYTHON, RealNode, why_not
from e2e.labs import own_lab
from e2e.scenario import pod, wait_until

RUNS_ON_KIND = True
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(1200),  # the first start builds kubelet and containerd
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]
PATIENCE = 120.0
SAYS = "import os, time; print(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    with own_lab("devices", Shape(groups=(), chart=False, real=1, real_gpus=2)) as lab:
        yield lab


@pytest.fixture
def cluster(real: Lab) -> Iterator[Cluster]:
    """Afterwards: no pod, and the devices as they were."""
    cluster, node = Cluster(real.kubeconfig), real.real_nodes[0]
    yield cluster
    for one in cluster.pods("default"):
        cluster.delete_pod(one, grace=0)
    wait_until(lambda: not cluster.pods("default"), what="the pods are gone")
    node.devices.write(dict.fromkeys(device_ids(node.name, 2), HEALTHY))
    wait_until(lambda: allocatable(cluster) == "2", within=PATIENCE, what="both devices are healthy again")


def wants_a_device(cluster: Cluster, name: str) -> None:
    made = pod(name, scheduler=None, cpu="10m", memory="64Mi", gpus=1)
    made["spec"]["hostNetwork"] = True
    made["spec"]["containers"][0] |= {"image": PYTHON, "command": ["python", "-c", SAYS]}
    cluster.submit(made)


def allocated(cluster: Cluster, name: str) -> dict[str, str]:
    """Health by id, as the pod's status has it."""
    one = cluster.pod("default", name)
    statuses: list[Json] = one.raw["status"].get("containerStatuses", []) if one is not None else []
    return {
        device["resourceID"]: device["health"]
        for status in statuses
        for resource in status.get("allocatedResourcesStatus", [])
        if resource["name"] == GPU
        for device in resource["resources"]
    }


def allocatable(cluster: Cluster) -> str:
    found: str = cluster.get("/api/v1/nodes/real-0")["status"]["allocatable"][GPU]
    return found


def said(node: RealNode, name: str) -> str:
    files = node.logs.glob(f"default_{name}_*/main/*.log")
    return "".join(file.read_text() for file in files)


def device_of(real: Lab, cluster: Cluster, name: str) -> str:
    """The one device that a pod got: its container says the same as its status."""
    node = real.real_nodes[0]

    def told() -> str:
        found = [one for one in allocated(cluster, name) if one in said(node, name)]
        return found[0] if found else ""

    return wait_until(
        told, within=PATIENCE, what=f"pod {name} has a device", also=lambda: cluster.events("default", name)
    )


def test_a_pod_s_status_says_which_device_it_got_and_how_that_is(real: Lab, cluster: Cluster) -> None:
    node = real.real_nodes[0]
    assert allocatable(cluster) == "2"
    wants_a_device(cluster, "one")
    wants_a_device(cluster, "two")
    first, second = (device_of(real, cluster, name) for name in ("one", "two"))
    assert {first, second} == set(device_ids(node.name, 2))
    assert allocated(cluster, "one") == {first: HEALTHY}
    node.devices.write({**node.devices.read(), first: UNHEALTHY})
    wait_until(
        lambda: (allocated(cluster, "one"), allocatable(cluster)) == ({first: UNHEALTHY}, "1"),
        within=PATIENCE,
        what="its status has its health, and the node one device fewer",
        also=lambda: str(allocated(cluster, "one")),
    )
    assert allocated(cluster, "two") == {second: HEALTHY}
    node.devices.write({**node.devices.read(), first: HEALTHY})
    wait_until(
        lambda: (allocated(cluster, "one"), allocatable(cluster)) == ({first: HEALTHY}, "2"),
        within=PATIENCE,
        what="it is well again",
    )


@pytest.mark.parametrize("who", ["real-0-kubelet", "real-0-devices"])
def test_a_pod_keeps_its_device_while_kubelet_or_plugin_starts_again(
    real: Lab, cluster: Cluster, who: str
) -> None:
    wants_a_device(cluster, "kept")
    device = device_of(real, cluster, "kept")
    real.real_nodes[0].devices.told.unlink()  # what the one before has heard says nothing of the next
    real.kill(who)
    real.start(who)
    real.wait_ready("real-0-devices")  # the kubelet has heard of them
    real.wait_ready("real-0-kubelet")
    wants_a_device(cluster, "next")
    assert device_of(real, cluster, "next") != device
    wait_until(  # while nobody tells, it is unknown
        lambda: allocated(cluster, "kept") == {device: HEALTHY},
        within=PATIENCE,
        what="the one that it keeps is healthy",
        also=lambda: str(allocated(cluster, "kept")),
    )
    one = cluster.pod("default", "kept")
    assert one is not None
    assert one.raw["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_plugin_that_comes_back_with_other_devices_gives_those(real: Lab, cluster: Cluster) -> None:
    node = real.real_nodes[0]
    wants_a_device(cluster, "before")
    device_of(real, cluster, "before")
    real.kill("real-0-devices")
    node.devices.write({"GPU-of-another-driver": HEALTHY})
    real.start("real-0-devices")
    wait_until(lambda: allocatable(cluster) == "1", within=PATIENCE, what="the node has the other device")
    one = cluster.pod("default", "before")
    assert one is not None
    cluster.delete_pod(one, grace=0)
    wait_until(lambda: cluster.pod("default", "before") is None, what="the pod is gone")
    wants_a_device(cluster, "after")
    assert device_of(real, cluster, "after") == "GPU-of-another-driver"
