# Over 300 lines: each way to fail is a scenario of a few lines, and all need the same lab.
"""What goes wrong with devices in place, on a real node: whatever ends, no device is used by two, what trains goes
on, and in the end each has what it is to have. `make devices-failing`; CI runs e2e/test_devices_in_place.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster, Pod
from e2e.in_place import (
    ON_A_REAL_NODE,
    VALUES,
    as_they_were,
    forget,
    holders,
    said,
    shared,
    trains,
    trains_on,
    uses,
)
from e2e.lab import Lab, Shape, podnet
from e2e.lab.devices import HEALTHY, UNHEALTHY, device_ids
from e2e.lab.realnode import PAUSE, RealNode
from e2e.scenario import delete_job, gang, pod, show, wait_until

pytestmark = ON_A_REAL_NODE
SLOW = 180.0
DEVICES = 4
LEASE = 30.0
DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
devices = os.environ["CUDA_VISIBLE_DEVICES"]
print("from step 0 on", devices, flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    while True:
        with open(f"/state/daemon-{devices}", "a") as file:
            file.write(f"{time.time()}\\n")
        time.sleep(0.05)
while True:
    print("muster: step=1 total=1000000", flush=True)
    time.sleep(0.1)
"""
"""A training that no signal ends but KILL, and a daemon of it that goes on with its devices and says until when."""


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    lab = Lab(os.environ.get("E2E_LAB", f"e2e-{os.getpid()}-failing"))
    values = (*VALUES, "devices.keep=2s")
    try:
        lab.up(Shape(groups=(), racks=0, real=1, real_gpus=DEVICES, pod_network=True, set_values=values))
        yield lab
    finally:
        if "E2E_LAB" not in os.environ:
            lab.down()


@pytest.fixture
def cluster(real: Lab) -> Iterator[Cluster]:
    """Afterwards: no device was used by two, and there is no job and no holder."""
    cluster, node = Cluster(real.kubeconfig), real.real_nodes[0]
    forget(node)
    yield cluster
    twice = shared(node, "a", "b", "c", "d")
    jobs = [one["metadata"]["name"] for one in cluster.get("/apis/batch/v1/namespaces/default/jobs")["items"]]
    for name in jobs:
        delete_job(cluster, "default", name)
    for one in cluster.pods("default"):
        cluster.delete_pod(one)
    wait_until(lambda: not cluster.pods("default"), within=SLOW, what="no pod is left")
    wait_until(lambda: not holders(cluster), within=SLOW, what="no holder is left")
    assert not twice


def on(real: Lab, cluster: Cluster, **counts: int) -> None:
    """Wait until each job trains on so many devices."""
    node = real.real_nodes[0]
    wait_until(
        lambda: {name: len(trains_on(node, name)) for name in counts} == counts,
        within=SLOW,
        what=f"devices of jobs that train: {counts}",
        also=lambda: shown(cluster, node, *counts),
    )


def shown(cluster: Cluster, node: RealNode, *names: str) -> str:
    texts = [show(cluster.pods("default")), show(holders(cluster))]
    for name in names:
        texts += [str(gang(cluster, "default", f"job-{name}")), said(node, name)[-600:]]
    return "\n".join(texts)


def starts(node: RealNode, name: str) -> list[int]:
    """Devices of each start of a job's training."""
    return [len(use.devices) for use in uses(node, name)]


def evict(cluster: Cluster, one: Pod) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": one.name}}
    cluster.request("POST", f"/api/v1/namespaces/{one.namespace}/pods/{one.name}/eviction", body)


def goes_on(node: RealNode, name: str) -> None:
    before = said(node, name).count("muster: step=")
    wait_until(lambda: said(node, name).count("muster: step=") > before + 20, what=f"{name} goes on")


