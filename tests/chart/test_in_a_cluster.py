"""What the chart makes of the cluster that it is installed in: its nodes, its version, what is there already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chart.cluster import NODES, installed
from tests.chart.test_chart import IMAGE

TAINT = {"key": "muster.dev/scheduler", "value": "muster", "effect": "NoSchedule"}


def node(name: str, resource: str, amount: str = "4", *taints: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "8", resource: amount}},
    }


def nodes(*found: dict[str, Any]) -> dict[str, Any]:
    return {NODES: {"kind": "NodeList", "apiVersion": "v1", "items": list(found)}}


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_an_install_on_open_nodes_with_devices_that_count_as_gpus_is_refused(
    resource: str, tmp_path: Path
) -> None:
    there = nodes(node("open", resource), node("kept", resource, "4", TAINT))
    refused = installed(tmp_path, IMAGE, objects=there)
    assert (
        "binder: own needs nodes that other schedulers keep off, and no taint is on open. " in refused.stderr
    )
    for value in ("sharedNodes=true", "binder=cluster"):
        assert installed(tmp_path, IMAGE, value, objects=there).returncode == 0


def test_nodes_that_have_none_or_a_taint_are_no_reason_to_refuse(tmp_path: Path) -> None:
    mig = "nvidia.com/mig-1g.10gb"
    there = nodes(
        node("none", mig, "0"), node("other", "nvidia.com/gpu.shared"), node("kept", mig, "4", TAINT)
    )
    done = installed(tmp_path, IMAGE, objects=there)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("version", "report", "said"),
    [
        ("v1.34.2", "auto", "its container, `muster hold` (devices.report: hold)."),
        ("v1.37.1", "hold", "its container, `muster hold` (devices.report: hold)."),
        ("v1.37.1", "auto", "its status (devices.report: status)."),
        (
            "v1.35.1",
            "status",
            "which this cluster (v1.35.1) writes only with the feature gate ResourceHealthStatus.",
        ),
    ],
)
def test_the_notes_say_who_tells_which_device_a_pod_got(
    version: str, report: str, said: str, tmp_path: Path
) -> None:
    values = (IMAGE, "devices.enabled=true", f"devices.report={report}")
    done = installed(tmp_path, *values, version=version)
    assert said in done.stdout, done.stderr


@pytest.mark.parametrize("version", ["v1.36.0", "v1.37.0"])
def test_the_scheduler_has_the_version_of_the_cluster_that_helm_asks(version: str, tmp_path: Path) -> None:
    done = installed(tmp_path, IMAGE, version=version)
    assert f"image: registry.k8s.io/kube-scheduler:{version}\n" in done.stdout, done.stderr
