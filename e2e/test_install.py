"""The chart over time: an upgrade from an older one and back, an uninstall, another release after it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import Cluster, Json
from e2e.lab import Lab, LabError, NodeGroup, Shape
from e2e.lab.chart import CHART
from e2e.scenario import comes_ungated, in_state, job, pod, wait_until

pytestmark = pytest.mark.lab

BY_BOTH_HELMS = pytest.mark.parametrize("small", [4, 3], ids=["helm-4", "helm-3"], indirect=True)
MESSAGE = "    - {name: Message, type: string, jsonPath: .status.message}\n"


@pytest.fixture
def small(new_lab: Callable[..., Lab], request: pytest.FixtureRequest) -> Lab:
    """Two nodes of 8 GPUs: a gang of 16 GPUs runs, and one of 8 waits behind it."""
    return new_lab(Shape(groups=(NodeGroup(2, gpus=8),), helm_3=getattr(request, "param", 4) == 3))


def bound(cluster: Cluster, name: str) -> int:
    return sum(1 for one in cluster.pods("default", name) if one.node)


def one_runs_and_one_waits(cluster: Cluster) -> None:
    cluster.submit(job("runs", 2, gpus=8))
    wait_until(lambda: bound(cluster, "runs") == 2, what="gang runs is bound")
    cluster.submit(job("waits", 2, gpus=4))
    wait_until(lambda: len(cluster.pods("default", "waits")) == 2, what="gang waits has its pods")
    assert all(one.gated for one in cluster.pods("default", "waits"))


@BY_BOTH_HELMS
def test_an_upgrade_reaches_crd_configuration_and_policies_and_so_does_a_rollback_and_jobs_are_left_alone(
    small: Lab, tmp_path: Path
) -> None:
    cluster = Cluster(small.kubeconfig)
    assert _helm_that_made(cluster) == ("v3" if small.shape.helm_3 else "v4")
    _install_an_older_chart(small, tmp_path / "muster")
    assert "Message" not in _columns(cluster)
    assert "muster-hold" not in small.kubectl("get", "validatingadmissionpolicies", "-o", "name")
    one_runs_and_one_waits(cluster)
    before = {one.uid: (one.node, one.gated) for one in cluster.all_pods()}

    def reached(*, newer: bool) -> None:
        assert ("Message" in _columns(cluster)) is newer
        config = cluster.get("/api/v1/namespaces/muster-system/configmaps/muster")["data"]["muster.yaml"]
        assert ("order: strict" in config) is newer
        policies = small.kubectl("get", "validatingadmissionpolicies", "-o", "name")
        assert ("muster-hold" in policies) is newer
        assert {one.uid: (one.node, one.gated) for one in cluster.all_pods()} == before

    small.upgrade("--set", "order=strict")
    reached(newer=True)
    small.helm("rollback", "muster", "--namespace", "muster-system")
    small.roll_out()
    reached(newer=False)
    small.upgrade("--set", "order=strict")
    reached(newer=True)
    small.kubectl("delete", "job", "runs")
    wait_until(lambda: bound(cluster, "waits") == 2, what="the gang that waited through the upgrade starts")


@pytest.mark.unsound("what Muster released, kube-scheduler binds as it fits: gangs in part")
def test_an_uninstall_releases_what_waits_and_says_what_stays(small: Lab) -> None:
    cluster = Cluster(small.kubeconfig)
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    wait_until(
        lambda: cluster.get("/api/v1/namespaces/other/serviceaccounts/default"), what="the service account"
    )
    cluster.submit(job("holder", 1, gpus=6))
    wait_until(lambda: bound(cluster, "holder") == 1, what="the holder runs")
    cluster.submit(job("big", 3, gpus=5))
    cluster.submit(pod("alone-0", gpus=1, job="alone", roles="worker=2"), namespace="other")
    wait_until(lambda: in_state(cluster, "default", "job-big", "Waiting"), what="big waits")
    wait_until(lambda: len(cluster.pods("default", "big")) == 3, what="all pods of big are there")
    wait_until(lambda: in_state(cluster, "other", "alone", "Incomplete"), what="alone is Incomplete")

    # The hook is a Job in the cluster; here the lab runs its command, with the hook's service account.
    done = small.hook("release", "--all", "--timeout", "15")
    pods = cluster.all_pods()
    assert [one.name for one in pods if one.gates] == []
    left = [one for one in pods if not one.node]
    assert {one.labels.get("batch.kubernetes.io/job-name") for one in left} == {"big"}
    freed = {f"{one.namespace}/{one.name} released" for one in pods if one.node}
    assert set(done.stdout.splitlines()) == {name for name in freed if "/holder-" not in name}
    assert f"{len(left)} pods are still Pending" in done.stderr
    for one in left:
        assert f"default/{one.name}: " in done.stderr
    assert "Insufficient nvidia.com/gpu" in done.stderr
    assert "delete their owners" in done.stderr
    # new pods are not gated any more, for nobody would take the gate off
    cluster.submit(job("after", 1, gpus=1))
    wait_until(lambda: bound(cluster, "after") == 1, what="a job that comes after the release runs")
    again = small.hook("release", "--all", "--timeout", "1")
    assert (again.returncode, again.stdout) == (0, "")

    small.helm("uninstall", "muster", "--namespace", "muster-system", "--no-hooks")

    assert "gangs.muster.dev" in small.kubectl("get", "crd", "-o", "name"), "the history of jobs is kept"
    kinds = "mutatingadmissionpolicies,validatingadmissionpolicies,mutatingwebhookconfigurations"
    assert "muster" not in small.kubectl("get", kinds, "-o", "name")
    comes_ungated(cluster)
    cluster.submit(job("later", 1, gpus=1))
    wait_until(lambda: len(cluster.pods("default", "later")) == 1, what="a pod created after the uninstall")
    assert cluster.pods("default", "later")[0].gates == []


@BY_BOTH_HELMS
@pytest.mark.unsound("after the uninstall nobody keeps Gangs up to date")
def test_a_release_of_another_name_and_namespace_has_the_definition_and_its_gangs_then(
    small: Lab, tmp_path: Path
) -> None:
    """Its processes are not run here: that is tried where its pods are (test_installed_for_real.py)."""
    cluster = Cluster(small.kubeconfig)
    _install_an_older_chart(small, tmp_path / "muster")
    cluster.submit(job("runs", 2, gpus=8))
    wait_until(lambda: bound(cluster, "runs") == 2, what="gang runs is bound")
    wait_until(lambda: in_state(cluster, "default", "job-runs", "Running"), what="its Gang says so")
    [gang] = cluster.get("/apis/muster.dev/v1alpha1/gangs")["items"]
    for name in ("kube-scheduler-0", "muster-0"):  # the Deployment goes with the release, and with it these
        small.stop(name)
    values = ("--set", "replicas=0", "--set", "sharedNodes=true")
    other = (str(CHART), "--namespace", "elsewhere", "--create-namespace", *values)

    with small.hook_rights("post-delete") as kubeconfig:
        small.helm("uninstall", "muster", "--namespace", "muster-system", "--no-hooks")
        assert "muster-scheduler" in small.kubectl("get", "leases", "-n", "muster-system", "-o", "name")
        with pytest.raises(LabError, match='release-name" must equal "other": current value is "muster"'):
            small.helm("install", "other", *other)
        told = ("uninstalled", "-n", "muster-system", "--release", "muster")
        done = small.muster(*told, kubeconfig=kubeconfig)
        again = small.muster(*told, kubeconfig=kubeconfig)
    assert "any release may have it now" in done.stderr
    assert "Lease muster-system/muster-scheduler deleted" in done.stderr
    assert again.stderr == "gangs.muster.dev is not of release muster-system/muster: left as it is\n"
    assert small.kubectl("get", "leases", "-n", "muster-system", "-o", "name") == ""

    taken = ["--take-ownership"] if small.shape.helm_3 else []
    if taken:
        with pytest.raises(LabError, match='release-name": must be set to "other"'):
            small.helm("install", "other", *other)
    small.helm("install", "other", *other, *taken)

    assert _owner(cluster) == ("elsewhere", "other")
    assert "Message" in _columns(cluster), "as the newer chart has it"
    [kept] = cluster.get("/apis/muster.dev/v1alpha1/gangs")["items"]
    assert (kept["metadata"]["uid"], kept["status"]) == (gang["metadata"]["uid"], gang["status"])
    # From here on it is one of the release's objects, and no hook.
    small.helm("upgrade", "other", *other, "--set", "order=strict")
    assert "kind: CustomResourceDefinition" in small.helm("get", "manifest", "other", "-n", "elsewhere")
    assert _owner(cluster) == ("elsewhere", "other")
    assert "helm.sh/hook" not in _definition(cluster)["metadata"]["annotations"]
    small.helm("uninstall", "other", "--namespace", "elsewhere")
    # It went without hooks, and so kept the name of the release: a third is told to take it.
    assert _owner(cluster) == ("elsewhere", "other")
    small.helm("install", "third", *other, "--take-ownership")
    assert _owner(cluster) == ("elsewhere", "third")
    small.helm("uninstall", "third", "--namespace", "elsewhere")
    assert len(cluster.get("/apis/muster.dev/v1alpha1/gangs")["items"]) == 1


def test_the_api_server_finds_no_mistake_of_type_in_the_charts_policies(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(1, gpus=8),), controller_args=("--controllers=*",)))
    cluster = Cluster(lab.kubeconfig)
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    mistakes = {
        "wrong-about-deployments": ("apps", "v1", "deployments", "object.spec.replicas == 'three'"),
        "wrong-about-gangs": ("muster.dev", "v1alpha1", "gangs", "object.metadata.name == 3"),
    }
    for name, (group, version, resource, expression) in mistakes.items():
        rule = {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": ["CREATE"],
            "resources": [resource],
        }
        wrong = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression}],
            },
        }
        cluster.request("POST", policies, wrong)

    def warnings() -> dict[str, Any]:
        """By policy; None: it is not checked yet."""
        found = cluster.get(policies)["items"]
        return {one["metadata"]["name"]: one.get("status", {}).get("typeChecking") for one in found}

    wait_until(lambda: None not in warnings().values(), what="each policy is checked", also=warnings)
    assert len(warnings()) > len(mistakes)
    assert {name for name, warned in warnings().items() if warned} == set(mistakes)


def _install_an_older_chart(lab: Lab, folder: Path) -> None:
    """As one that has no column Message and no policy `hold` yet, and a Gang's status apart."""
    shutil.copytree(CHART, folder)
    crd = folder / "templates" / "crd.yaml"
    text = crd.read_text()
    assert MESSAGE in text
    assert "subresources" not in text
    columns = "    additionalPrinterColumns:\n"
    crd.write_text(
        text.replace(MESSAGE, "").replace(columns, f"    subresources: {{status: {{}}}}\n{columns}")
    )
    (folder / "templates" / "admission-hold.yaml").unlink()
    values = json.loads(lab.helm("get", "values", "muster", "-n", "muster-system", "-o", "json"))
    (folder / "these.json").write_text(json.dumps(values))
    arguments = ("-n", "muster-system", "--values", str(folder / "these.json"), "--no-hooks")
    lab.helm("upgrade", "muster", str(folder), *arguments)


def _helm_that_made(cluster: Cluster) -> str:
    """ "v4" where the configuration was applied by the server, as Helm 4 asks for it, "v3" else."""
    about = cluster.get("/api/v1/namespaces/muster-system/configmaps/muster")["metadata"]["managedFields"]
    return "v4" if "Apply" in {one["operation"] for one in about} else "v3"


def _definition(cluster: Cluster) -> Json:
    found: Json = cluster.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gangs.muster.dev")
    return found


def _owner(cluster: Cluster) -> tuple[str, str]:
    """Namespace and name of the release whose helm takes it to be."""
    about = _definition(cluster)["metadata"]["annotations"]
    return about["meta.helm.sh/release-namespace"], about["meta.helm.sh/release-name"]


def _columns(cluster: Cluster) -> list[str]:
    versions = _definition(cluster)["spec"]["versions"]
    return [column["name"] for column in versions[0]["additionalPrinterColumns"]]
