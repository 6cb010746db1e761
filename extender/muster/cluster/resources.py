"""What Muster watches, and in what order the first lists are wanted: memory first, pods last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from muster.cluster import api_types, decode, decode_pods
from muster.cluster.holder_records import holder_record
from muster.cluster.paths import path
from muster.cluster.watch import Resource
from muster.types import (
    Event,
    GangGone,
    GangSeen,
    GroupSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    OwnerGone,
    OwnerRecord,
    OwnerSeen,
    PodGone,
    PodRecord,
    PodSeen,
)

_group = msgspec.json.Decoder(api_types.PodGroup)
_any = msgspec.json.Decoder(api_types.Workload)


def watched(scheduler: str, *, namespaces: bool = False, holders: str = "") -> tuple[Resource, ...]:
    """Everything but the Lease. `scheduler` is the schedulerName of our pods; namespaces: whether their labels decide
    which ones have opted in; holders: the namespace of pods that hold devices, "" = there are none."""
    return (
        *(
            [Resource("namespaces", "/api/v1/namespaces", _namespace, NamespaceGone, _by_name)]
            if namespaces
            else []
        ),
        Resource("gangs", "/apis/muster.dev/v1alpha1/gangs", _gang, _gang_gone, _gang_identity),
        _owners("jobs", "/apis/batch/v1/jobs", "Job", "batch/v1"),
        _owners("replicasets", "/apis/apps/v1/replicasets", "ReplicaSet", "apps/v1"),
        _owners("statefulsets", "/apis/apps/v1/statefulsets", "StatefulSet", "apps/v1"),
        _owners("deployments", "/apis/apps/v1/deployments", "Deployment", "apps/v1"),
        *(
            Resource(
                f"podgroups of {group}",
                path(group, "podgroups"),
                _group_seen,
                _group_gone,
                lambda named: f"{named.namespace}/{named.name}",
                optional=True,
            )
            for group in (
                "scheduling.k8s.io/v1beta1",
                "scheduling.x-k8s.io/v1alpha1",
                "scheduling.volcano.sh/v1beta1",
            )
        ),
        Resource("nodes", "/api/v1/nodes", _node, NodeGone, _by_name),
        Resource(
            "pods",
            "/api/v1/pods",
            _pods(scheduler, holders),
            PodGone,
            sketch=_sketches(scheduler, holders),
            new=_new_pod,
        ),
    )


def _by_name(named: api_types.Named) -> str:
    return named.name


def _gang(raw: msgspec.Raw) -> tuple[str, Event]:
    gang = decode.gang(raw)
    return f"{gang.key.namespace}/{gang.name}/{gang.object_uid}", GangSeen(gang)


def _gang_identity(named: api_types.Named) -> str:
    return f"{named.namespace}/{named.name}/{named.uid}"


def _gang_gone(identity: str) -> GangGone:
    return GangGone(*identity.split("/", 2))


def _namespace(raw: msgspec.Raw) -> tuple[str, Event]:
    meta = _any.decode(raw).metadata
    return meta.name, NamespaceSeen(meta.name, meta.labels or {})


def _node(raw: msgspec.Raw) -> tuple[str, Event]:
    node = decode.node(raw)
    return node.name, NodeSeen(node)


def _pods(scheduler: str, holders: str) -> Callable[[msgspec.Raw], tuple[str, Event]]:
    def decode_pod(raw: msgspec.Raw) -> tuple[str, Event]:
        pod = decode_pods.pod(raw, scheduler)
        if holders and pod.namespace == holders:  # Muster's own: of no job, charged as any other's
            pod = replace(pod, ours=False, holder=holder_record(raw, pod.phase))
        return pod.uid, PodSeen(pod)

    return decode_pod


def _sketches(scheduler: str, holders: str) -> Callable[[msgspec.Raw], PodRecord | None]:
    def sketch(raw: msgspec.Raw) -> PodRecord | None:
        pod = decode_pods.sketch(raw, scheduler)
        mine = pod is not None and holders and pod.namespace == holders
        return replace(pod, ours=False) if pod is not None and mine else pod

    return sketch


def _new_pod(event: Event) -> Event:
    return replace(event, new=True) if isinstance(event, PodSeen) else event


def _owners(name: str, where: str, kind: str, api_version: str) -> Resource:
    workload: Callable[[bytes | msgspec.Raw], OwnerRecord] = decode.workload(kind, api_version)

    def decode_owner(raw: msgspec.Raw) -> tuple[str, Event]:
        owner = workload(raw)
        return owner.owner.uid, OwnerSeen(owner)

    return Resource(name, where, decode_owner, OwnerGone)


def _group_seen(raw: msgspec.Raw) -> tuple[str, Event]:
    found = _group.decode(raw)
    policy = found.spec.scheduling_policy
    least = policy.gang.min_count if policy is not None and policy.gang is not None else found.spec.min_member
    meta = found.metadata
    return f"{meta.namespace}/{meta.name}", GroupSeen(meta.namespace, meta.name, max(1, least))


def _group_gone(identity: str) -> GroupSeen:
    namespace, name = identity.split("/", 1)
    return GroupSeen(namespace, name, 0)