def agent_of(cluster: Cluster, name: str) -> int:
    """The process that is the first of the container of a job's pod, as this machine knows it."""
    uids = [one.uid for one in cluster.pods("default") if one.name.startswith(f"{name}-")]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            told = (folder / "cmdline").read_bytes().split(b"\0")[:3]
            group = (folder / "cgroup").read_text()
            first = (folder / "status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1] == "1"
            if first and told[1:] == [b"-m", b"muster_report.agent"] and any(uid in group for uid in uids):
                return int(folder.name)
    raise AssertionError(f"no agent of {name} runs")


# ---- holders ----


@pytest.mark.parametrize("how", ["deleted", "evicted"])
def test_the_training_leaves_a_device_whose_holder_goes_and_has_it_again(
    real: Lab, cluster: Cluster, tmp_path: Path, how: str
) -> None:
    node = real.real_nodes[0]
    trains(cluster, "a", "2,4", tmp_path)
    on(real, cluster, a=4)
    first = as_they_were(cluster, "a")
    gone = holders(cluster)[0]
    if how == "deleted":
        cluster.delete_pod(gone)
    else:
        evict(cluster, gone)
    wait_until(lambda: starts(node, "a")[:2] == [4, 2], within=SLOW, what="a goes on with two devices")
    on(real, cluster, a=4)
    assert gone.uid not in {one.uid for one in holders(cluster)}
    assert as_they_were(cluster, "a") == first


def test_the_training_leaves_a_device_that_is_unhealthy_and_has_it_again_when_it_is_well(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    trains(cluster, "a", "2,4", tmp_path)
    on(real, cluster, a=4)
    first, ill = as_they_were(cluster, "a"), device_ids(node.name, DEVICES)[2]
    node.devices.write({**node.devices.read(), ill: UNHEALTHY})
    try:
        on(real, cluster, a=2)
        assert ill not in trains_on(node, "a")
    finally:
        node.devices.write(dict.fromkeys(device_ids(node.name, DEVICES), HEALTHY))
    on(real, cluster, a=4)
    assert as_they_were(cluster, "a") == first


def test_a_pod_that_muster_does_not_see_to_takes_the_last_device_and_gives_it_back(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("a", "c"):
        trains(cluster, name, "1", tmp_path)
    on(real, cluster, a=1, c=1)
    stranger = pod("stranger", scheduler=None, gpus=1, cpu="10m", memory="16Mi")
    stranger["spec"]["containers"][0]["image"] = PAUSE
    cluster.submit(stranger)
    wait_until(lambda: runs(cluster, "stranger"), within=SLOW, what="the stranger has a device")
    trains(cluster, "b", "1,2", tmp_path)
    on(real, cluster, a=1, b=1, c=1)
    one = cluster.pod("default", "stranger")
    assert one is not None
    cluster.delete_pod(one, grace=1)
    on(real, cluster, a=1, b=2, c=1)


def runs(cluster: Cluster, name: str) -> bool:
    one = cluster.pod("default", name)
    return one is not None and one.phase == "Running"


# ---- trainings and their agents ----


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_training_whose_agent_is_killed_goes_on_from_its_checkpoint(
    real: Lab, cluster: Cluster, tmp_path: Path, policy: str
) -> None:
    """In another pod, or in its own again."""
    node = real.real_nodes[0]
    trains(cluster, "a", "2,4", tmp_path, restart=policy)
    on(real, cluster, a=4)
    trains(cluster, "b", "2,4", tmp_path)
    on(real, cluster, a=2, b=2)
    saved = int((tmp_path / "a.json").read_text()[1:].split(",")[0])
    assert saved > 0
    before = len(uses(node, "a"))
    os.kill(agent_of(cluster, "a"), signal.SIGKILL)
    wait_until(
        lambda: len(uses(node, "a")) > before,
        within=SLOW,
        what="a starts again",
        also=lambda: shown(cluster, node, "a", "b"),
    )
    on(real, cluster, a=2, b=2)
    again = [line.split(" on ")[0] for line in said(node, "a").splitlines() if "from step " in line][before]
    assert int(again.split("from step ")[1]) >= saved


def test_what_a_deaf_training_leaves_behind_ends_before_its_device_is_another_s(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    (tmp_path / "deaf.py").write_text(DEAF)
    trains(cluster, "a", "2,4", tmp_path, "--grace", "3", script="/state/deaf.py")
    on(real, cluster, a=4)
    trains(cluster, "b", "2,4", tmp_path)
    on(real, cluster, a=2, b=2)
    (daemon,) = (one for one in tmp_path.glob("daemon-*") if one.name.count("GPU") == 4)
    assert float(daemon.read_text().split()[-1]) < uses(node, "b")[0].first
    delete_job(cluster, "default", "a")
    on(real, cluster, b=4)
    (daemon,) = (one for one in tmp_path.glob("daemon-*") if one.name.count("GPU") == 2)
    assert float(daemon.read_text().split()[-1]) < uses(node, "b")[1].first
    assert starts(node, "a") == [4, 2]


# ---- in the middle of a hand-over ----


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_job_that_is_deleted_in_the_middle_of_a_hand_over_leaves_all_to_the_other(
    real: Lab, cluster: Cluster, tmp_path: Path, who: str
) -> None:
    node = real.real_nodes[0]
    (tmp_path / "deaf.py").write_text(DEAF)
    trains(cluster, "a", "2,4", tmp_path, "--grace", "10", script="/state/deaf.py")
    on(real, cluster, a=4)
    trains(cluster, "b", "2,4", tmp_path)
    wait_until(
        lambda: any(one.phase == "Running" for one in cluster.pods("default", "b")), what="b's agent runs"
    )
    time.sleep(4.0)  # a is asked to end, and takes its time
    assert starts(node, "a") == [4]
    delete_job(cluster, "default", who)
    other = "ab"["ab".index(who) - 1]
    on(real, cluster, **{other: 4})


def test_of_a_job_that_never_gets_ready_nobody_notices(real: Lab, cluster: Cluster, tmp_path: Path) -> None:
    node = real.real_nodes[0]
    trains(cluster, "a", "2,4", tmp_path)
    on(real, cluster, a=4)
    trains(cluster, "b", "2,4", tmp_path, image="registry.invalid/none:1")
    wait_until(
        lambda: any(one.node and not one.terminal for one in cluster.pods("default", "b")),
        within=SLOW,
        what="b's pod is on the node",
    )
    until = time.monotonic() + 15.0
    while time.monotonic() < until:
        goes_on(node, "a")
    assert starts(node, "a") == [4]
    delete_job(cluster, "default", "b")
    wait_until(lambda: not cluster.pods("default", "b"), within=SLOW, what="b is gone")
    goes_on(node, "a")
    assert starts(node, "a") == [4]


def test_two_jobs_give_at_once(real: Lab, cluster: Cluster, tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    for name in names[:2]:
        trains(cluster, name, "1,2,4", tmp_path)
    on(real, cluster, a=2, b=2)
    first = [as_they_were(cluster, name) for name in names[:2]]
    for name in names[2:]:
        trains(cluster, name, "1,2,4", tmp_path)
    on(real, cluster, a=1, b=1, c=1, d=1)
    assert [as_they_were(cluster, name) for name in names[:2]] == first


# ---- the node ----


def test_a_node_is_drained_and_its_jobs_go_on_from_their_checkpoints_when_it_is_back(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    for name in ("a", "b"):
        trains(cluster, name, "2,4", tmp_path)
    on(real, cluster, a=2, b=2)
    real.kubectl("drain", node.name, "--force", "--ignore-daemonsets", "--timeout=120s")
    wait_until(
        lambda: not holders(cluster),
        within=SLOW,
        what="no holder is left",
        also=lambda: show(holders(cluster)),
    )
    before = {name: len(uses(node, name)) for name in ("a", "b")}
    assert not any(one.node and not one.terminal for one in cluster.pods("default"))
    cluster.cordon(node.name, unschedulable=False)
    for name in ("a", "b"):
        wait_until(
            lambda name=name: len(uses(node, name)) > before[name],
            within=SLOW,
            what=f"{name} is back",
            also=lambda: shown(cluster, node, "a", "b"),
        )
    on(real, cluster, a=2, b=2)
    for name in ("a", "b"):
        again = [line for line in said(node, name).splitlines() if "from step " in line][-1]
        assert int(again.split("from step ")[1].split(" ")[0]) > 0


@pytest.mark.parametrize("who", ["kubelet", "devices"])
def test_nothing_happens_to_a_training_while_kubelet_or_device_plugin_start_again(
    real: Lab, cluster: Cluster, tmp_path: Path, who: str
) -> None:
    node, name = real.real_nodes[0], f"{real.real_nodes[0].name}-{who}"
    trains(cluster, "a", "2,4", tmp_path)
    on(real, cluster, a=4)
    first, held = as_they_were(cluster, "a"), {one.uid for one in holders(cluster)}
    node.devices.told.unlink()
    real.kill(name)
    goes_on(node, "a")
    real.start(name)
    real.wait_ready(f"{node.name}-devices")
    real.wait_ready(f"{node.name}-kubelet")
    goes_on(node, "a")
    assert (starts(node, "a"), as_they_were(cluster, "a")) == ([4], first)
    assert {one.uid for one in holders(cluster)} == held
    trains(cluster, "b", "2,4", tmp_path)
    on(real, cluster, a=2, b=2)


# ---- the network ----


@contextlib.contextmanager
def relay(real: Lab) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Muster's address for one pod alone: while the process stands still, that pod is cut off."""
    first = real.pid(real.real_nodes[0].processes[0])
    pair = f"in:127.0.0.1:18080=in:127.0.0.1:{real.ports['muster-0-service']}"
    enter = ["nsenter", f"--net=/proc/{first}/ns/net", "--"]
    process = subprocess.Popen([*enter, sys.executable, podnet.__file__, "0", pair])
    try:
        yield "http://127.0.0.1:18080", process
    finally:
        process.kill()
        process.wait()


def test_a_job_that_is_cut_off_for_a_moment_goes_on_and_for_longer_than_its_lease_ends_by_itself(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    with relay(real) as (url, process):
        trains(cluster, "a", "2,4", tmp_path, MUSTER_URL=url)
        on(real, cluster, a=4)
        time.sleep(LEASE)  # it is renewed
        process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE / 4)
        process.send_signal(signal.SIGCONT)
        time.sleep(LEASE)
        assert starts(node, "a") == [4]
        process.send_signal(signal.SIGSTOP)
        trains(cluster, "b", "2,4", tmp_path)
        on(real, cluster, b=2)
        ended, began = uses(node, "a")[-1].last, uses(node, "b")[0].first
        assert began > ended
        assert "the training is stopped before its lease ends" in said(node, "a")
        process.send_signal(signal.SIGCONT)
        on(real, cluster, a=2, b=2)
