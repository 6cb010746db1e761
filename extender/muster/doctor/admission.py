"""Whether admission is in force: the API server is asked what it would do with pods of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from muster.cluster.api import message
from muster.core.placement.feasibility import takes_part
from muster.core.workload.identity import SCHEDULER
from muster.doctor.finding import Finding, fail, fine, may_not, warn
from muster.doctor.patient import Json, Patient
from muster.errors import ClusterError
from muster.settings import namespaces_of
from muster.types import GATE

WHITELISTED = (
    'add {"key": "muster.dev/scheduler", "operator": "Exists"}, without an effect, to the namespace\'s annotation '
    "scheduler.alpha.kubernetes.io/tolerationsWhitelist, or to the cluster's whitelist (PodTolerationRestriction): "
    "admission gives pods of Muster's that toleration (charts/README.md, binder)"
)
"""Where the API server's plugin PodTolerationRestriction does not let it: it looks at what other admission made of a
pod, and a toleration is let by one of its key whose effect is the same, or none."""


def admission(patient: Patient) -> Iterator[Finding]:
    """A pod of ours gets its gate, and one that would go past the queue is refused: asked of the API server, dry."""
    settings, where = patient.settings, f"namespace {patient.probe}"
    again = (
        f"helm upgrade {patient.release} puts admission back; --probe-namespace asks about another namespace"
    )
    labels = _labels(patient)
    if labels is not None and not takes_part(namespaces_of(settings), patient.probe, labels):
        yield warn(
            "admission",
            f"{where} has not opted in (namespaceSelector), so no pod was tried there",
            "--probe-namespace NAME asks about one that has; `helm test` about hooks.test.namespace",
        )
        return
    if labels is None:
        again = f"if it has opted in, which its labels say and you may not read: {again}"
    status, made = _create(patient, {})
    if status == 403 and "is forbidden: User" in str(made.get("message", "")):
        yield may_not("admission", str(made["message"]))
        return
    if not 200 <= status < 300:
        said = str(made.get("message", status))
        do = WHITELISTED if settings.lets_on and said.endswith("whitelist") else again
        yield fail("admission", f"a pod of Muster's in {where} is refused: {said}", do)
        return
    wrong = _unlike(made, settings.mode, settings.binder, settings.scheduler_name)
    if wrong:
        yield fail(
            "admission", f"a pod with schedulerName: {settings.scheduler_name} in {where} {wrong}", again
        )
        return
    if settings.mode == "observe":
        yield fine("admission", "mode observe: no pod gets a gate, nothing is refused")
        return
    status, _ = _create(patient, {"nodeName": "muster-doctor"})
    if 200 <= status < 300:
        yield fail(
            "admission",
            f"a pod of Muster's in {where} that names its node is let in, past the queue",
            f"{again}; or you are in the break-glass group, which may",
        )
    else:
        yield fine("admission", f"pods in {where} get the gate, and one that names its node is refused")


def _labels(patient: Patient) -> Mapping[str, str] | None:
    """Of the namespace that is asked about, as far as it matters; None where the caller may not read them."""
    if not namespaces_of(patient.settings).by_labels:
        return {}
    try:
        found: Mapping[str, str] = patient.get("v1", "namespaces", patient.probe)["metadata"].get(
            "labels", {}
        )
    except ClusterError as error:
        if error.status in (403, 404):  # that there is none, the pod is told
            return None
        raise
    return found


def _create(patient: Patient, more: Mapping[str, Any]) -> tuple[int, Json]:
    """The API server's answer to a pod of ours, as a dry run."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "muster-doctor"},
        "spec": {
            "schedulerName": patient.settings.scheduler_name,
            "containers": [{"name": "main", "image": "none"}],
            **more,
        },
    }
    where = f"/api/v1/namespaces/{patient.probe}/pods?dryRun=All"
    status, data = patient.api.request("POST", where, body)
    if 200 <= status < 300:
        made: Json = json.loads(data)
        return status, made
    return status, {"message": message(data)}


def _unlike(pod: Json, mode: str, binder: str, scheduler: str) -> str:
    """How the pod is not as admission makes one of ours, "" where it is."""
    gated = GATE in [gate["name"] for gate in pod.get("spec", {}).get("schedulingGates", ())]
    if gated != (mode == "active"):
        return (
            "comes without the gate"
            if mode == "active"
            else "gets the gate in mode observe: it never comes off"
        )
    if binder == "cluster" and (
        pod["metadata"].get("labels", {}).get(SCHEDULER) != scheduler
        or pod["spec"]["schedulerName"] == scheduler
    ):
        return "is not handed to the cluster's scheduler (binder: cluster)"
    return ""
