"""What the chart makes of the cluster that it is installed in: its nodes, its version, what is there already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.cluster import CRD, NODES, installed
from tests.chart.test_chart import IMAGE, Done, Manifest

TAINT = {"key": "muster.dev/scheduler", "value": "muster", "effect": "NoSchedule"}


def node(name: str, resource: str, amount: str = "4", *taints: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "8", resource: amount}},
    }


def manifests(done: Done) -> list[Manifest]:
    """Its hooks and its objects: what stands between the status and the notes."""
    text = done.stdout.partition("HOOKS:")[2].replace("MANIFEST:", "").partition("\nNOTES:")[0]
    return [one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one]


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


def test_without_a_list_of_devices_gpus_of_every_vendor_count(tmp_path: Path) -> None:
    refused = installed(tmp_path, IMAGE, "deviceResources=null", objects=nodes(node("open", "amd.com/gpu")))
    assert "no taint is on open. " in refused.stderr


@pytest.mark.parametrize("taint", ["nvidia.com/gpu", "amd.com/gpu", "google.com/tpu"])
def test_a_taint_by_a_devices_name_keeps_nobody_off_who_asks_for_devices(taint: str, tmp_path: Path) -> None:
    theirs = {"key": taint, "value": "present", "effect": "NoSchedule"}
    there = nodes(node("theirs", taint, "4", theirs), node("kept", "nvidia.com/gpu", "4", TAINT))
    devices = "deviceResources={nvidia.com/gpu,amd.com/gpu,google.com/tpu}"
    refused = installed(tmp_path, IMAGE, devices, objects=there)
    assert f"no taint is on theirs ({taint} is none: pods that ask for GPUs tolerate it). " in refused.stderr
    both = nodes(node("both", taint, "4", theirs, TAINT))
    assert installed(tmp_path, IMAGE, devices, objects=both).returncode == 0
    teams = {
        "key": "team.example/gpu",
        "effect": "NoSchedule",
    }  # no node offers that: nobody's pod tolerates it
    kept = nodes(node("kept", taint, "4", teams))
    assert installed(tmp_path, IMAGE, devices, objects=kept).returncode == 0


def test_where_no_node_has_gpus_the_notes_warn_of_open_nodes_and_nothing_is_refused(tmp_path: Path) -> None:
    """Quickstarts on a laptop go on; both schedulers count the same CPUs, though."""
    warning = "WARNING: no node has GPUs here, and no taint keeps other schedulers off open. "
    there = nodes(node("open", "memory"), node("kept", "memory", "4", TAINT))
    done = installed(tmp_path, IMAGE, objects=there)
    assert warning in done.stdout, done.stderr
    for quiet in ("sharedNodes=true", "binder=cluster"):
        assert "WARNING" not in installed(tmp_path, IMAGE, quiet, objects=there).stdout
    gpus = nodes(node("open", "memory"), node("kept", "nvidia.com/gpu", "4", TAINT))
    assert "WARNING" not in installed(tmp_path, IMAGE, objects=gpus).stdout


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


def definition(**annotations: str) -> dict[str, Any]:
    about = {f"meta.helm.sh/release-{part}": value for part, value in annotations.items()}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    return {
        CRD: {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "gangs.muster.dev", "labels": labels, "annotations": about},
        }
    }


MINE = {"meta.helm.sh/release-name": "muster", "meta.helm.sh/release-namespace": "muster-system"}


@pytest.mark.parametrize("major", [4], indirect=True)
def test_a_definition_that_is_nobodys_is_taken_over_by_a_hook_which_deletes_nothing(tmp_path: Path) -> None:
    done = installed(tmp_path, IMAGE, objects=definition())
    assert done.returncode == 0, done.stderr
    [crd] = [m for m in manifests(done) if m["kind"] == "CustomResourceDefinition"]
    assert crd["metadata"]["annotations"] == MINE | {
        "helm.sh/resource-policy": "keep",
        "helm.sh/hook": "pre-install,pre-upgrade",
        "helm.sh/hook-delete-policy": "hook-failed",  # any but the default
    }


@pytest.mark.parametrize("major", [3], indirect=True)
def test_helm_3_takes_a_definition_that_is_nobodys_where_it_is_told_to(tmp_path: Path) -> None:
    """It creates what a hook has, so a hook is no way; `muster uninstalled` and the docs name the flag."""
    refused = installed(tmp_path, IMAGE, objects=definition())
    assert 'missing key "meta.helm.sh/release-name": must be set to "muster"' in refused.stderr
    done = installed(tmp_path, IMAGE, objects=definition(), flags=["--take-ownership"])
    assert done.returncode == 0, done.stderr
    [crd] = [m for m in manifests(done) if m["kind"] == "CustomResourceDefinition"]
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


@pytest.mark.parametrize("there", [{}, definition(name="muster", namespace="muster-system")])
def test_a_definition_of_its_own_is_one_of_the_releases_objects(
    there: dict[str, Any], tmp_path: Path
) -> None:
    done = installed(tmp_path, IMAGE, objects=there)
    assert done.returncode == 0, done.stderr
    [crd] = [m for m in manifests(done) if m["kind"] == "CustomResourceDefinition"]
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_a_definition_of_another_release_is_left_to_it(tmp_path: Path) -> None:
    done = installed(tmp_path, IMAGE, objects=definition(name="muster", namespace="elsewhere"))
    assert 'release-namespace" must equal "muster-system": current value is "elsewhere"' in done.stderr
