"""From a pod's bytes to the core's record of it. Pure: bytes in, records out."""

from __future__ import annotations

import sys

import msgspec

from muster.cached import MIB, cached
from muster.cluster import api_types
from muster.cluster.quantities import bounded, requests, seconds, summed
from muster.core.bounds import NOTE
from muster.core.workload import identity
from muster.core.workload.volumes import VOLUMES
from muster.types import (
    GATE,
    Owner,
    Phase,
    PodRecord,
    Port,
    Requirement,
    Reservation,
    Shape,
    Term,
    Toleration,
)

TRACKING = "batch.kubernetes.io/job-tracking"
NAME_FIELD = "metadata.name"

LABELS = frozenset(
    {
        identity.CONTROLLER,
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
"""Of a pod: the core is shown no others (150,000 pods are kept in memory)."""
_ANNOTATIONS = frozenset({"scheduling.k8s.io/group-name", identity.LWS_SIZE, *identity.INDEX_KEYS})
_OURS = "muster.dev/"

_pod = msgspec.json.Decoder(api_types.Pod)
_sketch = msgspec.json.Decoder(api_types.PodSketch)
_terms = msgspec.json.Decoder(list[api_types.SelectorTerm])
_placement = msgspec.json.Decoder(tuple[Reservation, ...])


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
    amounts, beyond = bounded(summed(spec))
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
    return {k: v for k, v in (meta.labels or {}).items() if k in LABELS}


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
