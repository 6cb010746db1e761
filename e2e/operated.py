# Over 300 lines: the jobs of all operators are written in one set of words.
"""Jobs of real operators (`make lab OPERATORS=...`), and labs that have these: what users of JobSet, Kubeflow
Trainer, LeaderWorkerSet, KubeRay and the training operator write.

    with operated("jobset", "trainer") as lab:      # in a fixture named _session_lab
    cluster.submit(jobset("llm", driver=role(1), workers=role(4, gpus=8)), namespace=namespace)

e2e/operators.py has owners whose operators are not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from e2e.cluster import Cluster, Json, Pod, Refused
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.operator_config import kueue_api
from e2e.labs import own_lab
from e2e.scenario import PATIENCE, bound, holds_for, in_state, show, template, wait_until

NODES = 4  # of 8 GPUs


def in_versions(operators: Iterable[str]) -> tuple[str, ...]:
    """These operators, each in the version that E2E_OPERATORS (jobset@v0.10.1) has for it, where it has one."""
    asked = filter(None, os.environ.get("E2E_OPERATORS", "").split(","))
    versions = {one.partition("@")[0]: one for one in asked}
    return tuple(versions.get(name, name) for name in operators)


KUEUE_API = kueue_api(in_versions(["kueue"])[0].partition("@")[2])
KINDS = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "TrainingRuntime": "trainer.kubeflow.org/v1alpha1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "RayJob": "ray.io/v1",
    "RayCluster": "ray.io/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "Workload": f"kueue.x-k8s.io/{KUEUE_API}",
    "LocalQueue": f"kueue.x-k8s.io/{KUEUE_API}",
}


@contextlib.contextmanager
def operated(*operators: str) -> Iterator[Lab]:
    """A lab of 4 nodes x 8 GPUs with these operators; the one of E2E_OPERATORS_LAB where that has them."""
    wanted = in_versions(operators)
    if name := os.environ.get("E2E_OPERATORS_LAB"):
        staying = Lab(name)
        if staying.exists and set(wanted) <= set(staying.shape.operators):
            yield staying.up(staying.shape)
            return
    shape = Shape(groups=(NodeGroup(NODES, gpus=8),), racks=2, operators=wanted)
    with own_lab("-".join(operators), shape) as lab:
        yield lab


def path(kind: str, namespace: str, name: str = "") -> str:
    """Where the objects of a kind, or one of them, are."""
    return f"/apis/{KINDS[kind]}/namespaces/{namespace}/{kind.lower()}s" + (f"/{name}" if name else "")


def custom(kind: str, name: str, spec: Json, annotations: Mapping[str, str] | None = None) -> Json:
    metadata = {"name": name, "annotations": dict(annotations or {})}
    return {"apiVersion": KINDS[kind], "kind": kind, "metadata": metadata, "spec": spec}


def clear(cluster: Cluster, namespace: str) -> None:
    """Ask for the end of every such object of the namespace; who has no such kind has none."""
    served = {group["name"] for group in cluster.get("/apis")["groups"]}
    for kind in (kind for kind, version in KINDS.items() if version.partition("/")[0] in served):
        with contextlib.suppress(Refused):
            cluster.delete(path(kind, namespace), propagationPolicy="Background")


# --- JobSet -------------------------------------------------------------------------------------------------


def role(
    pods: int,
    *,
    replicas: int = 1,
    success_on: str | None = None,
    depends_on: Mapping[str, str] | None = None,
    **what: Any,
) -> Json:
    """A replicated job without its name: `replicas` Jobs of `pods` pods; `what` as for scenario.template.
    depends_on: {"driver": "Ready"}."""
    job: Json = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": template(**what),
    }
    if success_on is not None:
        job["successPolicy"] = {"rules": [{"succeededIndexes": success_on}]}
    found: Json = {"replicas": replicas, "template": {"spec": job}}
    if depends_on:
        found["dependsOn"] = [{"name": name, "status": status} for name, status in depends_on.items()]
    return found


def jobset(name: str, spec: Mapping[str, Any] | None = None, **roles: Json) -> Json:
    """A JobSet of these roles, in this order; `spec`: what else it says (failurePolicy, startupPolicy)."""
    jobs = [{"name": role_name, **one} for role_name, one in roles.items()]
    return custom("JobSet", name, {"replicatedJobs": jobs, **(spec or {})})


# --- Kubeflow Trainer ---------------------------------------------------------------------------------------


def runtime(
    name: str,
    *,
    initializers: Mapping[str, Mapping[str, Any]] | None = None,
    job_spec: Mapping[str, Any] | None = None,
    jobset_spec: Mapping[str, Any] | None = None,
    **what: Any,
) -> Json:
    """A TrainingRuntime whose nodes are pods of `what`, and start when its initializers are complete.

    initializers: {"dataset-initializer": {...}}, each a pod of this template; jobset_spec: what else it says of its
    JobSet (failurePolicy)."""
    jobs = [_step(step, step, one) for step, one in (initializers or {}).items()]
    node = _step("node", "trainer", what, job_spec)
    if initializers:
        node["dependsOn"] = [{"name": step, "status": "Complete"} for step in initializers]
    return {
        "apiVersion": KINDS["TrainingRuntime"],
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [*jobs, node], **(jobset_spec or {})}},
        },
    }


def train_job(name: str, runtime_name: str, nodes: int, gpus: int) -> Json:
    resources = {"nvidia.com/gpu": str(gpus)}
    return custom(
        "TrainJob",
        name,
        {
            "runtimeRef": {"name": runtime_name, "kind": "TrainingRuntime"},
            "trainer": {
                "numNodes": nodes,
                "resourcesPerNode": {"limits": resources, "requests": dict(resources)},
            },
        },
    )


def _step(name: str, step: str, what: Mapping[str, Any], job_spec: Mapping[str, Any] | None = None) -> Json:
    """One replicated job of a runtime; Trainer knows by the label what it is for, and by the name its container."""
    body = template(**{"gpus": 0, **what})
    body["spec"]["containers"][0]["name"] = name
    return {
        "name": name,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}},
            "spec": {"template": body, **(job_spec or {})},
        },
    }


# --- LeaderWorkerSet ----------------------------------------------------------------------------------------


def leader_worker_set(
    name: str,
    size: int,
    *,
    replicas: int = 1,
    startup: str = "LeaderCreated",
    restarts: str = "RecreateGroupOnPodRestart",
    leader: Mapping[str, Any] | None = None,
    **what: Any,
) -> Json:
    """`replicas` groups of a leader and size - 1 workers; leader: where its template is another; restarts: its
    restartPolicy, by default the one that it has."""
    what = {"restart": "Always", **what}
    spec: Json = {
        "size": size,
        "restartPolicy": restarts,
        "workerTemplate": template(**what),
    }
    if leader is not None:
        spec["leaderTemplate"] = template(**{**what, **leader})
    return custom(
        "LeaderWorkerSet",
        name,
        {"replicas": replicas, "startupPolicy": startup, "leaderWorkerTemplate": spec},
    )


# --- Ray ----------------------------------------------------------------------------------------------------


def worker_group(name: str, replicas: int, spec: Mapping[str, Any] | None = None, **what: Any) -> Json:
    """A group of a RayCluster's workers; `spec`: what else it says (numOfHosts, suspend)."""
    return {
        "groupName": name,
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": 64,
        "rayStartParams": {},
        "template": template(**{"restart": "Always", **what}),
        **(spec or {}),
    }


