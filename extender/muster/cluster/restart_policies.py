"""What an owner makes of a replica that we end: custom owners that fail, or start again, when one of their pods does.

From the object's spec to reasons by role, in words for its owner; "" = every role. An empty answer: a replica that
was evicted is created again and nothing else happens. Kubernetes' own controllers are all of that kind, a Job by
what cluster.evict does with its finalizer.

Sources: kubeflow/training-operator v1 pkg/controller.v1 (common/job.go ReconcileJobs, common/pod.go ReconcilePods,
pytorch/pytorchjob_controller.go UpdateJobStatus) and the default restart policies of its API; ray-project/kuberay
raycluster_controller.go; volcano.sh lifecycle policies; kubernetes-sigs/lws pkg/controllers/pod_controller.go
handleRestartPolicy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Json = Mapping[str, Any]
Reasons = tuple[tuple[str, str], ...]

RESTARTED_BY_DEFAULT = frozenset({"PyTorchJob", "PaddleJob"})
"""Kinds of Kubeflow's training operator whose replicas have restartPolicy OnFailure where nothing is said; the others
have Never."""
WHOLE_JOB = frozenset({"AbortJob", "RestartJob", "TerminateJob", "CompleteJob"})
"""Actions of a Volcano policy that end or restart all of a job."""

REMADE = "RecreateGroupOnPodRestart"
"""The restartPolicy of a LeaderWorkerSet that says nothing."""


def replicas_of_kubeflow(kind: str, spec: Json) -> Reasons:
    """restartPolicy Never: one Failed pod is a failed job. backoffLimit 0: so is any replacement."""
    if (spec.get("runPolicy") or {}).get("backoffLimit") == 0:
        return (("", f"the {kind} has runPolicy.backoffLimit 0, so one replica that is ended fails it"),)
    default = "OnFailure" if kind in RESTARTED_BY_DEFAULT else "Never"
    for key, found in spec.items():
        if key.endswith("ReplicaSpecs") and isinstance(found, Mapping):
            return tuple(
                (
                    role.lower(),
                    f"the {kind}'s {role} replicas have restartPolicy Never, so one that is ended fails it",
                )
                for role, one in found.items()
                if isinstance(one, Mapping) and (one.get("restartPolicy") or default) == "Never"
            )
    return ()


def head_of_ray(kind: str, spec: Json) -> Reasons:  # noqa: ARG001
    """The head holds the cluster's state: without it all of it starts again."""
    return (("headgroup", f"without its head the {kind} loses its state and starts again"),)


def policies_of_volcano(kind: str, spec: Json) -> Reasons:  # noqa: ARG001
    """A policy for a pod that is evicted or fails, of the job or of one task."""

    def ends(policies: object) -> str:
        for policy in policies if isinstance(policies, list) else ():
            events = {policy.get("event"), *(policy.get("events") or ())}
            if policy.get("action") in WHOLE_JOB and events & {"PodEvicted", "PodFailed", "*"}:
                return str(policy["action"])
        return ""

    said = "its policies answer a pod that is ended with {}"
    whole = ends(spec.get("policies"))
    if whole:
        return (("", said.format(whole)),)
    tasks = [(str(task["name"]).lower(), ends(task.get("policies"))) for task in spec.get("tasks", ())]
    return tuple((role, said.format(action)) for role, action in tasks if action)


FRAGILE: Mapping[str, Callable[[str, Json], Reasons]] = {
    "PyTorchJob": replicas_of_kubeflow,
    "TFJob": replicas_of_kubeflow,
    "MPIJob": replicas_of_kubeflow,
    "XGBoostJob": replicas_of_kubeflow,
    "PaddleJob": replicas_of_kubeflow,
    "JAXJob": replicas_of_kubeflow,
    "RayCluster": head_of_ray,
    "Job": policies_of_volcano,  # batch.volcano.sh; Kubernetes' own Jobs are watched
}


def reasons(kind: str, spec: Json) -> Reasons:
    """Why replicas of this owner are not ended by us, by role."""
    found = FRAGILE.get(kind)
    return found(kind, spec) if found is not None else ()


def remade(kind: str, spec: Json) -> str:
    """Why one replica can't leave alone, though nothing fails: its owner makes the others again, too. "" = it can."""
    if kind != "LeaderWorkerSet":
        return ""
    policy = (spec.get("leaderWorkerTemplate") or {}).get("restartPolicy") or REMADE
    if policy != REMADE:
        return ""
    return (
        f"the {kind} makes all of a group again when one of its pods is ended (restartPolicy {policy}; with None it "
        "does not)"
    )


def optional(kind: str, spec: Json) -> tuple[str, ...]:
    """Roles without which the owner can end well: of a JobSet the replicated jobs that its successPolicy leaves out.

    Default: all of them have to complete. operator Any: one of the targets is enough, so none of several is needed.
    """
    if kind != "JobSet":
        return ()
    names = [str(one["name"]) for one in spec.get("replicatedJobs", ())]
    policy = spec.get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or names
    if policy.get("operator") == "Any" and len(targets) > 1:
        return tuple(names)
    return tuple(name for name in names if name not in targets)
