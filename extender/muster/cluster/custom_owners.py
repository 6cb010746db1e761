"""Custom owners, from the API's bytes to records: what they declare of each role, and whether they have ended.

One function a kind. What a role's template says (who starts its pods, their shape, our annotations) counts as long as
the role has no pod. Pure: bytes in, records out.

Sources of defaults and names: kubernetes-sigs/jobset api/jobset/v1alpha2, kubeflow/training-operator
pkg/apis/kubeflow.org/v1, ray-project/kuberay ray-operator/controllers/ray/utils (GetWorkerGroupDesiredReplicas),
kubernetes-sigs/lws api/leaderworkerset/v1, volcano-sh/apis pkg/apis/batch/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from muster.cluster import api_types, decode_pods, quantities, restart_policies
from muster.cluster.custom_types import (
    JobSet,
    JobSpec,
    Kubeflow,
    Lws,
    Ray,
    Reason,
    Template,
    TemplateMeta,
    Volcano,
    _Any,
)
from muster.core.workload import identity
from muster.core.workload.volumes import VOLUMES
from muster.types import DeclaredRole, Owner, OwnerRecord, Shape, Toleration

Roles = tuple[DeclaredRole, ...]


# ---- what is read of them ----


_jobset = msgspec.json.Decoder(JobSet)
_kubeflow = msgspec.json.Decoder(Kubeflow)
_ray = msgspec.json.Decoder(Ray)
_lws = msgspec.json.Decoder(Lws)
_volcano = msgspec.json.Decoder(Volcano)
_any = msgspec.json.Decoder(_Any)


# ---- templates ----


def _role(
    name: str,
    count: int,
    template: Template | None,
    scheduler: str,
    *,
    least: int | None = None,
    done: int = 0,
    ordered: bool = False,
) -> DeclaredRole:
    """A role of so many pods of a template. A template that names another role is of that one."""
    if template is None or template.spec is None:
        return DeclaredRole(name, count, least, done, ordered=ordered)
    meta = template.metadata or TemplateMeta()
    notes = {k: v for k, v in (meta.annotations or {}).items() if k.startswith("muster.dev/")}
    ours = scheduler in (template.spec.scheduler_name, (meta.labels or {}).get(identity.SCHEDULER))
    return DeclaredRole(
        notes.get(identity.ROLE) or name,
        count,
        least,
        done,
        ours=ours,
        ordered=ordered,
        shape=_shape(template.spec) if ours else Shape(),
        notes=tuple(sorted(notes.items())) if ours else (),
    )


def _shape(spec: api_types.PodSpec) -> Shape:
    """What a pod of the template asks for; whether its volumes are an obstacle is known when it has pods."""
    shape = decode_pods.shape(spec)
    return replace(shape, unmodelled=tuple(why for why in shape.unmodelled if why != VOLUMES))


def let_on(record: OwnerRecord) -> OwnerRecord:
    """The owner's pods of ours as admission will make them where Muster binds: they tolerate its nodes' taint."""
    roles = [
        replace(role, shape=_let_on(role.shape)) if role.ours and role.shape != Shape() else role
        for role in record.roles
    ]
    return replace(record, roles=tuple(roles)) if roles else record


def _let_on(shape: Shape) -> Shape:
    if any(identity.says_of_taint(one.key, one.effect) for one in shape.tolerations):
        return shape
    return replace(shape, tolerations=(*shape.tolerations, Toleration(identity.TAINT, "Exists")))


# ---- one function a kind: bytes and our schedulerName to roles and where it stands ----


def jobset(data: bytes | msgspec.Raw, scheduler: str) -> OwnerRecord:
    """JobSet: of each replicated job its replicas times what a Job runs at once; Jobs that succeeded are done."""
    found = _jobset.decode(data)
    spec, status = found.spec, found.status
    succeeded = {one.name: one.succeeded for one in status.replicated_jobs_status or ()}
    in_order = spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder"
    roles = []
    for number, one in enumerate(spec.replicated_jobs or ()):
        job = (one.template.spec if one.template is not None else None) or JobSpec()
        at_once = _count(job.parallelism)
        if job.completions is not None:
            at_once = min(at_once, _count(job.completions))
        roles.append(
            _role(
                one.name.lower(),
                _count(one.replicas) * at_once,
                job.template,
                scheduler,
                done=max(0, succeeded.get(one.name, 0)) * at_once,
                ordered=bool(one.depends_on) or (in_order and number > 0),
            )
        )
    return OwnerRecord(
        NOBODY,
        "",
        roles=tuple(roles),
        suspended=bool(spec.suspend),
        over=_ended(status.conditions, "Completed", "Failed"),
    )


def kubeflow(data: bytes | msgspec.Raw, scheduler: str) -> OwnerRecord:
    """Kubeflow's training operator: spec.pytorchReplicaSpecs.{Master,Worker} and its siblings."""
    found = _kubeflow.decode(data)
    spec = found.spec
    specs = next(
        (
            specs
            for specs in (
                spec.pytorch_replica_specs,
                spec.tf_replica_specs,
                spec.mpi_replica_specs,
                spec.xgb_replica_specs,
                spec.paddle_replica_specs,
                spec.jax_replica_specs,
            )
            if specs
        ),
        {},
    )
    late = "Launcher" if spec.launcher_creation_policy == "WaitForWorkersReady" else ""
    return OwnerRecord(
        NOBODY,
        "",
        roles=tuple(
            _role(name.lower(), _count(one.replicas), one.template, scheduler, ordered=name == late)
            for name, one in specs.items()
        ),
        suspended=spec.run_policy is not None and bool(spec.run_policy.suspend),
        over=_ended(found.status.conditions, "Succeeded", "Failed"),
    )


