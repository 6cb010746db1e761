"""What Muster's account has to be allowed: the ClusterRole and Role of the chart, as questions to the API server.

A test compares them with the chart. Owners of kinds that may not be there, what only some settings need, and what
Muster can do without (use of nodes, metrics.k8s.io) are left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from muster.cluster import term
from muster.doctor.patient import Json, Patient, ask
from muster.errors import ClusterError


@dataclass(frozen=True, slots=True)
class Right:
    """verb on resource ("pods/status") of a group; own: of this name only."""

    verb: str
    group: str
    resource: str
    own: str = ""

    def __str__(self) -> str:
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {self.resource}{group}"


EVERYWHERE = tuple(
    Right(verb, group, resource)
    for group, resource, verbs in (
        ("", "pods", "get list watch"),
        ("", "nodes", "list watch"),
        ("batch", "jobs", "list watch"),
        ("apps", "replicasets", "list watch"),
        ("apps", "deployments", "list watch"),
        ("apps", "statefulsets", "list watch"),
        ("", "persistentvolumeclaims", "get"),
        ("", "persistentvolumes", "get"),
        ("", "resourcequotas", "list"),
        ("policy", "poddisruptionbudgets", "list"),
        ("muster.dev", "gangs", "get list watch create patch delete"),
        ("", "events", "create"),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    )
    for verb in verbs.split()
)
ON_PODS = (
    Right("patch", "", "pods"),
    Right("patch", "", "pods/status"),
    Right("create", "", "pods/eviction"),
)
"""Where its pods are: everywhere, or in the namespaces that namespaceSelector names."""
NAME = "kubernetes.io/metadata.name"


def needed(patient: Patient) -> Iterator[tuple[Right, str]]:
    """Each with the namespace, "" = everywhere."""
    for right in EVERYWHERE:
        yield right, ""
    for right in ON_PODS:
        for namespace in named(patient) or [""]:
            yield right, namespace
    lease = patient.settings.leader.lease
    for verb in ("get", "update") if patient.settings.leader.own else ("get",):
        yield Right(verb, "coordination.k8s.io", "leases", lease), patient.namespace
    if patient.settings.devices.enabled:
        for verb in ("create", "delete", "patch"):
            yield Right(verb, "", "pods"), patient.settings.devices.namespace
        for verb, name in (("create", ""), ("get", term.NAME), ("update", term.NAME)):
            yield Right(verb, "", "configmaps", name), patient.settings.devices.namespace


def named(patient: Patient) -> list[str]:
    """The namespaces that namespaceSelector names one by one; none where it selects by labels."""
    chosen = patient.settings.namespace_selector
    for one in chosen.match_expressions:
        if one.key == NAME and one.operator == "In":
            return sorted({*one.values} - {"kube-system", patient.namespace})
    return [chosen.match_labels[NAME]] if NAME in chosen.match_labels else []


def lacking(patient: Patient, account: str) -> list[str]:
    """What the account may not do, "" = the caller's. ClusterError where the caller may not ask about it."""
    user = f"system:serviceaccount:{patient.namespace}:{account}"
    own = not account or _whoami(patient) == user
    kind = "selfsubjectaccessreviews" if own else "subjectaccessreviews"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{patient.namespace}", "system:authenticated"]
    found = []
    for right, namespace in needed(patient):
        resource, _, part = right.resource.partition("/")
        about = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": part}
        about |= {"namespace": namespace, "name": right.own}
        spec: dict[str, object] = {"resourceAttributes": about}
        if not own:
            spec |= {"user": user, "groups": groups}
        told = ask(patient.api, "POST", f"/apis/authorization.k8s.io/v1/{kind}", {"spec": spec})
        if not _status(told).get("allowed"):
            found.append(f"{right}{f' in {namespace}' if namespace else ''}")
    return found


def _whoami(patient: Patient) -> str:
    """The caller, "" where the API server does not tell."""
    try:
        told = ask(patient.api, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    except ClusterError:
        return ""
    return str(_status(told).get("userInfo", {}).get("username", ""))


def _status(told: Json) -> Json:
    found = told.get("status")
    return found if isinstance(found, dict) else {}