def ray_cluster(name: str, *groups: Json, head: Mapping[str, Any] | None = None) -> Json:
    """A RayCluster; head: how its head's template differs from a pod of ours without GPUs."""
    return custom(
        "RayCluster",
        name,
        {
            "rayVersion": "2.46.0",
            "headGroupSpec": {
                "rayStartParams": {},
                "template": template(**{"restart": "Always", "gpus": 0, **(head or {})}),
            },
            "workerGroupSpecs": list(groups),
        },
    )


# --- Kubeflow's training operator ---------------------------------------------------------------------------


def pytorch_job(
    name: str, spec: Mapping[str, Any] | None = None, **replicas: tuple[int, Mapping[str, Any]]
) -> Json:
    """`replicas`: Master=(1, {...}), Worker=(3, {...}): how many, and their template."""
    specs = {}
    for kind, (count, what) in replicas.items():
        body = template(**what)
        del body["spec"]["restartPolicy"]  # it is the replica spec's to say
        body["spec"]["containers"][0]["name"] = "pytorch"
        specs[kind] = {"replicas": count, "restartPolicy": "OnFailure", "template": body}
    return custom("PyTorchJob", name, {"pytorchReplicaSpecs": specs, **(spec or {})})


def submit(cluster: Cluster, namespace: str, *manifests: Json) -> None:
    """Create objects, in order, each when it is accepted: Trainer's webhook sees a runtime a moment after the API."""
    for one in manifests:
        wait_until(
            lambda one=one: cluster.submit(one, namespace=namespace),  # type: ignore[misc]
            what=f"{one['kind']} {one['metadata']['name']} is accepted",
        )


