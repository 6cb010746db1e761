"""Pods that hold devices, as they are read: which device each has, and whose it is (holders.py writes that)."""

from __future__ import annotations

import logging

import msgspec

from muster.cluster import api_types
from muster.types import GPU, Phase
from muster.types.devices import AgentKey, MalformedError, device_id
from muster.types.holders import HolderRecord

log = logging.getLogger(__name__)

LABEL = "muster.dev/holder"
"""Label by Muster, `true`: a pod of Muster's own that holds a device, in `devices.namespace`."""
ASSIGNED = "muster.dev/assigned"
"""Annotation by Muster, JSON: whose the device of a pod that holds one is, and since which order."""
SECOND = "muster.dev/assigned-second"
"""Annotation by Muster, JSON: likewise of the second of two jobs that share it."""
DEVICE = "muster.dev/device"
"""Annotation by Muster: the device of a pod that holds one, as its container told it (`devices.report: hold`)."""
NODE_NAME = "metadata.name"


class _Struct(msgspec.Struct, rename="camel", gc=False):
    pass


class _Device(_Struct):
    resource_i_d: str = msgspec.field(default="", name="resourceID")
    health: str = ""


class _Allocated(_Struct):
    name: str = ""
    resources: list[_Device] | None = None


class _Container(_Struct):
    allocated: list[_Allocated] | None = msgspec.field(default=None, name="allocatedResourcesStatus")


class _Status(_Struct):
    container_statuses: list[_Container] | None = None


class _Spec(_Struct):
    node_name: str = ""
    affinity: api_types.Affinity | None = None


class _Holder(_Struct):
    metadata: api_types.Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Assigned(msgspec.Struct, gc=False):
    epoch: int
    pod: str
    incarnation: str


_holder = msgspec.json.Decoder(_Holder)
_assigned = msgspec.json.Decoder(_Assigned)
_terms = msgspec.json.Decoder(list[api_types.SelectorTerm])


def holder_record(data: bytes | msgspec.Raw, phase: Phase) -> HolderRecord | None:
    """What a pod says as a holder, None where it is none. Raises msgspec.DecodeError for a record that can't be read:
    somebody may use that device."""
    found = _holder.decode(data)
    meta = found.metadata
    if (meta.labels or {}).get(LABEL) != "true":
        return None
    record, second = (
        _assigned.decode(text) if (text := (meta.annotations or {}).get(name)) else None
        for name in (ASSIGNED, SECOND)
    )
    device, healthy = _device(found.status)
    device = device or (meta.annotations or {}).get(DEVICE, "")
    return HolderRecord(
        uid=meta.uid,
        node=found.spec.node_name or _wanted(found.spec),
        device=device,
        healthy=healthy,
        leaving=meta.deletion_timestamp is not None or phase.ended,
        epoch=record.epoch if record is not None else 0,
        agent=AgentKey(record.pod, record.incarnation) if record is not None else None,
        second_epoch=second.epoch if second is not None else 0,
        second=AgentKey(second.pod, second.incarnation) if second is not None else None,
    )


def _device(status: _Status) -> tuple[str, bool]:
    """The id of its device and whether that is healthy; "" while there is none, or it is a part of one."""
    for container in status.container_statuses or ():
        for resource in container.allocated or ():
            for device in resource.resources or () if resource.name == GPU else ():
                try:
                    return device_id("resourceID", device.resource_i_d), device.health != "Unhealthy"
                except MalformedError as error:
                    log.warning("a holder's device can't be given to a training: %s", error)
    return "", True


def _wanted(spec: _Spec) -> str:
    """The node that it is bound to, once it is."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return ""
    fields = [
        r for term in _terms.decode(affinity.required.node_selector_terms) for r in term.match_fields or ()
    ]
    names = [value for r in fields if r.key == NODE_NAME for value in r.values or ()]
    return names[0] if len(names) == 1 else ""


def version_of(data: bytes) -> str:
    """Its resourceVersion. Raises msgspec.DecodeError."""
    return _holder.decode(data).metadata.resource_version
