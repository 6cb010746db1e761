"""What is sent for an action: the bodies of its requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from muster.cluster import decode_pods
from muster.core.workload import identity
from muster.types import (
    GATE,
    Expose,
    Owner,
    RecordEvent,
    Ungate,
    WriteGang,
)

FORGET: list[dict[str, Any]] = [{}]
"""metadata.managedFields, as the API takes it for "keep this no longer". Of an object that nobody applies server-side
nobody asks it, and it is 40 % of what the API server does for a patch of ours (measured: 400 patches of each kind in
turn, beside other work), and a good part of the pod's bytes in every watch and in etcd from then on."""


def ungate_patch(action: Ungate) -> bytes:
    """The patch (design §1): our gate off by name, uid and version as preconditions, and the pin.

    The pin is appended to *every* required term, since terms are ORed; the list is atomic, so it is whole.
    Where nobody applies the pod server-side, the API server stops keeping who wrote which of its fields (FORGET).
    """
    spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": GATE}]}
    label, value = action.within
    if action.pin:
        required = ("matchFields", {"key": decode_pods.NAME_FIELD, "operator": "In", "values": [action.node]})
    elif label:
        required = ("matchExpressions", {"key": label, "operator": "In", "values": [value]})
    else:
        required = None
    if required is not None:
        kind, one = required
        terms = json.loads(action.affinity_terms or b"[]")
        for term in terms:
            term[kind] = [*(term.get(kind) or ()), one]
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": terms or [{kind: [one]}]
                }
            }
        }
    metadata: dict[str, Any] = {"uid": action.uid, "resourceVersion": action.version}
    if not action.applied:
        metadata["managedFields"] = FORGET
    notes = {}
    if action.carries:
        notes[identity.PLAN] = msgspec.json.encode(action.carries).decode()
    if action.batch:
        notes[identity.BATCH] = str(action.batch)
    if notes:
        metadata["annotations"] = notes
    return json.dumps({"metadata": metadata, "spec": spec}).encode()


def expose_patch(action: Expose) -> dict[str, Any]:
    """The gate off without a place; the annotation tells the next leader that it was us."""
    return {
        "metadata": {
            "uid": action.uid,
            "resourceVersion": action.version,
            "annotations": {identity.EXPOSED: "true"},
        },
        "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
    }


def gang_object(action: WriteGang) -> dict[str, Any]:
    """A Gang as it is created, with its first status."""
    metadata: dict[str, Any] = {"name": action.gang, "namespace": action.job.namespace}
    spec: dict[str, Any] = {"job": action.job.name, "uid": action.job.uid}
    if action.owner is not None:
        metadata["ownerReferences"] = [_reference(action.owner)]
        spec["owner"] = _reference(action.owner)
    if action.declared_by is not None:
        spec["declaredBy"] = _reference(action.declared_by)
    status = _without_none(action.status)
    return {
        "apiVersion": "muster.dev/v1alpha1", "kind": "Gang", "metadata": metadata, "spec": spec, "status": status,
    }  # fmt: skip


def _without_none(values: Mapping[str, object]) -> dict[str, object]:
    """What a merge patch would remove, a new object does not have."""
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }


def gang_patch(action: WriteGang, part: str = "") -> dict[str, Any]:
    """A Gang's new status as a merge patch: None removes a field.

    Nobody but muster writes a Gang, so who wrote which field is not kept (a subresource does not take that).
    """
    return (
        {"status": action.status}
        if part
        else {"metadata": {"managedFields": FORGET}, "status": action.status}
    )


def _reference(owner: Owner) -> dict[str, str]:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}


def event_object(action: RecordEvent) -> dict[str, Any]:
    """An Event about a pod or an owner."""
    if action.owner is not None:
        about: dict[str, str] = _reference(action.owner)
    else:
        about = {"apiVersion": "v1", "kind": "Pod", "name": action.pod, "uid": action.uid}
    now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about['name'][:200]}.", "namespace": action.job.namespace},
        "involvedObject": about | {"namespace": action.job.namespace},
        "reason": action.reason,
        "message": action.message[:1024],
        "type": "Warning" if action.warning else "Normal",
        "source": {"component": "muster"},
        "reportingComponent": "muster",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
