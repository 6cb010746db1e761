# Over 300 lines: the lab's promises, each tried on a lab of its own.
"""The lab itself: what `make lab` promises, and that its pods end as a kubelet ends them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kubernetes import client, config

from e2e.cluster import Cluster, Json, Pod
from e2e.lab import BadRequestError, Lab, NodeGroup, NotReadyError, Shape
from e2e.lab.daemon import Daemon, recorded
from e2e.lab.places import CHECKOUT, lab_folder
from e2e.lab.shape import groups_from_file, nodes
from e2e.scenario import bound, delete_job, job, pod, show, stateful_set, wait_until

OWN_LAB = "are about the lab itself"
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif("E2E_KUBECONFIG" in os.environ, reason="about the lab, and this is another cluster"),
]

PLAIN = Shape(groups=(NodeGroup(2),), chart=False)
STOCK = "default-scheduler"


@pytest.fixture(scope="module")
def shared() -> Iterator[Lab]:
    lab = Lab(f"e2e-{os.getpid()}-plain")
    try:
        yield lab.up(PLAIN)
    finally:
        lab.down()


@pytest.fixture
def plain(shared: Lab) -> Iterator[Lab]:
    """Two nodes and the stock scheduler, for the scenarios that only look; what has ended by itself (a Lease that
    was renewed too late) runs again for the next one."""
    yield shared
    shared.restore()


def make(*arguments: str, pipe: str = "") -> subprocess.CompletedProcess[str]:
    """Plain make in the checkout, as a person types it; TimeoutExpired shows a daemon that holds our pipe."""
    line = " ".join(("make", "-f", "e2e/lab.mk", *arguments, pipe))
    return subprocess.run(
        line, shell=True, cwd=CHECKOUT, capture_output=True, text=True, timeout=480, check=False
    )


def mine(suffix: str) -> str:
    return f"e2e-{os.getpid()}-{suffix}"


# --- make lab -----------------------------------------------------------------------------------------------


def test_make_lab_piped_into_tail_returns_and_its_last_line_is_the_export() -> None:
    arguments = (f"NAME={mine('make')}", "NODES=3", "GPUS=4", "CHART=0")
    try:
        piped = make("lab", *arguments, pipe="| tail -1")
        found = re.fullmatch(r"export KUBECONFIG=(/\S+)\n", piped.stdout)
        assert found, piped
        api = client.CoreV1Api(config.new_client_from_config(found[1]))  # type: ignore[no-untyped-call]
        assert [node.to_dict()["status"]["capacity"]["nvidia.com/gpu"] for node in api.list_node().items] == [
            "4"
        ] * 3

        again = make("lab", *arguments)
        assert (again.returncode, again.stdout) == (0, piped.stdout)
        assert "https://127.0.0.1:" in piped.stderr
        other = make("lab", f"NAME={mine('make')}", "NODES=5", "GPUS=4", "CHART=0")
        assert other.stdout == ""
        assert "nodes: has 3, asked for 5" in other.stderr
        assert "Error 2" in other.stderr  # make's own words for our exit code
    finally:
        first = make("lab-down", f"NAME={mine('make')}")
    second = make("lab-down", f"NAME={mine('make')}")
    assert [(done.returncode, done.stdout) for done in (first, second)] == [(0, ""), (0, "")]
    assert not lab_folder(mine("make")).exists()


def test_state_and_binaries_lie_outside_the_checkout(plain: Lab) -> None:
    assert not plain.folder.is_relative_to(CHECKOUT)
    assert all(not Path(each.argv[0]).is_relative_to(CHECKOUT) for each in recorded(plain.folder).values())


def test_every_daemon_has_its_own_session_and_listens_on_loopback_only(plain: Lab) -> None:
    for each in recorded(plain.folder).values():
        assert os.getsid(each.pid) == each.pid
    listening = {
        line.split()[1].split(":")[0]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) in plain.ports.values()
    }
    assert listening == {"0100007F"}


def test_the_same_lab_again_names_what_died_and_starts_it_again(
    plain: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    plain.kill("kwok")
    plain.pause("kube-controller-manager")
    Lab(plain.name).up(PLAIN)
    said = capfd.readouterr().err
    assert "kwok was not running" in said
    assert "kube-controller-manager was paused" in said
    assert [plain.state(name) for name in plain.processes] == ["running"] * 5


def test_two_labs_stand_side_by_side(plain: Lab) -> None:
    other = Lab(mine("beside"))
    try:
        other.up(replace(PLAIN, groups=(NodeGroup(1),)))
        assert set(other.ports.values()).isdisjoint(plain.ports.values())
        assert [len(Cluster(lab.kubeconfig).nodes()) for lab in (plain, other)] == [2, 1]
    finally:
        assert other.down()
    assert plain.ready("kube-apiserver")


def test_a_part_that_does_not_come_up_is_named_with_its_log_and_nothing_is_left_running() -> None:
    lab = Lab(mine("broken"))
    try:
        with pytest.raises(
            NotReadyError, match=r"(?s)kube-apiserver has ended.*unknown flag: --no-such-flag"
        ):
            lab.up(replace(PLAIN, apiserver_args=("--no-such-flag",)))
        assert [each.name for each in recorded(lab.folder).values() if each.alive] == []
        assert lab.log("kube-apiserver").exists()
    finally:
        lab.down()


def test_a_process_can_be_stopped_killed_paused_and_started_with_an_environment(plain: Lab) -> None:
    plain.stop("kwok")
    plain.start("kwok", env={"MUSTER_FAULTS": "none"})
    assert b"MUSTER_FAULTS=none" in Path(f"/proc/{plain.pid('kwok')}/environ").read_bytes()
    plain.pause("kwok")
    assert plain.state("kwok") == "paused"
    plain.resume("kwok")
    plain.kill("kwok")
    assert plain.state("kwok") == "ended"
    plain.restore()
    assert b"MUSTER_FAULTS" not in Path(f"/proc/{plain.pid('kwok')}/environ").read_bytes()
    with pytest.raises(BadRequestError, match="has no process 'muster', it has etcd"):
        plain.kill("muster")


def test_restore_puts_back_nodes_that_a_scenario_changed(plain: Lab) -> None:
    cluster = Cluster(plain.kubeconfig)
    cluster.cordon("node-00")
    cluster.delete("/api/v1/nodes/node-01")
    cluster.submit({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "strange"}})
    plain.restore()
    found = {node["metadata"]["name"]: node["spec"].get("unschedulable", False) for node in cluster.nodes()}
    assert found == {"node-00": False, "node-01": False}


def test_only_the_recorded_process_is_signalled_never_one_that_got_its_pid() -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        remembered = Daemon("etcd", ("sleep",), (), stranger.pid, born=1)
        assert not remembered.alive
        assert not remembered.signal(signal.SIGKILL)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# --- shapes -------------------------------------------------------------------------------------------------


def test_mixed_groups_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shape.yaml"
    file.write_text(
        "- {count: 1, gpus: 8, product: NVIDIA-H100-80GB-HBM3, taints: [{key: big, effect: NoSchedule}]}\n"
        "- {count: 1, gpus: 0, labels: {pool: cpu}}\n"
    )
    big, small = nodes(Shape(groups=groups_from_file(file), racks=2))
    assert (big.name, big.labels["nvidia.com/gpu.product"]) == ("node-00", "NVIDIA-H100-80GB-HBM3")
    assert big.manifest("")["spec"]["taints"] == [{"key": "big", "value": "", "effect": "NoSchedule"}]
    assert (small.labels["pool"], small.labels["topology.kubernetes.io/rack"]) == ("cpu", "rack-1")
    assert "nvidia.com/gpu" not in small.manifest("")["status"]["capacity"]


def test_a_shape_file_with_an_unknown_field_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "shape.yaml"
    file.write_text("- {count: 1, gpu: 8}\n")
    with pytest.raises(BadRequestError, match=r"group 0 needs `count` and may have count, gpus, labels"):
        groups_from_file(file)


def test_a_shape_survives_its_file_and_says_what_differs() -> None:
    shape = Shape(groups=(NodeGroup(2, labels=(("a", "b"),)),), feature_gates=("X=true",))
    assert Shape.from_json(shape.to_json()) == shape
    assert shape.differences(replace(shape, replicas=2)) == ["replicas: has 1, asked for 2"]


def test_an_operator_that_no_lab_can_run_is_refused_by_name() -> None:
    with pytest.raises(
        BadRequestError,
        match=r"^OPERATORS=slurm: this lab can run jobset, jobset@v0\.10\.1, trainer, lws, kuberay, "
        r"training-operator, kueue, kueue@v0\.14\.8, metrics-server, volcano$",
    ):
        Shape(operators=("jobset", "slurm"))
    with pytest.raises(
        BadRequestError, match=r"^OPERATORS=trainer: it makes objects of jobset: OPERATORS=jobset,trainer$"
    ):
        Shape(operators=("trainer",))
    with pytest.raises(BadRequestError, match=r"^OPERATORS=jobset,jobset@v0\.10\.1: jobset is there twice$"):
        Shape(operators=("jobset", "jobset@v0.10.1"))
    refused = make("lab", f"NAME={mine('refused')}", "OPERATORS=slurm")
    assert (refused.stdout, "this lab can run jobset" in refused.stderr) == ("", True)
    assert not lab_folder(mine("refused")).exists()


# --- pods end as a kubelet ends them ------------------------------------------------------------------------


def submit(lab: Lab, *manifests: Json) -> Cluster:
    cluster = Cluster(lab.kubeconfig)
    cluster.submit(*manifests)
    return cluster


def test_the_stock_scheduler_binds_and_the_pod_runs(plain: Lab) -> None:
    cluster = submit(plain, pod("runs", scheduler=None, gpus=8))
    one = wait_until(lambda: running(cluster, "runs"), what="pod runs is Running")
    assert one.raw["status"]["podIP"]
    ready = one.condition("Ready")
    assert ready is not None
    assert ready["status"] == "True"
    cluster.delete_pod(one)
    wait_until(lambda: cluster.pod("default", "runs") is None, what="pod runs is gone")


def test_a_deleted_member_is_failed_first_and_its_job_counts_it(plain: Lab) -> None:
    cluster = submit(plain, job("counted", 2, scheduler=None, gpus=0, backoff_limit=4))
    members = wait_until(lambda: bound(cluster.pods("default", "counted"), 2), what="both members run")
    wait_until(lambda: running(cluster, members[0].name), what="the first runs")
    cluster.delete_pod(members[0])

    status = wait_until(
        lambda: counted(cluster, "counted"),
        what="the Job controller counts the deleted pod as failed",
        also=lambda: show(cluster.pods("default", "counted")),
    )
    assert status["failed"] == 1
    # The Job controller has taken its finalizer off by itself: the pod is gone, and its replacement waits the
    # back-off that a stage which strips finalizers would hide.
    wait_until(lambda: cluster.pod("default", members[0].name) is None, what="the deleted pod is gone")
    wait_until(lambda: bound(cluster.pods("default", "counted"), 2), what="the replacement runs (10 s)")
    delete_job(cluster, "default", "counted")


def test_a_deleted_pod_shows_a_terminal_phase_with_its_exit_code_before_it_goes(plain: Lab) -> None:
    held = pod("held", scheduler=None, gpus=0)
    held["metadata"]["finalizers"] = ["e2e.muster.dev/hold"]
    zero = pod("zero", scheduler=None, gpus=0, exit_on_term=0)
    zero["metadata"]["finalizers"] = ["e2e.muster.dev/hold"]
    cluster = submit(plain, held, zero)
    held_to_its_end(cluster, "held", "Failed", 143)
    held_to_its_end(cluster, "zero", "Succeeded", 0)


def held_to_its_end(cluster: Cluster, name: str, phase: str, code: int) -> None:
    cluster.delete_pod(wait_until(lambda: running(cluster, name), what=f"{name} runs"))
    ended = wait_until(lambda: terminal(cluster, name), what=f"{name} has a terminal phase")
    assert (ended.phase, ended.exit_code) == (phase, code)
    # Somebody else's finalizer stays, and with it the object.
    wait_until(lambda: graceless(cluster, name), what=f"{name} was deleted by its node")
    cluster.patch(f"/api/v1/namespaces/default/pods/{name}", {"metadata": {"finalizers": None}})
    wait_until(lambda: cluster.pod("default", name) is None, what=f"{name} is gone")


def test_a_pod_ends_by_itself_after_its_run_seconds_with_its_exit_code(plain: Lab) -> None:
    cluster = submit(
        plain,
        pod("ends", scheduler=None, gpus=0, run_seconds=1),
        pod("fails", scheduler=None, gpus=0, run_seconds=1, exit_code=3),
    )
    ends = wait_until(lambda: terminal(cluster, "ends"), what="pod ends has ended")
    fails = wait_until(lambda: terminal(cluster, "fails"), what="pod fails has ended")
    assert (ends.phase, ends.exit_code, fails.phase, fails.exit_code) == ("Succeeded", 0, "Failed", 3)
    for each in (ends, fails):
        cluster.delete_pod(each)


def test_a_member_of_a_statefulset_comes_back_under_its_name(plain: Lab) -> None:
    cluster = submit(plain, stateful_set("named", 1, scheduler=None, gpus=0))
    first = wait_until(lambda: running(cluster, "named-0"), what="named-0 runs")
    cluster.delete_pod(first)
    wait_until(
        lambda: (again := running(cluster, "named-0")) is not None and again.uid != first.uid,
        what="named-0 runs again, as another pod",
    )
    cluster.delete("/apis/apps/v1/namespaces/default/statefulsets/named")


def running(cluster: Cluster, name: str) -> Pod | None:
    one = cluster.pod("default", name)
    return one if one is not None and one.phase == "Running" else None


def terminal(cluster: Cluster, name: str) -> Pod | None:
    one = cluster.pod("default", name)
    return one if one is not None and one.terminal else None


def graceless(cluster: Cluster, name: str) -> bool:
    one = cluster.pod("default", name)
    return one is not None and one.raw["metadata"].get("deletionGracePeriodSeconds") == 0


def counted(cluster: Cluster, name: str) -> Json | None:
    status: Json = cluster.get(f"/apis/batch/v1/namespaces/default/jobs/{name}")["status"]
    return status if status.get("failed") else None


# --- with Muster --------------------------------------------------------------------------------------------


def test_a_gang_created_right_after_up_is_gated_planned_and_bound(new_lab: Callable[[Shape], Lab]) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(2),)))
    cluster = submit(lab, job("first", 2, gpus=8))
    wait_until(
        lambda: bound(cluster.pods("default", "first"), 2),
        what="both pods of job first are bound",
        also=lambda: show(cluster.pods("default", "first")),
    )
    # A pod of nobody's goes to the stock scheduler beside.
    cluster.submit(pod("foreign", scheduler=None, gpus=0))
    wait_until(lambda: running(cluster, "foreign"), what="the foreign pod runs")


def test_two_replicas_have_host_names_of_their_own_and_one_leads(new_lab: Callable[[Shape], Lab]) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(2),), replicas=2))
    first = lab.leader()
    assert first in (0, 1)
    second = 1 - first
    lab.stop(f"kube-scheduler-{first}")  # a graceful end gives the Lease back at once
    lab.kill(f"muster-{first}")
    wait_until(lambda: lab.leader() == second, what="the other replica holds the Lease")
    cluster = submit(lab, job("second", 2, gpus=8))
    wait_until(
        lambda: bound(cluster.pods("default", "second"), 2),
        what="the other replica's pair starts a gang",
        also=lambda: show(cluster.pods("default", "second")),
    )
