# Over 300 lines: it is a list of declarations, object by object as the API has them.
"""The few fields of API objects that the core reads, decoded straight from bytes by msgspec.

One struct a kind, named as in the API. Fields that nobody reads are skipped by the decoder, not stored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from muster.types import Reservation, Step


class _Struct(msgspec.Struct, rename="camel", gc=False):
    pass


class OwnerReference(_Struct):
    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


class ManagedFields(_Struct):
    operation: str = ""


class Meta(_Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None
    managed_fields: list[ManagedFields] | None = None


class Resources(_Struct):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class ContainerPort(_Struct):
    host_port: int = 0
    protocol: str = "TCP"
    host_i_p: str = msgspec.field(default="", name="hostIP")


class Container(_Struct):
    image: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)
    ports: list[ContainerPort] | None = None
    restart_policy: str = ""


class Gate(_Struct):
    name: str


class SelectorRequirement(_Struct):
    key: str
    operator: str
    values: list[str] | None = None


class SelectorTerm(_Struct):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_Struct):
    node_selector_terms: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"[]"))


class NodeAffinity(_Struct):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinity(_Struct):
    required: list[Any] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Struct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class PodToleration(_Struct):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Spread(_Struct):
    when_unsatisfiable: str = "DoNotSchedule"


class Volume(_Struct):
    name: str = ""
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class SchedulingGroup(_Struct):
    pod_group_name: str = ""


class PodSpec(_Struct):
    containers: list[Container]
    scheduler_name: str = ""
    node_name: str = ""
    scheduling_gates: list[Gate] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: Resources | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[PodToleration] | None = None
    topology_spread_constraints: list[Spread] | None = None
    resource_claims: list[Any] | None = None
    volumes: list[Volume] | None = None
    priority: int = 0
    scheduling_group: SchedulingGroup | None = None


class Condition(_Struct):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(_Struct):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[Condition] | None = None


class Pod(_Struct):
    metadata: Meta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodPlace(_Struct):
    """Of a pod's spec: whose it is, and where."""

    scheduler_name: str = ""
    node_name: str = ""
    scheduling_gates: list[Gate] | None = None
    scheduling_group: SchedulingGroup | None = None


class PodSketch(_Struct):
    """What is read of a pod that can't be read."""

    metadata: Meta
    spec: PodPlace = msgspec.field(default_factory=PodPlace)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Named(_Struct):
    """Of any object: its name."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class Anything(_Struct):
    """An object of which only the name is read."""

    metadata: Named


class NodeTaint(_Struct):
    key: str
    effect: str
    value: str = ""


class NodeSpec(_Struct):
    unschedulable: bool = False
    taints: list[NodeTaint] | None = None


class NodeStatus(_Struct):
    allocatable: dict[str, str | int | float] | None = None


class Node(_Struct):
    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class WorkloadSpec(_Struct):
    """Job, ReplicaSet, StatefulSet and Deployment alike."""

    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    completion_mode: str = ""
    success_policy: dict[str, Any] | None = None
    pod_management_policy: str = ""


class WorkloadStatus(_Struct):
    succeeded: int = 0
    conditions: list[Condition] | None = None


class Workload(_Struct):
    metadata: Meta
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class GangOwner(_Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class GangSpec(_Struct):
    job: str = ""
    uid: str = ""
    owner: GangOwner | None = None
    declared_by: GangOwner | None = None


class GangBar(_Struct):
    role: str
    node: str
    until: float = 0.0
    seconds: float = 0.0


class GangWhole(_Struct):
    role: str
    min: int = 0


class GangRecreated(_Struct):
    since: float = 0.0
    until: float = 0.0


class GangLedger(_Struct):
    backoff: int = 0
    queued_from: float = 0.0
    not_before: float = 0.0
    asked: float = 0.0
    barred: list[GangBar] | None = None
    whole: list[GangWhole] | None = None
    recreated: GangRecreated | None = None
    elastic: list[dict[str, Any]] | None = None


class GangRole(_Struct):
    min: int = 0
    max: int = 0


class GangCondition(_Struct):
    type: str = ""
    status: str = ""
    last_transition_time: str = ""


class GangStatus(_Struct):
    state: str = ""
    code: str = ""  # what `reason` was called until its sentence became `message` (gang_codec.why)
    reason: str = ""
    message: str = ""
    replicas: str = ""
    position: int = 0
    fits: str = ""
    free: str = ""
    blocker: str = ""
    expected_start: str = ""
    expected: str = ""
    since: str = ""
    submitted: str = ""
    started: str = ""
    ended: str = ""
    shrink_blocked_by: str = msgspec.field(default="", name="keeps")
    placement: tuple[Reservation, ...] | None = None
    roles: dict[str, GangRole] | None = None
    ledger: GangLedger | None = None
    story: tuple[Step, ...] | None = None
    conditions: tuple[GangCondition, ...] | None = None


class Gang(_Struct):
    metadata: Meta
    spec: GangSpec = msgspec.field(default_factory=GangSpec)
    status: GangStatus = msgspec.field(default_factory=GangStatus)


class LeaseSpec(_Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(_Struct):
    metadata: Meta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class GangPolicy(_Struct):
    min_count: int = 0


class SchedulingPolicy(_Struct):
    gang: GangPolicy | None = None


class PodGroupSpec(_Struct):
    scheduling_policy: SchedulingPolicy | None = None
    min_member: int = 0


class PodGroup(_Struct):
    metadata: Meta
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)


class ListMeta(_Struct):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class RawList(_Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] = []


class WatchEvent(_Struct):
    type: str
    object: msgspec.Raw


class Version(_Struct):
    resource_version: str = ""


class Bookmark(_Struct):
    """Any object of a watch, as far as the watch itself reads it."""

    metadata: Version


class ErrorStatus(_Struct):
    code: int = 0
    message: str = ""
