"""`binder: own` on nodes with its taint: what the README says starts there, and what it keeps off."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster, Pod
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.places import CHECKOUT
from e2e.operated import jobset, role, run
from e2e.scenario import a_namespace, gang, pod, runs_whole, wait_until

pytestmark = pytest.mark.lab

TAINT = ("muster.dev/scheduler", "muster", "NoSchedule")
TOLERATION = {"key": "muster.dev/scheduler", "operator": "Exists"}


def readme_job() -> dict[str, Any]:
    """The job below "Use", as it stands in the README."""
    [job] = re.findall(
        r"^```yaml\n(.*?)^```$", (CHECKOUT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    found: dict[str, Any] = yaml.safe_load(job)
    return found


def by_name(cluster: Cluster, name: str) -> Pod:
    [found] = [one for one in cluster.pods("default") if one.name == name]
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("admission", ["policy", "webhook"])
def test_the_job_of_the_readme_runs_on_nodes_that_others_are_kept_off(
    new_lab: Callable[..., Lab], admission: str
) -> None:
    groups = (NodeGroup(2, taints=(TAINT,)),)
    lab = new_lab(Shape(groups=groups, set_values=(f"admission.mode={admission}", "sharedNodes=false")))
    cluster = Cluster(lab.kubeconfig)
    manifest = readme_job()
    name = manifest["metadata"]["name"]
    assert "tolerations" not in manifest["spec"]["template"]["spec"]

    cluster.submit(manifest)
    for one in runs_whole(cluster, "default", name, 4):
        assert [t for t in one.raw["spec"]["tolerations"] if t.get("key") == TAINT[0]] == [TOLERATION]

    # Another scheduler's pod is no business of admission: the taint keeps it off.
    cluster.submit(pod("other", scheduler="default-scheduler"))
    wait_until(
        lambda: (
            "untolerated taint"
            in ((by_name(cluster, "other").condition("PodScheduled") or {}).get("message", ""))
        ),
        what="the other scheduler's pod is kept off",
        also=lambda: str(by_name(cluster, "other").raw["status"]),
    )

    # Who says what it tolerates of this taint gets no more, and its Gang names the taint.
    theirs = {"key": TAINT[0], "value": "theirs", "effect": "NoSchedule"}
    cluster.submit(pod("choosy", tolerations=[theirs]))
    sentence = (
        "needs 1 GPU: all 2 nodes that could take it have the taint muster.dev/scheduler=muster:NoSchedule, "
        "which it does not tolerate"
    )
    wait_until(
        lambda: gang(cluster, "default", "pod-choosy").get("message") == sentence,
        what="its Gang names the taint",
        also=lambda: str(cluster.gangs("default")),
    )


def test_a_driver_starts_there_whose_workers_come_later(new_lab: Callable[..., Lab]) -> None:
    """Of roles without pods only the template is known, which says nothing of the taint: admission will."""
    shape = Shape(
        groups=(NodeGroup(2, taints=(TAINT,)),), operators=("jobset",), set_values=("sharedNodes=false",)
    )
    cluster = Cluster(new_lab(shape).kubeconfig)
    in_order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    with a_namespace(cluster, "tainted") as namespace:
        made = jobset("ordered", in_order, driver=role(1, gpus=4), workers=role(2, gpus=4))
        cluster.submit(made, namespace=namespace)
        run(cluster, namespace, {"driver": 1, "workers": 2})
