"""From the API's bytes to the core's records. Pure: bytes in, records out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from math import ceil

import msgspec
from kubernetes.utils.quantity import parse_quantity

from muster.cached import MIB, cached
from muster.cluster import api_types
from muster.core.actions import gang_codec
from muster.core.bounds import AMOUNT, GPUS, NOTE, Bound
from muster.core.workload import identity, success_policy
from muster.core.workload.volumes import VOLUMES
from muster.types import (
    GATE,
    GPU,
    Condition,
    GangRecord,
    JobKey,
    NodeBackoff,
    NodeRecord,
    Owner,
    OwnerRecord,
    Phase,
    PodRecord,
    Port,
    Requirement,
    Reservation,
    Shape,
    Taint,
    Term,
    Toleration,
)

TRACKING = "batch.kubernetes.io/job-tracking"
NAME_FIELD = "metadata.name"
JOB_IS_OVER = frozenset({"SuccessCriteriaMet", "Complete", "FailureTarget", "Failed"})
"""Conditions of a Job after which it creates no pod any more, whatever its completions say."""

_LABELS = frozenset(
    {
        identity.JOB,
        identity.LWS_GROUP,
        identity.MODEL,
        "jobset.sigs.k8s.io/replicatedjob-replicas",
        *(label for label, _ in identity.NAME_LABELS),
        *identity.ROLE_LABELS,
        *identity.INDEX_KEYS,
        *identity.REVISION_LABELS,
    }
)
_ANNOTATIONS = frozenset({"scheduling.k8s.io/group-name", identity.LWS_SIZE, *identity.INDEX_KEYS})
_OURS = "muster.dev/"

_pod = msgspec.json.Decoder(api_types.Pod)
_sketch = msgspec.json.Decoder(api_types.PodSketch)
_anything = msgspec.json.Decoder(api_types.Anything)
_node = msgspec.json.Decoder(api_types.Node)
_workload = msgspec.json.Decoder(api_types.Workload)
_gang = msgspec.json.Decoder(api_types.Gang)
_terms = msgspec.json.Decoder(list[api_types.SelectorTerm])
_placement = msgspec.json.Decoder(tuple[Reservation, ...])
_list = msgspec.json.Decoder(api_types.RawList)

Amounts = Mapping[str, str | int | float]


def listed(data: bytes) -> api_types.RawList:
    """One page of a list, its objects as they came."""
    return _list.decode(data)


def named(data: bytes | msgspec.Raw) -> api_types.Named:
    """An object's name, of any that has one. Raises msgspec.DecodeError for what is no object of the API."""
    return _anything.decode(data).metadata


@cached("times", 8 * MIB)
def seconds(text: str | None) -> float:
    """Unix seconds of an RFC 3339 time, 0 for none, for one before 1970, and for what is no time."""
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp()) if text else 0.0
    except (ValueError, OverflowError):
        return 0.0


@cached("quantities", 16 * MIB)
def quantity(resource: str, text: str | int | float) -> int:
    """A resource quantity as a whole number, rounded up: cpu in millicores, the rest in units.

    No more than ENOUGH, whatever its exponent is; below 0 is 0 (no pod asks for that, and no node has it).
    """
    value: Decimal = parse_quantity(text)  # type: ignore[no-untyped-call]
    if not value.is_finite() or value <= 0:
        return 0
    if value.adjusted() > LARGEST:  # 10**(10**6) is not worked out
        return ENOUGH
    return min(ceil(value * 1000) if resource == "cpu" else ceil(value), ENOUGH)


LARGEST = 24
ENOUGH: int = 10**LARGEST
"""More than the API server keeps of a quantity (2**63 units)."""


def _amounts(found: Amounts | None) -> dict[str, int]:
    return {name: quantity(name, value) for name, value in (found or {}).items()}


def _bound(resource: str) -> Bound:
    return GPUS if resource == GPU or resource.endswith("/gpu") else AMOUNT


def _add(into: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        into[name] = into.get(name, 0) + value


def requests(spec: api_types.PodSpec) -> tuple[tuple[str, int], ...]:
    """What a pod takes, as kube-scheduler counts it, sorted by resource, each no more than its bound.

    Containers and sidecars together, or the largest init container with the sidecars started before it;
    pod-level requests replace those of the containers; overhead is added (k8s component-helpers PodRequests).
    Without the mark of an extender entry, which no node offers and kube-scheduler does not count either.
    """
    return _bounded(_summed(spec))[0]


def _summed(spec: api_types.PodSpec) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _asked(container.resources))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers or ():
        own = _asked(container.resources)
        if container.restart_policy == "Always":
            _add(sidecars, own)
            now = dict(sidecars)
        else:
            now = dict(own)
            _add(now, sidecars)
        for name, value in now.items():
            peak[name] = max(peak.get(name, 0), value)
    _add(total, sidecars)
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    if spec.resources is not None:
        total |= _asked(spec.resources)
    _add(total, _amounts(spec.overhead))
    return total


