"""What Muster's own accounts can't do, whoever should get hold of their tokens: RBAC, and the policy `muster-own`."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cluster import Cluster, Refused
from e2e.lab import Lab
from e2e.lab.chart import ACCOUNT
from e2e.test_admission import BREAK_GLASS, GATE, HOOKS, MUSTER, Kubectl, kubectl, pod

__all__ = ["kubectl"]

HELD = [{"name": "example.com/held"}]
FOREIGN = {"metadata": {"annotations": {"team.example/owner": "me"}}}
PREFERRED = {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
TRUSTED = {"muster": (MUSTER, ()), "break-glass": ("someone", (BREAK_GLASS,))}


@pytest.fixture(params=sorted(TRUSTED))
def trusted(request: pytest.FixtureRequest, kubectl: Kubectl) -> Kubectl:
    """kubectl as Muster's account, and as a member of the break-glass group."""
    user, groups = TRUSTED[request.param]
    return kubectl.as_(user, *groups)


@pytest.fixture
def a_pod(kubectl: Kubectl) -> dict[str, Any]:
    return kubectl.create(pod(annotations={"team.example/kept": "yes"}))


REFUSED: dict[str, tuple[Any, str]] = {
    "an image": ({"spec": {"containers": [{"name": "worker", "image": "mine"}]}}, "changes no image"),
    "a toleration": (
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
        "and no other field of its spec",
    ),
    "a deadline": ({"spec": {"activeDeadlineSeconds": 5}}, "and no other field of its spec"),
    "a node selector": ({"spec": {"nodeSelector": {"a": "b"}}}, "and no other field of its spec"),
    "a foreign gate": (
        {"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/held"}]}},
        "and no other field of its spec",
    ),
    "a foreign annotation": (FOREIGN, "writes annotations muster.dev/... only, not team.example/owner"),
    "a foreign annotation beside a note": (
        {"metadata": {"annotations": {"muster.dev/released": "true", "team.example/owner": "me"}}},
        "writes annotations muster.dev/... only, not team.example/owner",
    ),
    "its annotation taken off": (
        {"metadata": {"annotations": {"team.example/kept": None}}},
        "writes annotations muster.dev/... only, not team.example/kept",
    ),
    "a gate and an image": (
        {
            "spec": {
                "schedulingGates": [{"$patch": "delete", "name": GATE}],
                "containers": [{"name": "worker", "image": "mine"}],
            }
        },
        "changes no image",
    ),
    "a place that it prefers": (
        {
            "spec": {
                "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERRED]}}
            }
        },
        "and no other field of its spec",
    ),
    "a label": ({"metadata": {"labels": {"muster.dev/job": "other"}}}, "changes no label"),
    "a finalizer": ({"metadata": {"finalizers": ["example.com/stay"]}}, "changes no label"),
    "an owner": (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}},
        "changes no label",
    ),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
@pytest.mark.usefixtures("a_pod")
def test_of_a_pod_of_ours_it_changes_only_what_it_is_for(trusted: Kubectl, what: str) -> None:
    body, said = REFUSED[what]
    answer = trusted.patch("worker-0", body, "json" if isinstance(body, list) else "strategic")
    assert not answer.ok
    assert said in answer.said


@pytest.mark.usefixtures("a_pod")
def test_its_gate_its_pin_its_notes_and_the_job_controllers_finalizer_it_does_change(
    trusted: Kubectl,
) -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    body = {
        "metadata": {
            "annotations": {"muster.dev/released": "true"},
            "finalizers": ["batch.kubernetes.io/job-tracking"],
        },
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": GATE}],
            "affinity": {"nodeAffinity": required},
        },
    }
    found = trusted.patch("worker-0", body).json()
    assert found["spec"]["schedulingGates"] == HELD
    assert found["spec"]["affinity"]["nodeAffinity"] == required
    assert found["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    off = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["batch.kubernetes.io/job-tracking"]}}
    assert trusted.patch("worker-0", off).ok


def test_a_foreign_pod_it_does_not_change_at_all(kubectl: Kubectl, trusted: Kubectl) -> None:
    kubectl.create(pod("theirs", schedulerName="somebody"))
    for body in (
        {"metadata": {"annotations": {"muster.dev/released": "true"}}},
        {"spec": {"schedulingGates": None}},
    ):
        answer = trusted.patch("theirs", body)
        assert not answer.ok
        assert (
            "changes pods that are Muster's only: pod theirs is not one of schedulerName muster"
            in answer.said
        )


def test_of_a_status_it_writes_the_nominated_node_only(lab: Lab, kubectl: Kubectl) -> None:
    kubectl.create(pod())
    muster = Cluster(lab.folder / "kubeconfig" / ACCOUNT)
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/worker-0/status"
    with pytest.raises(Refused, match=r"writes status.nominatedNodeName, and no other field"):
        muster.patch(path, {"status": {"phase": "Succeeded"}})
    found = muster.patch(path, {"status": {"nominatedNodeName": "node-0"}})
    assert found["status"]["nominatedNodeName"] == "node-0"


def test_break_glass_takes_what_gates_new_pods_out_of_force_and_no_other_policy(kubectl: Kubectl) -> None:
    someone = kubectl.as_("someone", BREAK_GLASS)
    kinds = ("mutatingadmissionpolicybinding", "validatingadmissionpolicybinding")
    for kind in kinds:
        assert someone("delete", kind, "muster-gate", "--dry-run=server").ok, kind
        assert not kubectl.as_("anybody")("delete", kind, "muster-gate", "--dry-run=server").ok
    answer = someone("delete", kinds[1], "muster-hold", "--dry-run=server")
    assert not answer.ok
    assert "forbidden" in answer.said


def test_outside_of_a_hook_the_hooks_account_may_nothing(lab: Lab, kubectl: Kubectl) -> None:
    kubectl.create(pod())
    hook = kubectl.as_(HOOKS)
    assert not hook.patch("worker-0", {"metadata": {"annotations": {"muster.dev/released": "true"}}}).ok
    with lab.hook_rights():
        assert hook("auth", "can-i", "patch", "pods").out.strip() == "yes"
    assert hook("auth", "can-i", "patch", "pods").out.strip() == "no"
