"""Pods that hold devices: how they are written (holder_records reads them), and what the core decides is sent.

    labels       muster.dev/holder: "true"
    annotations  muster.dev/holds-for: NAMESPACE/NAME (the job on whose account it was made)
                 muster.dev/assigned: {"epoch": 4294967298, "pod": UID, "incarnation": "0f8c..."} (the record)
                 muster.dev/assigned-second: likewise, of the second seat (two jobs share the device)
                 muster.dev/device: GPU-6a... (where the status does not say it, what its container told)

Its node is required by name, so it is nowhere else, whoever binds it. A pod that others delete or evict keeps its
device for lease + grace (preStop). Muster, which knows that nobody uses it, takes it away at once. All writes are on
the version that was read: of an assignment and a deletion that cross each other one fails.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from muster.cluster.api import MERGE, NOT_SENT, Api, Errand, message
from muster.cluster.holder_records import ASSIGNED, DEVICE, LABEL, NODE_NAME, SECOND, version_of
from muster.cluster.holding import Holding, tells
from muster.cluster.lease import Term
from muster.cluster.paths import path
from muster.cluster.worker_pool import WorkerPool
from muster.errors import ClusterError
from muster.types import GPU
from muster.types.holders import (
    AssignHolder,
    ClearSeat,
    CreateHolder,
    DeleteHolder,
    HolderAction,
    HolderOutcome,
    NameDevice,
)

log = logging.getLogger(__name__)

HOLDS_FOR = "muster.dev/holds-for"
"""Annotation by Muster, NAMESPACE/NAME: the job for which a pod that holds a device was made."""
SPARE = 5
"""Seconds that a holder's own end may take."""
THREADS = 4


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
    mine, other = (SECOND, ASSIGNED) if action.second else (ASSIGNED, SECOND)
    written: dict[str, str | None] = {mine: json.dumps(record, separators=(",", ":"))}
    if action.clears:
        written[other] = None
    return _noted(action, written)


def _noted(action: AssignHolder | ClearSeat | NameDevice, notes: Mapping[str, str | None]) -> dict[str, Any]:
    found = {"uid": action.uid, "resourceVersion": action.version}
    return {"metadata": {**found, "annotations": notes}}


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
        named = path("v1", "pods", self._how.namespace, action.name)
        match action:
            case CreateHolder():
                return api.request("POST", where, holder_object(action, self._how))
            case NameDevice():
                return api.request("PATCH", named, _noted(action, {DEVICE: action.device}), MERGE)
            case AssignHolder():
                return api.request("PATCH", named, assign_patch(action), MERGE)
            case ClearSeat():
                note = SECOND if action.second else ASSIGNED
                return api.request("PATCH", named, _noted(action, {note: None}), MERGE)
            case DeleteHolder():
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
        return version_of(data)
    except msgspec.DecodeError:
        return ""
