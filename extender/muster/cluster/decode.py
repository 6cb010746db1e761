"""From the API's bytes to the core's records. Pure: bytes in, records out."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from muster.cluster import api_types
from muster.cluster.decode_pods import controller
from muster.cluster.quantities import amounts, bound_of, seconds
from muster.core.gang_object import gang_codec
from muster.core.workload import success_policy
from muster.types import (
    Condition,
    GangRecord,
    JobKey,
    NodeBackoff,
    NodeRecord,
    Owner,
    OwnerRecord,
    Recreation,
    Taint,
)

JOB_IS_OVER = frozenset({"SuccessCriteriaMet", "Complete", "FailureTarget", "Failed"})
"""Conditions of a Job after which it creates no pod any more, whatever its completions say."""


_anything = msgspec.json.Decoder(api_types.Anything)
_node = msgspec.json.Decoder(api_types.Node)
_workload = msgspec.json.Decoder(api_types.Workload)
_gang = msgspec.json.Decoder(api_types.Gang)
_list = msgspec.json.Decoder(api_types.RawList)


def listed(data: bytes) -> api_types.RawList:
    """One page of a list, its objects as they came."""
    return _list.decode(data)


def named(data: bytes | msgspec.Raw) -> api_types.Named:
    """An object's name, of any that has one. Raises msgspec.DecodeError for what is no object of the API."""
    return _anything.decode(data).metadata


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
            name: min(amount, bound_of(name).most - 1)
            for name, amount in amounts(found.status.allocatable).items()
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
        old=bool(status.code)
        or (bool(status.state) and not status.conditions)
        or status.free != gang_codec.free(status.fits),
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
        recreated=Recreation(ledger.recreated.since, ledger.recreated.until)
        if ledger.recreated is not None
        else Recreation(),
        shrink_blocked_by=status.shrink_blocked_by,
        sizes=tuple(sorted((name, role.min, role.max) for name, role in (status.roles or {}).items())),
        story=status.story or (),
        **gang_codec.from_plain((ledger.elastic or [{}])[0]),
    )