def _bounded(total: Mapping[str, int]) -> tuple[tuple[tuple[str, int], ...], str]:
    """The amounts, sorted and bounded, and in words which of them was beyond its bound, "" = none."""
    amounts, beyond = [], ""
    for name, value in sorted(total.items()):
        if not value or name == identity.MARK:
            continue
        bound = _bound(name)
        if value > bound.most:
            beyond = beyond or bound.beyond(f"requests of {name}{_UNITS.get(name, '')}", value)
            value = bound.most
        amounts.append((name, value))
    return tuple(amounts), beyond


_UNITS = {"cpu": " (millicores)", "memory": " (bytes)", "ephemeral-storage": " (bytes)"}


def _asked(resources: api_types.Resources) -> dict[str, int]:
    """Requests; where only a limit is set, it is the request (the API server defaults so too)."""
    return _amounts(resources.limits) | _amounts(resources.requests)


@cached("shapes", 64 * MIB)
def _shape(
    requests: tuple[tuple[str, int], ...],
    ports: tuple[Port, ...],
    selector: tuple[tuple[str, str], ...] = (),
    affinity: tuple[Term, ...] = (),
    tolerations: tuple[tuple[str, str, str, str], ...] = (),
    unmodelled: tuple[str, ...] = (),
) -> Shape:
    """Pods of one template share one Shape object: it need not be made, and comparing and hashing it is cheap."""
    return Shape(
        requests=requests,
        selector=selector,
        affinity=affinity,
        tolerations=tuple(Toleration(*one) for one in tolerations),
        ports=ports,
        unmodelled=unmodelled,
    )


def pod(data: bytes | msgspec.Raw, scheduler: str) -> PodRecord:
    """One pod. `scheduler` is the schedulerName of ours; other pods are read as foreign ones.

    Admission may have replaced schedulerName (binder: cluster); the label says what it was.

    Raises msgspec.DecodeError for bytes that are no pod.
    """
    found = _pod.decode(data)
    meta, spec, status = found.metadata, found.spec, found.status
    phase = _phase(found)
    amounts, beyond = _bounded(_summed(spec))
    if scheduler not in (spec.scheduler_name, (meta.labels or {}).get(identity.SCHEDULER)):
        return PodRecord(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            version=meta.resource_version,
            ours=False,
            phase=phase,
            node=spec.node_name,
            shape=_shape(amounts, _ports(spec)),
            priority=spec.priority,
        )
    raw, pin, terms = b"", "", tuple[Term, ...]()
    node_affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if node_affinity is not None and node_affinity.required is not None:
        raw = bytes(node_affinity.required.node_selector_terms)
        pin, terms = _required(raw, phase is Phase.GATED or phase is Phase.HELD)
    refusal = next(
        (c for c in status.conditions or () if c.type == "PodScheduled" and c.reason == "Unschedulable"), None
    )
    return PodRecord(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        version=meta.resource_version,
        created=seconds(meta.creation_timestamp),
        phase=phase,
        node=spec.node_name,
        pin=pin,
        nominated=status.nominated_node_name,
        shape=_shape_of(spec, amounts, terms),
        priority=spec.priority,
        controller=controller(meta),
        labels=_labels(meta),
        annotations=_annotations(meta),
        group=spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else "",
        refusal=refusal.message if refusal is not None else "",
        deleting=meta.deletion_timestamp is not None,
        foreign=phase is Phase.HELD and all(g.name != GATE for g in spec.scheduling_gates or ()),
        tracked=TRACKING in (meta.finalizers or ()),
        image=sys.intern(spec.containers[0].image) if spec.containers else "",
        applied=any(entry.operation == "Apply" for entry in meta.managed_fields or ()),
        claims=_claims(meta.name, spec),
        affinity_terms=raw,
        carries=_carried(meta) if pin else (),
        beyond=beyond,
    )


def sketch(data: bytes | msgspec.Raw, scheduler: str) -> PodRecord | None:
    """As much of a pod that can't be decoded as says whose it is and where; None where not even that can be read."""
    try:
        found = _sketch.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return None
    meta, spec = found.metadata, found.spec
    return PodRecord(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        version=meta.resource_version,
        created=seconds(meta.creation_timestamp),
        ours=scheduler in (spec.scheduler_name, (meta.labels or {}).get(identity.SCHEDULER)),
        phase=_phase(found),
        node=spec.node_name,
        controller=controller(meta),
        labels=_labels(meta),
        annotations=_annotations(meta),
        group=spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else "",
        deleting=meta.deletion_timestamp is not None,
    )


