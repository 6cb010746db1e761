"""Asking an autoscaler for nodes: a ProvisioningRequest and its pod templates, made from what the planner knows.

They are owned by the job's Gang, so that the garbage collector takes them where we can't.
"""

from __future__ import annotations

from typing import Any

from muster.cluster.api import Api, message
from muster.cluster.paths import path
from muster.types import CreateProvisioningRequest, DeleteProvisioningRequest, Shape, Term

GROUP = "autoscaling.x-k8s.io/v1"
REQUESTS, TEMPLATES = (GROUP, "provisioningrequests"), ("v1", "podtemplates")
THERE, GONE = 409, 404


def ask(api: Api, action: CreateProvisioningRequest) -> tuple[int, str]:
    """Templates first: the autoscaler reads them when it sees the request. What is there already is as wanted."""
    made = [(TEMPLATES, template(action, role, shape)) for role, _, shape in action.sets]
    for kind, body in [*made, (REQUESTS, request(action))]:
        status, data = api.request("POST", path(*kind, action.job.namespace), body)
        if not 200 <= status < 300 and status != THERE:
            return status, message(data)
    return 201, ""


def drop(api: Api, action: DeleteProvisioningRequest) -> tuple[int, str]:
    """The request goes first; what is gone is as wanted."""
    named = [(REQUESTS, action.name), *((TEMPLATES, name) for name in action.templates)]
    for kind, name in named:
        status, data = api.request("DELETE", path(*kind, action.job.namespace, name))
        if not 200 <= status < 300 and status != GONE:
            return status, message(data)
    return 200, ""


def request(action: CreateProvisioningRequest) -> dict[str, Any]:
    """The ProvisioningRequest of a job's minimum."""
    return {
        "apiVersion": GROUP,
        "kind": "ProvisioningRequest",
        "metadata": _metadata(action, action.name),
        "spec": {
            "provisioningClassName": action.provisioning_class,
            "podSets": [
                {"podTemplateRef": {"name": f"{action.name}-{role}"}, "count": count}
                for role, count, _ in action.sets
            ],
        },
    }


def template(action: CreateProvisioningRequest, role: str, shape: Shape) -> dict[str, Any]:
    """A PodTemplate that asks of a node what a replica of the role asks."""
    requests = {name: _quantity(name, value) for name, value in shape.requests}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}],
    }  # fmt: skip
    if shape.selector:
        spec["nodeSelector"] = dict(shape.selector)
    if shape.tolerations:
        spec["tolerations"] = [
            {k: v for k, v in t._asdict().items() if v} for t in shape.tolerations
        ]  # field names are those of the API
    if shape.affinity:
        terms = [_term(t) for t in shape.affinity]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": _metadata(action, f"{action.name}-{role}"),
        "template": {"metadata": {}, "spec": spec},
    }


def _term(term: Term) -> dict[str, Any]:
    parts = (("matchExpressions", term.expressions), ("matchFields", term.fields))
    return {
        name: [{"key": r.key, "operator": r.operator, "values": list(r.values)} for r in found]
        for name, found in parts
        if found
    }


def _quantity(resource: str, value: int) -> str:
    return f"{value}m" if resource == "cpu" else str(value)


def _metadata(action: CreateProvisioningRequest, name: str) -> dict[str, Any]:
    owner = {
        "apiVersion": "muster.dev/v1alpha1", "kind": "Gang", "name": action.gang, "uid": action.gang_uid,
    }  # fmt: skip
    return {"name": name, "namespace": action.job.namespace, "ownerReferences": [owner]}