# --- what to wait for ---------------------------------------------------------------------------------------


def of(role_name: str) -> Callable[[Pod], bool]:
    """Whether a pod is of this role, by the labels of the operators."""
    labels = (
        "jobset.sigs.k8s.io/replicatedjob-name",
        "training.kubeflow.org/replica-type",
        "ray.io/group",
    )
    return lambda one: role_name in (one.labels.get(label) for label in labels)


def run(
    cluster: Cluster,
    namespace: str,
    counts: Mapping[str, int],
    within: float = PATIENCE,
    beside: str = "",
) -> list[Pod]:
    """The bound pods of the namespace once there are exactly so many of each role, whoever bound them.

    beside: a Job whose pods count for nothing, as they may be there already or come later."""

    def as_wanted() -> list[Pod] | None:
        pods = bound(cluster.pods(namespace))
        if beside:
            pods = [one for one in pods if one.labels.get("batch.kubernetes.io/job-name") != beside]
        right = all(sum(map(of(name), pods)) == count for name, count in counts.items())
        return pods if right and len(pods) == sum(counts.values()) else None

    return wait_until(
        as_wanted,
        within=within,
        what=f"there run {dict(counts)}",
        also=lambda: everything(cluster, namespace),
    )


def everything(cluster: Cluster, namespace: str) -> str:
    """Pods and Gangs, for `also=`."""
    return f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}"


def has_state(cluster: Cluster, namespace: str, name: str, state: str) -> Json:
    """The status of the Gang once it says this state."""
    return wait_until(
        lambda: in_state(cluster, namespace, name, state),
        what=f"the Gang {name} is {state}",
        also=lambda: everything(cluster, namespace),
    )


def gives_all_back(cluster: Cluster, namespace: str) -> None:
    """No pod of the namespace has a node any more: an owner that is suspended or over is said to be so at once, and
    its controller ends its pods after that."""
    wait_until(
        lambda: not bound(cluster.pods(namespace)),
        what="it holds nothing any more",
        also=lambda: everything(cluster, namespace),
    )


def is_left_alone(cluster: Cluster, namespace: str, pods: Sequence[Pod], seconds: float) -> None:
    """AssertionError unless these very pods go on for so long: what a timeout would do, it does by then."""
    uids = {one.uid for one in pods}
    holds_for(
        lambda: {one.uid for one in bound(cluster.pods(namespace))} == uids,
        seconds=seconds,
        what=f"the {len(uids)} pods go on, and no other starts",
    )


# --- what happens to its pods -------------------------------------------------------------------------------


def restarts_a_container(cluster: Cluster, one: Pod) -> None:
    """A container of a fake node's pod has failed, and its kubelet has started it again, in place."""

    def has_run() -> list[Json]:
        found = cluster.pod(one.namespace, one.name)
        assert found is not None
        return found.raw["status"].get("containerStatuses", []) if found.phase == "Running" else []

    first, *others = wait_until(has_run, what=f"{one.name} runs")
    first |= {"restartCount": 1, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    where = f"/api/v1/namespaces/{one.namespace}/pods/{one.name}/status"
    cluster.patch(where, {"status": {"containerStatuses": [first, *others]}})
