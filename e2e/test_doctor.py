"""`muster doctor` on a control plane: a healthy lab, a node that two schedulers use, an installation in ruins."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.kind.lab import KIND
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.chart import CHART
from e2e.lab.errors import LabError
from e2e.lab.places import CHECKOUT
from e2e.scenario import bound, pod, wait_until

OPT_IN = CHECKOUT / "config" / "opt-in.yaml"
pytestmark = pytest.mark.lab


def doctor(lab: Lab, namespace: str = "default") -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and what was found: level and sentence by what it is about."""
    done = lab.muster(
        "doctor", "--json", "--url", lab.service_url(), "--probe-namespace", namespace, check=False
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    told: dict[str, tuple[str, str]] = {}
    for one in found:
        told.setdefault(
            one["about"], (one["level"], one["says"])
        )  # what fails stands before what is a warning
    return done.returncode, told


def levels(found: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {about: level for about, (level, _) in found.items()}


def test_a_healthy_lab_has_untainted_nodes_and_no_fault(lab: Lab, namespace: str) -> None:
    healthy = {
        "kubernetes": "ok",
        "muster": "warn",  # a lab has no Deployment: its programs are processes
        "leader": "ok",
        "admission": "ok",
        "rights": "ok",
        "nodes": "warn",
        "report port": "ok",
        "put aside": "ok",
    }
    if lab.name == KIND:  # it has one, so versions can be read of it
        healthy |= {"muster": "ok", "versions": "ok"}
    found = wait_until(  # what a scenario before has put right may still be under way
        lambda: told if levels(told := doctor(lab, namespace)[1]) == healthy else {},
        what="all is as a healthy lab has it",
        also=lambda: doctor(lab, namespace),
    )
    assert doctor(lab, namespace)[0] == 0
    assert found["nodes"][1].startswith("no taint keeps other schedulers off node-00, node-01, node-02 and")


def test_a_node_whose_gpus_another_scheduler_gave_away_is_a_fault(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(pod("other", gpus=2, scheduler="default-scheduler"), namespace=namespace)
    [other] = wait_until(lambda: bound(cluster.pods(namespace)), what="the other scheduler's pod is bound")
    code, found = doctor(lab, namespace)
    assert code == 1
    assert found["nodes"][0] == "fail"
    assert f"pods of other schedulers hold GPUs on {other.node}: " in found["nodes"][1]


def test_an_install_on_nodes_that_others_may_use_is_refused_unless_it_is_told(lab: Lab) -> None:
    """As helm sees the cluster at an install: `template --dry-run=server` asks it. Under the name of the release that
    is there, whose CRD it would be."""

    def installed(*values: str) -> str:
        given = [
            part
            for value in ("image.repository=registry.example/muster", *values)
            for part in ("--set", value)
        ]
        release = ("muster", str(CHART), "--namespace", "muster-system")
        return lab.helm("template", *release, "--dry-run=server", *given)

    with pytest.raises(LabError, match="no taint is on node-00, node-01, node-02 and 13 more") as refused:
        installed()
    assert "kubectl taint nodes NODE muster.dev/scheduler=muster:NoSchedule" in str(refused.value)
    assert "muster.dev/shared-nodes" in installed("sharedNodes=true")
    installed("binder=cluster")
    for name in lab.nodes:
        lab.kubectl("taint", "nodes", name, "muster.dev/scheduler=muster:NoSchedule")
    installed()


@pytest.mark.timeout(600)
def test_a_namespace_that_has_not_opted_in_is_no_fault(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(1, gpus=8),), values=(str(OPT_IN),)))
    found = wait_until(
        lambda: told if "fail" not in levels(told := doctor(lab)[1]).values() else {},
        what="nothing fails",
        also=lambda: doctor(lab),
    )
    assert found["admission"][0] == "warn"
    assert found["admission"][1].startswith("namespace default has not opted in")
    lab.kubectl("label", "namespace", "default", "muster.dev/enabled=true")
    code, found = doctor(lab)
    assert (code, found["admission"]) == (
        0,
        ("ok", "pods in namespace default get the gate, and one that names its node is refused"),
    )


@pytest.mark.timeout(600)
def test_what_an_installation_has_lost_is_named(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(1, gpus=8),)))
    cluster = Cluster(lab.kubeconfig)
    lab.stop("kube-scheduler-0")
    lab.stop("muster-0")
    missing = {"leader", "admission", "rights", "report port", *(["muster"] if lab.name == KIND else [])}
    admission = "/apis/admissionregistration.k8s.io/v1"
    cluster.delete(f"{admission}/mutatingadmissionpolicybindings/muster-gate")
    cluster.delete(f"{admission}/validatingadmissionpolicybindings/muster-gate")
    cluster.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/muster")
    wait_until(
        lambda: {about for about, (level, _) in doctor(lab)[1].items() if level == "fail"} == missing,
        what="all that is missing is named",
        also=lambda: doctor(lab),
    )
    code, found = doctor(lab)
    assert code == 1
    assert "comes without the gate" in found["admission"][1]
    assert found["rights"][1].startswith("the account muster may not get pods, list pods, watch pods and ")
    assert found["leader"][1].endswith("nothing starts")
