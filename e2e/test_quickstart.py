"""config/quickstart.md on a lab, which has the chart already; on kind from its first block on: kind/quickstart.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster import GPU, Cluster
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.places import CHECKOUT
from e2e.quickstart_page import Shell, blocks

OWN_LAB = "are the quickstart, which installs Muster"
pytestmark = pytest.mark.lab

OPT_IN = CHECKOUT / "config" / "opt-in.yaml"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("settings", "gpus"),
    [((), 4), (("binder=cluster",), 0)],
    ids=["as-by-make-lab", "as-on-a-cluster-without-gpus"],
)
def test_the_quickstart_runs_as_it_stands(
    new_lab: Callable[..., Lab],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: tuple[str, ...],
    gpus: int,
) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(1, gpus=gpus),), values=(str(OPT_IN),), set_values=settings))
    shell = Shell(tmp_path, lab.kubeconfig)
    (node,) = lab.nodes
    monkeypatch.setenv("NODE", node)
    ran = 0
    for block in blocks():
        if block.run == "render":
            assert "--wait" in block.text
            rendered = shell.run(block.text.replace("--wait", "--dry-run=server"))
            assert "schedules pods with schedulerName: muster (mode active" in rendered
        if block.run and (block.run != "node" or gpus):
            continue
        if "helm uninstall" in block.text:  # the Deployment goes with the release, and with it these
            for name in {"kube-scheduler-0", "muster-0"} & set(lab.processes):
                lab.stop(name)
        shell.do(block)
        if "helm upgrade" in block.text:
            lab.roll_out()
        ran += 1
    assert ran > (10 if gpus else 12), "the page has its blocks"
    has = Cluster(lab.kubeconfig).get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
    assert has.get(GPU) == (str(gpus) if gpus else None)
    assert "muster-gate" not in lab.kubectl("get", "validatingadmissionpolicies", "-o", "name")
