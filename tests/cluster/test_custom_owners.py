"""What custom owners declare, as the API sends them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.cluster import custom_owners
from muster.types import GPU, DeclaredRole, Owner, OwnerRecord, Shape, Toleration

Json = dict[str, Any]


def template(gpus: int = 0, scheduler: str = "muster", **more: Any) -> Json:
    """A pod template of one container, as operators keep it."""
    limits = {GPU: str(gpus)} if gpus else {}
    return {
        "metadata": {"creationTimestamp": None, **more.pop("metadata", {})},
        "spec": {
            **({"schedulerName": scheduler} if scheduler else {}),
            "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}],
            **more,
        },
    }


def of(kind: str, version: str, spec: Json, status: Json | None = None) -> OwnerRecord:
    """The record of an object."""
    metadata = {"name": "llm", "namespace": "team", "uid": "u"}
    found = {"metadata": metadata, "spec": spec, "status": status or {}}
    return custom_owners.record(json.dumps(found).encode(), version, kind, "muster")


def gpus(count: int) -> Shape:
    return Shape(requests=((GPU, count),))


def roles(record: OwnerRecord) -> list[tuple[str, int, bool, bool]]:
    """Name, count, whether ours, whether in order."""
    return [(role.name, role.count, role.ours, role.ordered) for role in record.roles]


def replicated(name: str, replicas: int, at_once: int, pod: Json, *depends: str) -> Json:
    job: Json = {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {"parallelism": at_once, "completions": at_once, "template": pod}},
    }
    return job | ({"dependsOn": [{"name": one, "status": "Complete"} for one in depends]} if depends else {})


def jobset(spec: Json, status: Json | None = None) -> OwnerRecord:
    return of("JobSet", "jobset.x-k8s.io/v1alpha2", spec, status)


@pytest.mark.parametrize(
    ("above", "named"),
    [
        (("trainer.kubeflow.org/v1alpha1", "TrainJob", True), True),
        (("trainer.kubeflow.org/v2", "TrainJob", True), True),
        (("trainer.kubeflow.org/v1alpha1", "TrainJob", False), False),
        (("example.com/v1", "TrainJob", True), False),
        (("workflows.example.com/v1", "Workflow", True), False),
    ],
)
def test_a_jobset_is_named_after_the_trainjob_that_controls_it(
    above: tuple[str, str, bool], named: bool
) -> None:
    version, kind, controls = above
    reference = {"apiVersion": version, "kind": kind, "name": "tune", "uid": "t", "controller": controls}
    metadata = {"name": "tune", "namespace": "team", "uid": "u", "ownerReferences": [reference]}
    for spec in ({"replicatedJobs": []}, {"replicatedJobs": "nonsense"}):
        found = json.dumps({"metadata": metadata, "spec": spec}).encode()
        record = custom_owners.record(found, "jobset.x-k8s.io/v1alpha2", "JobSet", "muster")
        assert record.named_after == (Owner(version, kind, "tune", "t") if named else None)


def test_a_raycluster_is_named_after_itself() -> None:
    reference = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "ray", "uid": "r", "controller": True}
    metadata = {"name": "ray-x7", "namespace": "team", "uid": "u", "ownerReferences": [reference]}
    found = json.dumps({"metadata": metadata, "spec": {}}).encode()
    assert custom_owners.record(found, "ray.io/v1", "RayCluster", "muster").named_after is None


def test_a_role_has_the_shape_and_the_annotations_of_its_template() -> None:
    pod = template(
        8,
        metadata={"annotations": {"muster.dev/min-replicas": "2", "other": "x"}},
        nodeSelector={"pool": "a"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        initContainers=[{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}],
        overhead={"cpu": "100m"},
    )
    assert jobset({"replicatedJobs": [replicated("workers", 2, 4, pod)]}) == OwnerRecord(
        Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "llm", "u"),
        "team",
        roles=(
            DeclaredRole(
                "workers",
                8,
                shape=Shape(
                    requests=(("cpu", 600), (GPU, 8)),
                    selector=(("pool", "a"),),
                    tolerations=(Toleration("gpu", "Exists"),),
                ),
                notes=(("muster.dev/min-replicas", "2"),),
            ),
        ),
    )


def test_roles_of_a_jobset_that_another_scheduler_starts_are_told_apart() -> None:
    found = jobset(
        {
            "replicatedJobs": [
                replicated("driver", 1, 1, template(scheduler="")),
                replicated("aside", 1, 1, template(scheduler="volcano")),
                replicated("workers", 2, 2, template(8)),
            ]
        }
    )
    assert roles(found) == [
        ("driver", 1, False, False),
        ("aside", 1, False, False),
        ("workers", 4, True, False),
    ]


def test_with_binder_cluster_a_template_is_ours_by_its_label() -> None:
    pod = template(8, scheduler="default-scheduler", metadata={"labels": {"muster.dev/scheduler": "muster"}})
    assert roles(jobset({"replicatedJobs": [replicated("workers", 1, 2, pod)]})) == [
        ("workers", 2, True, False)
    ]


def test_what_a_jobset_makes_only_after_others_is_in_order_and_what_succeeded_is_done() -> None:
    init, node = template(), template(8)
    found = jobset(
        {"replicatedJobs": [replicated("data", 2, 1, init), replicated("node", 1, 4, node, "data")]},
        {"replicatedJobsStatus": [{"name": "data", "succeeded": 2, "ready": 0, "failed": 0, "active": 0}]},
    )
    assert [(r.name, r.count, r.done, r.ordered) for r in found.roles] == [
        ("data", 2, 2, False),
        ("node", 4, 0, True),
    ]
    in_order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    found = jobset(
        {"replicatedJobs": [replicated("driver", 1, 1, node), replicated("workers", 1, 4, node)]} | in_order
    )
    assert roles(found) == [("driver", 1, True, False), ("workers", 4, True, True)]


@pytest.mark.parametrize(
    ("spec", "status", "suspended", "over"),
    [
        ({}, {}, False, ""),
        ({"suspend": True}, {}, True, ""),
        ({}, {"conditions": [{"type": "Completed", "status": "True"}]}, False, "Completed"),
        ({}, {"conditions": [{"type": "Failed", "status": "True"}]}, False, "Failed"),
        ({}, {"conditions": [{"type": "Failed", "status": "False"}]}, False, ""),
    ],
)
def test_a_jobset_says_whether_it_is_suspended_or_over(
    spec: Json, status: Json, suspended: bool, over: str
) -> None:
    found = jobset(spec, status)
    assert (found.suspended, found.over) == (suspended, over)


@pytest.mark.parametrize(
    ("status", "over"),
    [("Succeeded", "Succeeded"), ("Failed", "Failed"), ("Running", ""), ("Restarting", "")],
)
def test_a_pytorchjob_ends_by_its_status(status: str, over: str) -> None:
    specs = {
        "Master": {"replicas": 1, "template": template(8)},
        "Worker": {"replicas": 3, "template": template(8)},
    }
    found = of(
        "PyTorchJob",
        "kubeflow.org/v1",
        {"pytorchReplicaSpecs": specs, "runPolicy": {"suspend": False}},
        {"conditions": [{"type": "Created", "status": "True"}, {"type": status, "status": "True"}]},
    )
    assert (roles(found), found.over, found.suspended) == (
        [("master", 1, True, False), ("worker", 3, True, False)],
        over,
        False,
    )


def test_an_owner_that_is_being_deleted_has_ended() -> None:
    metadata = {"name": "llm", "namespace": "team", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    data = json.dumps({"metadata": metadata, "spec": {}}).encode()
    assert custom_owners.record(data, "jobset.x-k8s.io/v1alpha2", "JobSet", "muster").over == "Deleted"


def ray(group: Json, **spec: Any) -> OwnerRecord:
    groups = [{"groupName": "Small", "template": template(4), **group}]
    head = {"rayStartParams": {}, "template": template()}
    return of("RayCluster", "ray.io/v1", {"headGroupSpec": head, "workerGroupSpecs": groups, **spec})


@pytest.mark.parametrize(
    ("group", "spec", "count", "least"),
    [
        ({"replicas": 2, "numOfHosts": 2}, {}, 4, None),
        ({"replicas": 2, "suspend": True, "minReplicas": 1}, {}, 0, None),
        ({"replicas": 1, "minReplicas": 3}, {}, 3, None),
        ({"replicas": 9, "maxReplicas": 4}, {}, 4, None),
        ({"replicas": 5, "minReplicas": 1, "numOfHosts": 2}, {"enableInTreeAutoscaling": True}, 10, 2),
        ({"minReplicas": 0, "maxReplicas": 10}, {"enableInTreeAutoscaling": True}, 0, 0),
    ],
)
def test_a_ray_group_has_its_replicas_times_its_hosts(
    group: Json, spec: Json, count: int, least: int | None
) -> None:
    found = ray(group, **spec)
    assert [(r.name, r.count, r.min) for r in found.roles] == [
        ("headgroup", 1, None),
        ("small", count, least),
    ]


def lws(policy: str, **templates: Json) -> OwnerRecord:
    spec = {"replicas": 2, "startupPolicy": policy, "leaderWorkerTemplate": {"size": 4, **templates}}
    return of("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", spec)


def test_a_group_of_a_leaderworkerset_is_one_role_whose_workers_may_come_in_order() -> None:
    found = lws("LeaderReady", leaderTemplate=template(), workerTemplate=template(8))
    assert (found.gangs, [(r.name, r.count, r.ordered, r.shape.gpus) for r in found.roles]) == (
        2,
        [("worker", 1, False, 0), ("worker", 3, True, 8)],
    )
    found = lws("LeaderCreated", leaderTemplate=template(scheduler=""), workerTemplate=template(8))
    assert roles(found) == [("worker", 3, True, False)]


def test_a_volcano_job_ends_by_its_phase() -> None:
    tasks = [
        {"name": "master", "replicas": 1, "template": template(1)},
        {"name": "worker", "replicas": 3, "template": template(1), "dependsOn": {"name": ["master"]}},
    ]
    found = of("Job", "batch.volcano.sh/v1alpha1", {"tasks": tasks}, {"state": {"phase": "Completed"}})
    assert (roles(found), found.over) == (
        [("master", 1, True, False), ("worker", 3, True, True)],
        "Completed",
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"replicatedJobs": "many"},
        {"replicatedJobs": [{"replicas": 1}]},
        {"replicatedJobs": [{"name": "w", "replicas": "three"}]},
        {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"spec": {"containers": 3}}}}}]},
    ],
)
def test_a_spec_that_makes_no_sense_declares_nothing(spec: Json) -> None:
    assert jobset(spec) == OwnerRecord(Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "llm", "u"), "team")
