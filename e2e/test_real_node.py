"""A node of the lab that really runs containers: kubelet, containerd, runc. And that nothing of it is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.kind.lab import not_on_kind
from e2e.lab import BadRequestError, Lab, NodeGroup, Shape, podnet
from e2e.lab.cgroups import hierarchies
from e2e.lab.realnode import GPU, PYTHON, why_not
from e2e.labs import ELSEWHERE, ON_KIND, own_lab
from e2e.scenario import on_node, pod, show, wait_until

RUNS_ON_KIND = True
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(1200),  # the first start builds kubelet and containerd
    pytest.mark.skipif(ELSEWHERE, reason="about the lab, and E2E_KUBECONFIG names another cluster"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]

REAL = Shape(
    groups=(NodeGroup(1),),
    chart=False,
    real=1,
    controller_args=() if ON_KIND else ("--node-monitor-grace-period=12s",),  # one scenario waits for it
)


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    """A fake node and a real one, shared by these scenarios; the stock scheduler."""
    with own_lab("real", REAL) as lab:
        yield lab


@pytest.fixture
def on_real(real: Lab) -> Cluster:
    return Cluster(real.kubeconfig)


def runs(name: str, python: str, **spec: object) -> Json:
    """A pod that runs some Python on a real node."""
    made = pod(name, scheduler=None, cpu="10m", memory="64Mi", node_selector={"type": "real"}, **spec)
    made["spec"]["hostNetwork"] = True
    made["spec"]["containers"][0] |= {"image": PYTHON, "command": ["python", "-c", python]}
    return made


def said(real: Lab, name: str) -> str:
    """What a pod's container has said."""
    files = real.real_nodes[0].logs.glob(f"default_{name}_*/main/*.log")
    return "".join(file.read_text() for file in files)


def ended(cluster: Cluster, real: Lab, name: str) -> Pod:
    def terminal() -> Pod | None:
        one = cluster.pod("default", name)
        return one if one is not None and one.terminal else None

    def shown() -> str:
        return f"{show(cluster.pods('default'))}\n{said(real, name)}\n{cluster.events('default', name)}"

    return wait_until(terminal, within=300, what=f"pod {name} has ended", also=shown)


def readiness(cluster: Cluster) -> dict[str, str]:
    """Status of the condition Ready, by node of these scenarios (kind has another one)."""
    return {
        node["metadata"]["name"]: condition["status"]
        for node in cluster.nodes()
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready" and node["metadata"]["name"] in ("node-00", "real-0")
    }


def phase(cluster: Cluster, name: str) -> str:
    one = cluster.pod("default", name)
    return one.phase if one is not None else ""


# --- before the lab that the others share: kind is one at a time ----------------------------------------------

SERVES = """
import socket
with socket.create_server(("", 7000)) as server:
    while True:
        with server.accept()[0] as asker:
            asker.sendall(asker.getpeername()[0].encode())
"""
ASKS = """
import socket, time
for _ in range(600):
    try:
        with socket.create_connection(("first.peers", 7000), 1) as asked:
            print("seen as", asked.recv(100).decode(), "from", asked.getsockname()[0])
            break
    except OSError:  # it has no address yet, or does not listen
        time.sleep(0.1)
else:
    raise SystemExit("nobody answers")
"""


@pytest.mark.skipif(bool(podnet.why_not()), reason=podnet.why_not() or "-")
def test_pods_of_two_nodes_reach_each_other_by_name_and_by_their_own_addresses() -> None:
    with own_lab("joined", Shape(groups=(), chart=False, real=2, pod_network=True, dns=True)) as lab:
        cluster = Cluster(lab.kubeconfig)
        service = {"clusterIP": "None", "selector": {"app": "peers"}, "publishNotReadyAddresses": True}
        made: list[Json] = [
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"}, "spec": service}
        ]
        for name, program, node in (("first", SERVES, "real-1"), ("second", ASKS, "real-0")):
            one = runs(name, program, affinity=on_node(node))
            one["metadata"]["labels"] = {"app": "peers"}
            one["spec"] |= {"hostNetwork": False, "hostname": name, "subdomain": "peers"}
            made.append(one)
        cluster.submit(*made)
        asker = ended(cluster, lab, "second")
        assert (asker.node, asker.phase) == ("real-0", "Succeeded"), said(lab, "second")
        address = asker.raw["status"]["podIP"]
        assert f"seen as {address} from {address}" in said(lab, "second")
        assert address.startswith("10.88.0.")
        server = cluster.pod("default", "first")
        assert server is not None
        assert server.raw["status"]["podIP"].startswith("10.88.16.")


def test_an_image_for_a_lab_without_real_nodes_is_refused_by_name(lab: Lab) -> None:
    if ON_KIND:
        not_on_kind("a lab that is named by NAME=")
    with pytest.raises(BadRequestError, match=r"has no real node: make lab NAME=\S+ REAL=1"):
        lab.add_image("muster.dev/nobody:1")


# --- on one real node ------------------------------------------------------------------------------------------


