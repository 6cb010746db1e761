"""The few fields of custom owners that are read, decoded straight from bytes by msgspec."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.cluster import api_types


class _Struct(msgspec.Struct, rename="camel", gc=False):
    pass


class TemplateMeta(_Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Template(_Struct):
    metadata: TemplateMeta | None = None
    spec: api_types.PodSpec | None = None


class Reason(_Struct):
    type: str = ""
    status: str = ""


class DependsOn(_Struct):
    name: str = ""


class JobSpec(_Struct):
    parallelism: int | None = None
    completions: int | None = None
    template: Template | None = None


class JobTemplate(_Struct):
    spec: JobSpec | None = None


class ReplicatedJob(_Struct):
    name: str
    replicas: int | None = None
    template: JobTemplate | None = None
    depends_on: list[DependsOn] | None = None


class StartupPolicy(_Struct):
    startup_policy_order: str = ""


class JobSetSpec(_Struct):
    replicated_jobs: list[ReplicatedJob] | None = None
    startup_policy: StartupPolicy | None = None
    suspend: bool | None = None


class ReplicatedJobStatus(_Struct):
    name: str
    succeeded: int = 0


class JobSetStatus(_Struct):
    conditions: list[Reason] | None = None
    replicated_jobs_status: list[ReplicatedJobStatus] | None = None


class JobSet(_Struct):
    spec: JobSetSpec = msgspec.field(default_factory=JobSetSpec)
    status: JobSetStatus = msgspec.field(default_factory=JobSetStatus)


class ReplicaSpec(_Struct):
    replicas: int | None = None
    template: Template | None = None


class RunPolicy(_Struct):
    suspend: bool | None = None


class KubeflowSpec(_Struct):
    run_policy: RunPolicy | None = None
    launcher_creation_policy: str = ""
    pytorch_replica_specs: dict[str, ReplicaSpec] | None = None
    tf_replica_specs: dict[str, ReplicaSpec] | None = None
    mpi_replica_specs: dict[str, ReplicaSpec] | None = None
    xgb_replica_specs: dict[str, ReplicaSpec] | None = None
    paddle_replica_specs: dict[str, ReplicaSpec] | None = None
    jax_replica_specs: dict[str, ReplicaSpec] | None = None


class Conditions(_Struct):
    conditions: list[Reason] | None = None


class Kubeflow(_Struct):
    spec: KubeflowSpec = msgspec.field(default_factory=KubeflowSpec)
    status: Conditions = msgspec.field(default_factory=Conditions)


class HeadGroup(_Struct):
    template: Template | None = None


class WorkerGroup(_Struct):
    group_name: str
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: Template | None = None


class RaySpec(_Struct):
    head_group_spec: HeadGroup | None = None
    worker_group_specs: list[WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None
    suspend: bool | None = None


class Ray(_Struct):
    spec: RaySpec = msgspec.field(default_factory=RaySpec)


class GroupTemplate(_Struct):
    size: int | None = None
    leader_template: Template | None = None
    worker_template: Template | None = None


class LwsSpec(_Struct):
    replicas: int | None = None
    startup_policy: str = ""
    leader_worker_template: GroupTemplate = msgspec.field(default_factory=GroupTemplate)


class Lws(_Struct):
    spec: LwsSpec = msgspec.field(default_factory=LwsSpec)


class Task(_Struct):
    name: str
    replicas: int | None = None
    template: Template | None = None
    depends_on: dict[str, Any] | None = None


class VolcanoSpec(_Struct):
    tasks: list[Task] | None = None


class VolcanoState(_Struct):
    phase: str = ""


class VolcanoStatus(_Struct):
    state: VolcanoState = msgspec.field(default_factory=VolcanoState)


class Volcano(_Struct):
    spec: VolcanoSpec = msgspec.field(default_factory=VolcanoSpec)
    status: VolcanoStatus = msgspec.field(default_factory=VolcanoStatus)


class _Any(_Struct):
    """Of any kind: who it is, whose, and its spec as plain values for `fragile`."""

    metadata: api_types.Meta
    spec: dict[str, Any] | None = None