def _labels(meta: api_types.Meta) -> dict[str, str]:
    return {k: v for k, v in (meta.labels or {}).items() if k in _LABELS}


def _annotations(meta: api_types.Meta) -> dict[str, str]:
    return {
        k: v[: NOTE.most + 1]
        for k, v in (meta.annotations or {}).items()
        if (k.startswith(_OURS) and k != identity.PLAN) or k in _ANNOTATIONS
    }


def shape(spec: api_types.PodSpec) -> Shape:
    """What a pod of a template asks of a node."""
    node_affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    terms: tuple[Term, ...] = ()
    if node_affinity is not None and node_affinity.required is not None:
        _, terms = _required(bytes(node_affinity.required.node_selector_terms), True)
    return _shape_of(spec, requests(spec), terms)


def _shape_of(
    spec: api_types.PodSpec, amounts: tuple[tuple[str, int], ...], terms: tuple[Term, ...]
) -> Shape:
    return _shape(
        amounts,
        _ports(spec),
        tuple(sorted((spec.node_selector or {}).items())),
        terms,
        tuple((t.key, t.operator, t.value, t.effect) for t in spec.tolerations or ()),
        _unmodelled(spec),
    )


def _phase(pod: api_types.Pod | api_types.PodSketch) -> Phase:
    spec, meta = pod.spec, pod.metadata
    if pod.status.phase == "Succeeded":
        return Phase.SUCCEEDED
    if pod.status.phase == "Failed":
        return Phase.FAILED
    if spec.node_name:
        return Phase.ENDING if meta.deletion_timestamp is not None else Phase.BOUND
    gates = {gate.name for gate in spec.scheduling_gates or ()}
    if gates == {GATE}:
        return Phase.GATED
    if gates:
        return Phase.HELD
    released = (meta.annotations or {}).get(identity.RELEASED) == "true"
    return Phase.RELEASED if released else Phase.UNGATED


def _carried(meta: api_types.Meta) -> tuple[Reservation, ...]:
    """What a pod that we pinned carries of its job's start; nothing where that can't be read."""
    text = (meta.annotations or {}).get(identity.PLAN, "[]")
    try:
        return _placement.decode(text) if len(text) <= NOTE.most else ()
    except (msgspec.DecodeError, UnicodeError):
        return ()


def controller(meta: api_types.Meta) -> Owner | None:
    """The controlling owner."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return Owner(owner.api_version, owner.kind, owner.name, owner.uid)
    return None


def _ports(spec: api_types.PodSpec) -> tuple[Port, ...]:
    return tuple(
        sorted(
            Port(p.protocol, p.host_i_p, p.host_port)
            for c in spec.containers
            for p in c.ports or ()
            if p.host_port
        )
    )


def _term(term: api_types.SelectorTerm) -> Term:
    return Term(
        tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in term.match_expressions or ()),
        tuple(Requirement(r.key, r.operator, tuple(r.values or ())) for r in term.match_fields or ()),
    )


@cached("node affinity", 16 * MIB)
def _required(raw: bytes, gated: bool) -> tuple[str, tuple[Term, ...]]:
    """The pin of a pod whose gate is off, and the terms without it. Kept: a patch's answer and the watch tell the
    same several times."""
    terms = tuple(_term(t) for t in _terms.decode(raw))
    return ("", terms) if gated else _split_pin(terms)


def _split_pin(terms: tuple[Term, ...]) -> tuple[str, tuple[Term, ...]]:
    """The node that every term names last, and the terms as they were before it was appended."""
    last = [t.fields[-1] if t.fields else None for t in terms]
    names = {r.values for r in last if r is not None and r.key == NAME_FIELD and r.operator == "In"}
    if not terms or None in last or len(names) != 1 or len(next(iter(names))) != 1:
        return "", terms
    rest = tuple(Term(t.expressions, t.fields[:-1]) for t in terms)
    return next(iter(names))[0], () if rest == (Term(),) else rest


def _unmodelled(spec: api_types.PodSpec) -> tuple[str, ...]:
    """What the planner does not model, in words: such pods are placed the scored way (design §2)."""
    found = []
    affinity = spec.affinity
    if affinity is not None:
        if affinity.pod_affinity is not None and affinity.pod_affinity.required:
            found.append("podAffinity")
        if affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
            found.append("podAntiAffinity")
    if any(s.when_unsatisfiable == "DoNotSchedule" for s in spec.topology_spread_constraints or ()):
        found.append("topologySpreadConstraints DoNotSchedule")
    if spec.resource_claims:
        found.append("resourceClaims")
    if any(v.persistent_volume_claim is not None or v.ephemeral is not None for v in spec.volumes or ()):
        found.append(VOLUMES)
    return tuple(found)


def _claims(pod: str, spec: api_types.PodSpec) -> tuple[str, ...]:
    """Names of the pod's claims; of an ephemeral volume, the name by which its controller makes one."""
    names = []
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            names.append(str(volume.persistent_volume_claim.get("claimName", "")))
        elif volume.ephemeral is not None:
            names.append(f"{pod}-{volume.name}")
    return tuple(sorted(names))