def raycluster(data: bytes | msgspec.Raw, scheduler: str) -> OwnerRecord:
    """RayCluster: one head, and of each worker group its replicas times the hosts of one, by the label ray.io/group.
    Where Ray's autoscaler sets the replicas, a group may run with its minReplicas."""
    spec = _ray.decode(data).spec
    head = spec.head_group_spec.template if spec.head_group_spec is not None else None
    roles = [_role("headgroup", 1, head, scheduler)]
    for group in spec.worker_group_specs or ():
        hosts = max(1, _count(group.num_of_hosts))
        least = max(0, group.min_replicas or 0)
        count = least if group.replicas is None and group.min_replicas is not None else _count(group.replicas)
        count = max(count, least)
        if group.max_replicas is not None:
            count = min(count, max(0, group.max_replicas))
        if group.suspend:
            count = least = 0
        roles.append(
            _role(
                group.group_name.lower(),
                count * hosts,
                group.template,
                scheduler,
                least=min(least, count) * hosts if spec.enable_in_tree_autoscaling else None,
            )
        )
    return OwnerRecord(NOBODY, "", roles=tuple(roles), suspended=bool(spec.suspend))


def leaderworkerset(data: bytes | msgspec.Raw, scheduler: str) -> OwnerRecord:
    """LeaderWorkerSet: the pods of one group, which is the gang; leader and workers are one role."""
    spec = _lws.decode(data).spec
    group = spec.leader_worker_template
    size = _count(group.size)
    ordered = spec.startup_policy == "LeaderReady"
    leader = _role("worker", min(1, size), group.leader_template or group.worker_template, scheduler)
    workers = _role("worker", max(0, size - 1), group.worker_template, scheduler, ordered=ordered)
    roles = tuple(role for role in (leader, workers) if role.ours) or (leader, workers)
    return OwnerRecord(NOBODY, "", roles=roles, gangs=_count(spec.replicas))


def volcano(data: bytes | msgspec.Raw, scheduler: str) -> OwnerRecord:
    """Volcano's Job: the replicas of each task."""
    found = _volcano.decode(data)
    phase = found.status.state.phase
    return OwnerRecord(
        NOBODY,
        "",
        roles=tuple(
            _role(
                one.name.lower(),
                _count(one.replicas),
                one.template,
                scheduler,
                ordered=bool(one.depends_on),
            )
            for one in found.spec.tasks or ()
        ),
        suspended=phase in ("Aborting", "Aborted"),
        over=phase if phase in ("Completed", "Failed", "Terminated") else "",
    )


NOBODY = Owner("", "", "", "")

Decode = Callable[[bytes | msgspec.Raw, str], OwnerRecord]

KINDS: Mapping[tuple[str, str], Decode] = {
    ("kubeflow.org", "PyTorchJob"): kubeflow,
    ("kubeflow.org", "TFJob"): kubeflow,
    ("kubeflow.org", "MPIJob"): kubeflow,
    ("kubeflow.org", "XGBoostJob"): kubeflow,
    ("kubeflow.org", "PaddleJob"): kubeflow,
    ("kubeflow.org", "JAXJob"): kubeflow,
    ("jobset.x-k8s.io", "JobSet"): jobset,
    ("ray.io", "RayCluster"): raycluster,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): leaderworkerset,
    ("batch.volcano.sh", "Job"): volcano,
}
"""By group and kind: whoever is not here has no declared size."""


NAMED_AFTER: Mapping[str, tuple[str, str]] = {"JobSet": ("trainer.kubeflow.org", "TrainJob")}
"""By kind of an owner: group and kind of the controller that its job is named after. A RayJob is none: its RayCluster
comes and goes with each attempt, beside the pod that submits, which would be of the same job then."""


def record(data: bytes | msgspec.Raw, api_version: str, kind: str, scheduler: str) -> OwnerRecord:
    """The record of a custom owner. One whose spec makes no sense declares no size: annotations decide, else its
    pods start as they come.

    Raises msgspec.DecodeError for bytes that are no object of the API, KeyError for a kind that is not known.
    """
    group = api_version.partition("/")[0]
    read = KINDS[(group, kind)]
    meta = _any.decode(data).metadata
    owner = Owner(api_version, kind, meta.name, meta.uid)
    named_after = _named_after(owner, decode_pods.controller(meta))
    try:
        found = read(data, scheduler)
        spec = _any.decode(data).spec or {}
        return replace(
            found,
            owner=owner,
            namespace=meta.namespace,
            over=found.over or ("Deleted" if meta.deletion_timestamp else ""),
            named_after=named_after,
            created=quantities.seconds(meta.creation_timestamp),
            fragile=restart_policies.reasons(kind, spec),
            remade=restart_policies.remade(kind, spec),
            optional=restart_policies.optional(kind, spec),
        )
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError):
        return OwnerRecord(owner, meta.namespace, named_after=named_after)


def _named_after(owner: Owner, above: Owner | None) -> Owner | None:
    """The controller of a custom owner, where the job is named after that one."""
    if above is None or NAMED_AFTER.get(owner.kind) != (above.api_version.partition("/")[0], above.kind):
        return None
    return above


def _count(value: int | None) -> int:
    """A number of replicas as operators default it: 1 where it is not said, or makes no sense."""
    return value if value is not None and value >= 0 else 1


def _ended(conditions: Sequence[Reason] | None, *types: str) -> str:
    """The first of these conditions that is true, "" for none."""
    return next((c.type for c in conditions or () if c.type in types and c.status == "True"), "")
