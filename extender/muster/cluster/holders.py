"""Pods that hold devices: how they are written and read, and the requests for what the core decides about them.

    labels       muster.dev/holder: "true"
    annotations  muster.dev/holds-for: NAMESPACE/NAME (the job on whose account it was made)
                 muster.dev/assigned: {"epoch": 4294967298, "pod": UID, "incarnation": "0f8c..."} (the record)
                 muster.dev/device: GPU-6a... (where the status does not say it, what its container told)

Its node is required by name, so it is nowhere else, whoever binds it. A pod that others delete or evict keeps its
device for lease + grace (preStop). Muster, which knows that nobody uses it, takes it away at once. All writes are on
the version that was read: of an assignment and a deletion that cross each other one fails.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from muster.cluster import api_types
from muster.cluster.api import MERGE, NOT_SENT, Api, Errand, message
from muster.cluster.holding import Holding, tells
from muster.cluster.lease import Term
from muster.cluster.paths import path
from muster.cluster.worker_pool import WorkerPool
from muster.errors import ClusterError
from muster.types import GPU, Phase
from muster.types.devices import AgentKey, MalformedError, device_id
from muster.types.holders import (
    AssignHolder,
    CreateHolder,
    DeleteHolder,
    HolderAction,
    HolderOutcome,
    HolderRecord,
    NameDevice,
)

log = logging.getLogger(__name__)

LABEL = "muster.dev/holder"
"""Label by Muster, `true`: a pod of Muster's own that holds a device, in `devices.namespace`."""
HOLDS_FOR = "muster.dev/holds-for"
"""Annotation by Muster, NAMESPACE/NAME: the job for which a pod that holds a device was made."""
ASSIGNED = "muster.dev/assigned"
"""Annotation by Muster, JSON: whose the device of a pod that holds one is, and since which order."""
DEVICE = "muster.dev/device"
"""Annotation by Muster: the device of a pod that holds one, as its container told it (`devices.report: hold`)."""
SPARE = 5
"""Seconds that a holder's own end may take."""
THREADS = 4
NODE_NAME = "metadata.name"


# ---- written ----


def holder_object(action: CreateHolder, how: Holding) -> dict[str, Any]:
    """The pod."""
    amounts = {GPU: "1", "cpu": "10m", "memory": "16Mi"}
    on_node = {"key": NODE_NAME, "operator": "In", "values": [action.node]}
    spec: dict[str, Any] = {
        "schedulerName": how.scheduler,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [on_node]}]
                }
            }
        },
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": how.stays + SPARE,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "runAsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "hold",
                "image": how.image,
                "resources": {"limits": amounts, "requests": amounts},
                "lifecycle": {"preStop": {"sleep": {"seconds": how.stays}}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
    }
    if how.priority_class:
        spec["priorityClassName"] = how.priority_class
    if how.url:
        tells(spec, how)
    job = action.job
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": action.name,
            "namespace": how.namespace,
            "labels": {LABEL: "true", "app.kubernetes.io/managed-by": "muster"},
            "annotations": {HOLDS_FOR: f"{job.namespace}/{job.name}"},
        },
        "spec": spec,
    }


def assign_patch(action: AssignHolder) -> dict[str, Any]:
    """The record, on the version that was read."""
    record = {"epoch": action.epoch, "pod": action.agent.pod, "incarnation": action.agent.incarnation}
    return _noted(action, ASSIGNED, json.dumps(record, separators=(",", ":")))


def _noted(action: AssignHolder | NameDevice, name: str, value: str) -> dict[str, Any]:
    found = {"uid": action.uid, "resourceVersion": action.version}
    return {"metadata": {**found, "annotations": {name: value}}}


# ---- read ----


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
    text = (meta.annotations or {}).get(ASSIGNED)
    record = _assigned.decode(text) if text else None
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


# ---- sent ----


class _Sending(NamedTuple):
    action: HolderAction
    term: Term


class HolderExecutor:
    """The threads that send. sink: where outcomes go."""

    def __init__(self, api: Api, how: Holding, sink: Callable[[HolderOutcome], None]) -> None:
        self._api, self._how, self._sink = api, how, sink
        self._crew: WorkerPool[_Sending] = WorkerPool("hold", THREADS, self._one)

    def carry_out(self, actions: tuple[HolderAction, ...], term: Term) -> None:
        """Queue actions; returns at once. None is sent once the term is over."""
        for action in actions:
            # A record stands between two trainings; a holder that goes, between nobody.
            self._crew.give(_Sending(action, term), rank=0 if isinstance(action, AssignHolder) else 1)

    def drop(self) -> None:
        """Forget what no thread has taken yet."""
        self._crew.drop()

    def close(self, *, all_of_it: bool = False) -> None:
        """What is under way ends, and what waits where `all_of_it` is wanted."""
        self._crew.close(all_of_it=all_of_it)

    def _one(self, sending: _Sending) -> None:
        action = sending.action
        api = self._api.during(Errand(sending.term.open))
        try:
            status, data = self._send(api, action)
        except ClusterError as error:
            status, data = error.status, str(error).encode()
        except Exception as error:  # a bug must not end the thread, and must be seen
            log.exception("%s failed", type(action).__name__)
            status, data = 0, str(error).encode()
        if 200 <= status < 300:
            self._sink(HolderOutcome(action, status, "", _version(data)))
            return
        text = message(data)
        if status not in (404, NOT_SENT):
            log.info("%s %s: %s %s", type(action).__name__, action.name, status, text)
        self._sink(HolderOutcome(action, status, text))

    def _send(self, api: Api, action: HolderAction) -> tuple[int, bytes]:
        where = path("v1", "pods", self._how.namespace)
        match action:
            case CreateHolder():
                return api.request("POST", where, holder_object(action, self._how))
            case NameDevice():
                named = path("v1", "pods", self._how.namespace, action.name)
                return api.request("PATCH", named, _noted(action, DEVICE, action.device), MERGE)
            case AssignHolder():
                named = path("v1", "pods", self._how.namespace, action.name)
                return api.request("PATCH", named, assign_patch(action), MERGE)
            case DeleteHolder():
                named = path("v1", "pods", self._how.namespace, action.name)
                body = {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    # A kubelet that has begun to wait for preStop is not told of a shorter grace period.
                    "gracePeriodSeconds": 0 if action.leaving else 1,
                    "preconditions": {"uid": action.uid, "resourceVersion": action.version},
                }
                return api.request("DELETE", named, body)


def _version(data: bytes) -> str:
    try:
        return _holder.decode(data).metadata.resource_version
    except msgspec.DecodeError:
        return ""