def node(data: bytes | msgspec.Raw) -> NodeRecord:
    """One node."""
    found = _node.decode(data)
    return NodeRecord(
        name=found.metadata.name,
        labels=found.metadata.labels or {},
        taints=tuple(Taint(t.key, t.value, t.effect) for t in found.spec.taints or ()),
        unschedulable=found.spec.unschedulable,
        # Less than a pod may ask for: who asks for the most fits nowhere.
        allocatable={
            name: min(amount, _bound(name).most - 1)
            for name, amount in _amounts(found.status.allocatable).items()
        },
    )


def workload(kind: str, api_version: str) -> Callable[[bytes | msgspec.Raw], OwnerRecord]:
    """A decoder for Job, ReplicaSet, StatefulSet or Deployment."""

    def decode(data: bytes | msgspec.Raw) -> OwnerRecord:
        found = _workload.decode(data)
        meta, spec = found.metadata, found.spec
        owner = Owner(api_version, kind, meta.name, meta.uid)
        if kind == "Job":
            conditions = found.status.conditions or ()
            over = next((c.type for c in conditions if c.type in JOB_IS_OVER and c.status == "True"), "")
            over = over or ("Deleted" if meta.deletion_timestamp else "")
            size = 0 if spec.suspend or over else 1 if spec.parallelism is None else spec.parallelism
            return OwnerRecord(
                owner,
                meta.namespace,
                size=size,
                parent=controller(meta),
                created=seconds(meta.creation_timestamp),
                completions=spec.completions,
                queue=spec.completions is None,
                succeeded=found.status.succeeded,
                whole=spec.completion_mode == "Indexed" and not spec.success_policy,
                prefix=success_policy.prefix((spec.success_policy or {}).get("rules") or ()),
                suspended=spec.suspend and not over,
                over=over,
            )
        return OwnerRecord(
            owner,
            meta.namespace,
            size=1 if spec.replicas is None else spec.replicas,
            parent=controller(meta),
            created=seconds(meta.creation_timestamp),
            ordered=kind == "StatefulSet" and spec.pod_management_policy != "Parallel",
        )

    return decode


def _referred(owner: api_types.GangOwner | None) -> Owner | None:
    return None if owner is None else Owner(owner.api_version, owner.kind, owner.name, owner.uid)


def gang(data: bytes | msgspec.Raw) -> GangRecord:
    """One Gang object."""
    found = _gang.decode(data)
    meta, status = found.metadata, found.status
    ledger = status.ledger or api_types.GangLedger()
    reason, message = gang_codec.why(status.code, status.reason, status.message)
    return GangRecord(
        key=JobKey(meta.namespace, found.spec.job or meta.name, found.spec.uid),
        name=meta.name,
        object_uid=meta.uid,
        version=meta.resource_version,
        owner=_referred(found.spec.owner),
        declared_by=_referred(found.spec.declared_by),
        state=status.state,
        reason=reason,
        message=gang_codec.unqueued(message),
        turn=gang_codec.turn(
            status.state,
            status.position,
            status.fits,
            status.blocker,
            seconds(status.expected_start),
            status.expected,
        ),
        conditions=tuple(
            Condition(sys.intern(one.type), sys.intern(one.status), seconds(one.last_transition_time))
            for one in status.conditions or ()
        ),
        old=bool(status.code) or (bool(status.state) and not status.conditions),
        since=seconds(status.since),
        submitted=seconds(status.submitted),
        queued_from=ledger.queued_from,
        created=seconds(meta.creation_timestamp),
        started=seconds(status.started),
        ended=seconds(status.ended),
        placement=status.placement or (),
        replicas=status.replicas,
        backoff=ledger.backoff,
        not_before=ledger.not_before,
        asked=ledger.asked,
        node_backoffs=tuple(NodeBackoff(b.role, b.node, b.until, b.seconds) for b in ledger.barred or ()),
        whole=None if ledger.whole is None else {part.role: part.min for part in ledger.whole},
        shrink_blocked_by=status.shrink_blocked_by,
        sizes=tuple(sorted((name, role.min, role.max) for name, role in (status.roles or {}).items())),
        story=status.story or (),
        **gang_codec.from_plain((ledger.elastic or [{}])[0]),
    )
