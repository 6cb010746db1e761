"""The chart as GitOps tools apply it: `helm template | kubectl apply -f -`, and again at each sync."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from e2e.cluster import Cluster, Json
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.chart import CHART
from e2e.scenario import bound, gated, in_state, job, wait_until

OWN_LAB = "render the chart without a cluster and put it in the place of the one that helm has installed"
pytestmark = pytest.mark.lab


@pytest.fixture
def applied(new_lab: Callable[..., Lab]) -> tuple[Lab, str]:
    """Two nodes of 8 GPUs and Muster, which kubectl has made of what helm rendered: that."""
    lab = new_lab(Shape(groups=(NodeGroup(2, gpus=8),)))
    manifests = _rendered(lab)
    for name in (
        "kube-scheduler-0",
        "muster-0",
    ):  # the Deployment goes with helm's release, and with it these
        lab.stop(name)
    lab.helm("uninstall", "muster", "--namespace", "muster-system", "--no-hooks")
    made = lab.kubectl("apply", "-f", "-", stdin=manifests)
    there = [line for line in made.splitlines() if not line.endswith(" created")]
    assert there == [
        "customresourcedefinition.apiextensions.k8s.io/gangs.muster.dev configured"
    ]  # helm keeps it
    lab.roll_out()
    return lab, manifests


def test_a_second_apply_changes_nothing_a_gang_runs_on_and_one_that_waits_keeps_its_gates(
    applied: tuple[Lab, str],
) -> None:
    lab, manifests = applied
    cluster = Cluster(lab.kubeconfig)
    cluster.submit(job("runs", 2, gpus=8))
    wait_until(lambda: in_state(cluster, "default", "job-runs", "Running"), what="gang runs is bound")
    cluster.submit(job("waits", 2, gpus=4))
    wait_until(lambda: in_state(cluster, "default", "job-waits", "Waiting"), what="gang waits has its pods")
    pods = {one.uid: (one.node, one.gated) for one in cluster.all_pods()}
    assert sorted(gate for _, gate in pods.values()) == [False, False, True, True]
    objects = _versions(lab, manifests)

    # kubectl says "configured" of policies, whose lists of rules it sends each time; the API server finds no change.
    again = lab.kubectl("apply", "-f", "-", stdin=manifests)

    assert {line.rpartition(" ")[2] for line in again.splitlines()} <= {"unchanged", "configured"}, again
    assert _versions(lab, manifests) == objects
    assert {one.uid: (one.node, one.gated) for one in cluster.all_pods()} == pods
    # Nothing is left of an uninstall's hooks either, which would take off all gates: no Job but the gangs'.
    assert "helm.sh/hook" not in manifests
    found = cluster.get("/apis/batch/v1/jobs")["items"]
    assert {one["metadata"]["name"] for one in found} == {"runs", "waits"}
    # A sync after a change of values, as of any other: only that is changed, and what waits goes on waiting.
    strict = _rendered(lab, "order=strict")
    lab.kubectl("apply", "-f", "-", stdin=strict)
    after = _versions(lab, strict)
    assert {about for about, versions in after.items() if versions != objects[about]} == {
        ("ConfigMap", "muster")
    }
    lab.roll_out()
    assert {one.uid: (one.node, one.gated) for one in cluster.all_pods()} == pods
    assert len(gated(cluster.pods("default", "waits"))) == 2
    lab.kubectl("delete", "job", "runs")
    wait_until(lambda: bound(cluster.pods("default", "waits"), 2), what="the gang that waited starts")


def _rendered(lab: Lab, *settings: str) -> str:
    """The chart with the lab's values by a helm that sees no cluster, told of it what Argo CD tells; with an image,
    without which no hook could be rendered anyhow."""
    values = lab.folder / "config" / "gitops.yaml"
    if not values.exists():
        values.write_text(lab.helm("get", "values", "muster", "-n", "muster-system", "-o", "yaml"))
    version = json.loads(lab.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    served = lab.kubectl("api-versions").split()
    served += ["apps/v1/Deployment", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"]
    return lab.helm(
        *("template", "muster", str(CHART), "--namespace", "muster-system", "--values", str(values)),
        *("--set", "image.repository=registry.example/muster", "--set", "admission.mode=policy"),
        *(f"--api-versions={one}" for one in served),
        *(word for setting in settings for word in ("--set", setting)),
        f"--kube-version={version}",
    )


def _versions(lab: Lab, manifests: str) -> dict[tuple[str, str], tuple[str, int | None]]:
    """resourceVersion and generation of each of these objects, by kind and name."""
    wanted = [one for one in yaml.safe_load_all(manifests) if one]
    found: list[Json] = json.loads(lab.kubectl("get", "-f", "-", "-o", "json", stdin=manifests))["items"]
    assert len(found) == len(wanted) > 10
    return {
        (one["kind"], one["metadata"]["name"]): (
            one["metadata"]["resourceVersion"],
            one["metadata"].get("generation"),
        )
        for one in found
    }
