"""The lab itself: what `make lab` promises."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kubernetes import client, config

from e2e.cluster import Cluster
from e2e.lab import BadRequestError, Lab, NodeGroup, NotReadyError, Shape
from e2e.lab.daemon import recorded
from e2e.lab.places import CHECKOUT, lab_folder
from e2e.scenario import bound, job, pod, show, wait_until

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


# --- with Muster --------------------------------------------------------------------------------------------


def test_a_gang_created_right_after_up_is_gated_planned_and_bound(new_lab: Callable[[Shape], Lab]) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(2),)))
    cluster = Cluster(lab.kubeconfig)
    cluster.submit(job("first", 2, gpus=8))
    wait_until(
        lambda: bound(cluster.pods("default", "first"), 2),
        what="both pods of job first are bound",
        also=lambda: show(cluster.pods("default", "first")),
    )
    # A pod of nobody's goes to the stock scheduler beside.
    cluster.submit(pod("foreign", scheduler=None, gpus=0))
    wait_until(
        lambda: (one := cluster.pod("default", "foreign")) and one.phase == "Running",
        what="the foreign pod runs",
    )


def test_two_replicas_have_host_names_of_their_own_and_one_leads(new_lab: Callable[[Shape], Lab]) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(2),), replicas=2))
    first = lab.leader()
    assert first in (0, 1)
    second = 1 - first
    lab.stop(f"kube-scheduler-{first}")  # a graceful end gives the Lease back at once
    lab.kill(f"muster-{first}")
    wait_until(lambda: lab.leader() == second, what="the other replica holds the Lease")
    cluster = Cluster(lab.kubeconfig)
    cluster.submit(job("second", 2, gpus=8))
    wait_until(
        lambda: bound(cluster.pods("default", "second"), 2),
        what="the other replica's pair starts a gang",
        also=lambda: show(cluster.pods("default", "second")),
    )