def test_a_container_really_runs_with_a_token_of_its_own_and_its_exit_code_is_told(
    real: Lab, on_real: Cluster
) -> None:
    program = "print(open('/token/token').read().count('.'), 'dots'); raise SystemExit(3)"
    body = runs("token", program)
    source = {"serviceAccountToken": {"path": "token", "audience": "muster.dev", "expirationSeconds": 600}}
    body["spec"]["volumes"] = [{"name": "token", "projected": {"sources": [source]}}]
    body["spec"]["containers"][0]["volumeMounts"] = [{"name": "token", "mountPath": "/token"}]
    on_real.submit(body)
    one = ended(on_real, real, "token")
    assert (one.node, one.phase, one.exit_code) == ("real-0", "Failed", 3)
    assert "2 dots" in said(real, "token")


def test_an_annotation_that_comes_with_the_end_of_the_gate_is_in_the_container_s_environment(
    real: Lab, on_real: Cluster
) -> None:
    """How a batch size that is chosen when a pod starts gets into an environment that is fixed when it is made."""
    note = "muster.dev/batch"
    body = runs("reads", "import os; print('batch', os.environ['MUSTER_BATCH'] or 'none')")
    field = {"fieldRef": {"fieldPath": f"metadata.annotations['{note}']"}}
    body["spec"]["containers"][0]["env"] = [{"name": "MUSTER_BATCH", "valueFrom": field}]
    body["spec"]["schedulingGates"] = [{"name": "e2e/held"}]
    (made,) = on_real.submit(body)
    patch = {
        "metadata": {"uid": made["metadata"]["uid"], "annotations": {note: "512"}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": "e2e/held"}]},
    }
    on_real.patch("/api/v1/namespaces/default/pods/reads", patch, "strategic-merge")
    assert ended(on_real, real, "reads").phase == "Succeeded"
    assert "batch 512" in said(real, "reads")


def test_kwok_leaves_the_real_node_alone_and_a_dead_kubelet_is_noticed_and_leaves_its_container_running(
    real: Lab, on_real: Cluster
) -> None:
    on_real.submit(runs("outlives", "import time; print('runs', flush=True); time.sleep(600)", gpus=4))
    on_real.submit(pod("fake", scheduler=None, gpus=8, node_selector={"type": "kwok"}))
    wait_until(lambda: "runs" in said(real, "outlives"), within=300, what="the container runs")
    wait_until(lambda: phase(on_real, "fake") == "Running", what="a pod of the fake node runs by kwok")
    process = max(real.real_nodes[0].cgroup.pids(), key=lambda pid: "time.sleep(600)" in _command(pid))
    real.kill("real-0-kubelet")
    wait_until(
        lambda: readiness(on_real) == {"node-00": "True", "real-0": "Unknown"},
        within=300,
        what="the node without a kubelet is not Ready, and the fake one is",
        also=lambda: str(readiness(on_real)),
    )
    assert process in real.real_nodes[0].cgroup.pids(), "its container runs on"
    real.start("real-0-kubelet")  # ready: Ready, and its GPUs are there again

    def status() -> Json:
        found: Json = on_real.get("/api/v1/nodes/real-0")["status"]
        return found

    wait_until(  # a kubelet that stands still for a moment is not Ready for one
        lambda: readiness(on_real)["real-0"] == "True" and status()["allocatable"][GPU] == "4",
        what="the node is Ready, with its GPUs",
        also=status,
    )
    assert status()["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")
    one = on_real.pod("default", "outlives")
    assert one is not None
    assert one.phase == "Running"
    assert one.raw["status"]["containerStatuses"][0]["restartCount"] == 0
    on_real.delete_pod(one, grace=1)
    wait_until(lambda: on_real.pod("default", "outlives") is None, what="the pod is gone")


def test_nothing_is_left_when_the_lab_ends_in_the_middle() -> None:
    if ON_KIND:
        not_on_kind("the end of a lab")
    lab = Lab(f"e2e-{os.getpid()}-rest")
    try:
        lab.up(Shape(groups=(), chart=False, real=1))
        cluster = Cluster(lab.kubeconfig)
        cluster.submit(runs("left", "import time; print('runs', flush=True); time.sleep(600)", gpus=1))
        wait_until(lambda: "runs" in said(lab, "left"), within=300, what="the container runs")
        inside = {pid: _command(pid) for pid in lab.real_nodes[0].cgroup.pids()}
        assert len(inside) >= 6  # holder, containerd, kubelet, a shim, the sandbox, the container
        lab.stop("real-0-containerd", signal.SIGKILL)
    finally:
        lab.down()
    assert not lab.folder.exists()
    # a number may be somebody else's by now
    assert [command for pid, command in inside.items() if command and _command(pid) == command] == []
    assert [path for root in hierarchies() for path in root.glob(f"*{lab.name}*")] == []
    assert str(lab.folder) not in Path("/proc/self/mountinfo").read_text()


def _command(pid: int) -> str:
    """What a process was started as; "" where there is none any more."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
