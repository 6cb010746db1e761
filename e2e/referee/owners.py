"""How many replicas an owner wants by role, kind by kind, and whether it is over. Unknown kinds want nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from e2e.cluster import Json
from e2e.referee.objects import NATIVE_APIS, OURS, ROLE_LABELS, Reference, controller

OVER = frozenset(
    (
        "Complete",
        "Completed",
        "Failed",
        "Succeeded",
        "Finished",
        "SuccessCriteriaMet",
        "FailureTarget",
        "Suspended",
    )
)
"""Conditions after which an owner ends its pods by itself, or has."""


LATE = "WaitForWorkersReady"
"""The launcherCreationPolicy of an MPIJob whose launcher comes last."""
VOLCANO = "Volcano Job"
"""What we call Volcano's Job, to tell it from Kubernetes'."""
VOLCANO_OVER = frozenset(
    ("Aborting", "Aborted", "Completing", "Completed", "Failed", "Terminating", "Terminated")
)


@dataclass(frozen=True)
class OwnerSeen:
    """One owner. sizes: replicas by role of what our scheduler is asked for; None: says nothing (its children may).
    own: pods of its own at the most, roles or not (Job, ReplicaSet, StatefulSet), else None.
    group: of a LeaderWorkerSet the pods of one group, the gang, that our scheduler is asked for, else None.
    ordered: it makes some pods only once others run. failed: pods that it counts as failed: it may be backing
    off."""

    uid: str
    kind: str
    namespace: str
    name: str
    parent: Reference | None
    sizes: Mapping[str, int] | None
    own: int | None
    over: bool
    ordered: bool
    failed: int
    group: int | None = None


def owner(plain: Json) -> OwnerSeen:
    """Decode an owner of any kind. A field of a shape that nobody expects counts as not there."""
    meta, spec, status = plain["metadata"], plain.get("spec") or {}, plain.get("status") or {}
    kind = str(plain["kind"])
    version = plain.get("apiVersion", "batch/v1")  # items of a list of a built-in kind do not say it
    if kind == "Job" and str(version).partition("/")[0] not in NATIVE_APIS:
        kind = VOLCANO
    own, group = _own(kind, spec), None
    try:
        group = _group(spec) if kind == "LeaderWorkerSet" else None
        sizes = _sizes(kind, spec, own)
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ):  # a definition without a schema lets all through
        sizes = None
    conditions = status.get("conditions") or []
    suspended = spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")
    return OwnerSeen(
        uid=meta["uid"],
        kind=kind,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        parent=controller(meta),
        sizes=sizes,
        own=own,
        over="deletionTimestamp" in meta
        or bool(suspended)
        or any(c.get("type") in OVER and c.get("status") == "True" for c in conditions)
        or (kind == VOLCANO and (status.get("state") or {}).get("phase") in VOLCANO_OVER),
        ordered=_ordered(kind, spec),
        failed=int(status.get("failed") or 0) if kind == "Job" else 0,
        group=group,
    )


def _own(kind: str, spec: Mapping[str, Any]) -> int | None:
    if kind == "Job":
        at_once = int(spec.get("parallelism", 1))
        return min(at_once, int(spec.get("completions") or at_once))
    if kind in ("StatefulSet", "ReplicaSet", "Deployment"):
        return int(spec.get("replicas", 1))
    return None


def _sizes(kind: str, spec: Mapping[str, Any], own: int | None) -> dict[str, int] | None:
    if own is not None:
        template = spec.get("template") or {}
        return {_role(template): own} if _is_ours(template) else {}
    if kind == "JobSet":
        return {
            str(part["name"]).lower(): int(part.get("replicas", 1))
            * (_own("Job", part["template"]["spec"]) or 0)
            for part in spec.get("replicatedJobs") or []
            if _is_ours(part["template"]["spec"]["template"])
        }
    if kind == "RayCluster":
        return _ray(spec)
    if kind == "LeaderWorkerSet":
        # Of workers alone nobody but their leaders knows whose they are.
        leads = _is_ours(_leader(spec["leaderWorkerTemplate"]))
        return {"worker": int(spec.get("replicas", 1)) * _group(spec)} if leads else None
    if kind == VOLCANO:
        return {
            str(task["name"]).lower(): int(task.get("replicas", 1))
            for task in spec.get("tasks") or []
            if _is_ours(task.get("template") or {})
        }
    groups = [
        value for name, value in spec.items() if name.endswith("ReplicaSpecs") and isinstance(value, dict)
    ]
    if groups:  # Kubeflow's training operator: pytorchReplicaSpecs, tfReplicaSpecs, mpiReplicaSpecs, ...
        return {
            role.lower(): int(part.get("replicas", 1))
            for role, part in groups[0].items()
            if _is_ours(part.get("template") or {})
        }
    return None


def _group(spec: Mapping[str, Any]) -> int:
    """Of one group of a LeaderWorkerSet, the pods that are ours; of a template that says so nowhere, all."""
    group = spec["leaderWorkerTemplate"]
    size = int(group.get("size", 1))
    ours = _is_ours(_leader(group)) * min(1, size) + _is_ours(group.get("workerTemplate") or {}) * (size - 1)
    return ours or size


def _leader(group: Mapping[str, Any]) -> Mapping[str, Any]:
    return group.get("leaderTemplate") or group.get("workerTemplate") or {}


def _ray(spec: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    head = spec.get("headGroupSpec") or {}
    if _is_ours(head.get("template") or {}):
        found["headgroup"] = 1
    scaled = bool(spec.get("enableInTreeAutoscaling"))
    for group in spec.get("workerGroupSpecs") or []:
        if _is_ours(group.get("template") or {}) and not group.get("suspend"):
            count = int(group.get("minReplicas", 0) if scaled else group.get("replicas", 0))
            found[str(group["groupName"]).lower()] = count * int(group.get("numOfHosts", 1))
    return found


def _ordered(kind: str, spec: Mapping[str, Any]) -> bool:
    if kind == "StatefulSet":
        return spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    if kind == "JobSet":
        in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
        return in_order or any(part.get("dependsOn") for part in spec.get("replicatedJobs") or [])
    if kind == VOLCANO:
        return any(task.get("dependsOn") for task in spec.get("tasks") or [])
    return kind in ("LeaderWorkerSet", "TrainJob") or spec.get("launcherCreationPolicy") == LATE


def _is_ours(template: Mapping[str, Any]) -> bool:
    return bool((template.get("spec") or {}).get("schedulerName") == OURS)


def _role(template: Mapping[str, Any]) -> str:
    meta = template.get("metadata") or {}
    labels = meta.get("labels") or {}
    found = (meta.get("annotations") or {}).get("muster.dev/role")
    return str(found or next((labels[key].lower() for key in ROLE_LABELS if labels.get(key)), "worker"))


def minimum(plain: Json) -> int:
    """What a PodGroup, whosever, wants bound at once; 0 where it makes no sense."""
    spec = plain.get("spec") or {}
    try:
        gang = (spec.get("schedulingPolicy") or {}).get("gang")
        return max(1, int(gang["minCount"] if gang is not None else spec.get("minMember") or 0))
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0
