"""Carrying out actions: each is one idempotent request or a short chain, and ends in an Outcome.

A few threads take actions in the plan's order. Whatever the server says comes back as an event (design §3):
409 (stale version), 422 (another uid), 404, 429 and timeouts are news for the next cycle, not errors.
"""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from muster.cluster import decode
from muster.cluster.api import JSON, MERGE, STRATEGIC, Api, message
from muster.cluster.watch import Sink
from muster.errors import ClusterError
from muster.types import (
    GATE,
    Action,
    DeleteGang,
    Event,
    Evict,
    GangSeen,
    JobKey,
    Nominate,
    Outcome,
    Owner,
    PodSeen,
    Say,
    Ungate,
    WriteGang,
)

log = logging.getLogger(__name__)

GANGS = "/apis/muster.dev/v1alpha1/namespaces/{}/gangs"
GONE = 404


class Hands:
    """The threads that send. `scheduler` is the schedulerName, to decode the pods that come back.

    They wait for the server nearly all of the time, so their number is the number of requests under way: 16 at 25 ms
    an answer are 640 a second, and a small part of what an API server lets one client have.
    """

    def __init__(self, api: Api, sink: Sink, scheduler: str, threads: int = 16) -> None:
        self._api, self._sink, self._scheduler = api, sink, scheduler
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="act")
        # Neither what is only told delays a start: statuses that hold no placement, and Events.
        self._book = ThreadPoolExecutor(4, thread_name_prefix="book")
        self._talk = ThreadPoolExecutor(1, thread_name_prefix="say")

    def carry_out(self, actions: tuple[Action, ...]) -> None:
        """Queue actions; returns at once."""
        for action in actions:
            self._pool_of(action).submit(self._one, action)

    def _pool_of(self, action: Action) -> ThreadPoolExecutor:
        match action:
            case Say():
                return self._talk
            case DeleteGang() | WriteGang(holds=()):
                return self._book
            case _:
                return self._pool

    def close(self) -> None:
        """Stop taking actions; what is under way ends."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._book.shutdown(wait=True, cancel_futures=True)
        self._talk.shutdown(wait=True, cancel_futures=True)

    def _one(self, action: Action) -> None:
        seen: list[Event] = []
        try:
            status, text = self._send(action, seen)
        except ClusterError as error:
            status, text = error.status, str(error)
        except Exception as error:  # a bug must not end the thread, and must be seen
            log.exception("%s failed", type(action).__name__)
            status, text = 0, str(error)
        if not 200 <= status < 300 and status != GONE:
            log.info("%s %s: %s %s", type(action).__name__, action.job, status, text)
        self._sink([*seen, Outcome(action, status, text)])

    def _send(self, action: Action, seen: list[Event]) -> tuple[int, str]:
        match action:
            case Ungate():
                return self._pod_patch(action.job, action.pod, ungate_patch(action), "", seen)
            case Nominate():
                body = {"metadata": {"uid": action.uid}, "status": {"nominatedNodeName": action.node}}
                return self._pod_patch(action.job, action.pod, body, "/status", seen)
            case Evict():
                return self._evict(action, seen)
            case WriteGang():
                return self._write_gang(action, seen)
            case DeleteGang():
                return self._delete_gang(action.job, action.gang, action.object_uid)
            case Say():
                return self._say(action)

    def _pod_patch(
        self, job: JobKey, name: str, body: dict[str, Any] | bytes, part: str, seen: list[Event]
    ) -> tuple[int, str]:
        status, data = self._api.request("PATCH", pod_path(job, name) + part, body, STRATEGIC)
        if status == 200:
            seen.append(PodSeen(decode.pod(data, self._scheduler)))
        return status, "" if status == 200 else message(data)

    def _evict(self, action: Evict, seen: list[Event]) -> tuple[int, str]:
        """Design §1: dry run, the Job controller's finalizer off, evict; put back if it is refused."""
        if action.tracked:
            status, text = self._eviction(action, dry_run=True)
            if not 200 <= status < 300:
                return status, text
            off = {
                "metadata": {
                    "uid": action.uid,
                    "resourceVersion": action.version,
                    "$deleteFromPrimitiveList/finalizers": [decode.TRACKING],
                }
            }
            status, text = self._pod_patch(action.job, action.pod, off, "", seen)
            if status != 200:
                return status, text
        status, text = self._eviction(action, dry_run=False)
        if action.tracked and not 200 <= status < 300 and status != GONE:
            back = {"metadata": {"uid": action.uid, "finalizers": [decode.TRACKING]}}
            self._pod_patch(action.job, action.pod, back, "", seen)
        return status, text

    def _eviction(self, action: Evict, *, dry_run: bool) -> tuple[int, str]:
        options: dict[str, Any] = {"preconditions": {"uid": action.uid}}
        if dry_run:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": action.pod, "namespace": action.job.namespace},
            "deleteOptions": options,
        }
        status, data = self._api.request("POST", pod_path(action.job, action.pod) + "/eviction", body)
        return status, "" if 200 <= status < 300 else message(data)

    def _write_gang(self, action: WriteGang, seen: list[Event]) -> tuple[int, str]:
        """Create where it is missing, then the status: placements are on the API before a gate comes off."""
        path = GANGS.format(quote(action.job.namespace))
        name = quote(action.gang)
        if action.replaces:
            status, text = self._delete_gang(action.job, action.gang, action.replaces)
            if status not in (200, 202, GONE):
                return status, text
        if not action.exists:
            status, data = self._api.request("POST", path, gang_object(action))
            if status == 409:  # created by an earlier term, or its predecessor is not gone yet
                status, data = self._api.request("GET", f"{path}/{name}")
                found = json.loads(data) if status == 200 else {}
                if found.get("spec", {}).get("uid", "") != action.job.uid or "deletionTimestamp" in found.get(
                    "metadata", {}
                ):
                    return 409, "a Gang of the same name belongs to an earlier job"
            elif not 200 <= status < 300:
                return status, message(data)
        status, data = self._api.request("PATCH", f"{path}/{name}/status", {"status": action.status}, MERGE)
        if status == 200:
            seen.append(GangSeen(decode.gang(data)))
        return status, "" if status == 200 else message(data)

    def _delete_gang(self, job: JobKey, gang: str, object_uid: str) -> tuple[int, str]:
        path = f"{GANGS.format(quote(job.namespace))}/{quote(gang)}"
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": object_uid}}
        status, data = self._api.request("DELETE", path, body)
        return status, "" if 200 <= status < 300 else message(data)

    def _say(self, action: Say) -> tuple[int, str]:
        path = f"/api/v1/namespaces/{quote(action.job.namespace)}/events"
        status, data = self._api.request("POST", path, event_object(action))
        return status, "" if 200 <= status < 300 else message(data)


def pod_path(job: JobKey, name: str) -> str:
    """The path of a pod of a job."""
    return f"/api/v1/namespaces/{quote(job.namespace)}/pods/{quote(name)}"


def ungate_patch(action: Ungate) -> bytes:
    """The patch (design §1): our gate off by name, uid and version as preconditions, and the pin.

    The pin is appended to *every* required term, since terms are ORed; the list is atomic, so it is whole.
    """
    spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": GATE}]}
    if action.pin:
        field = {"key": decode.NAME_FIELD, "operator": "In", "values": [action.node]}
        terms = json.loads(action.affinity_terms or b"[]")
        for term in terms:
            term["matchFields"] = [*(term.get("matchFields") or ()), field]
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": terms or [{"matchFields": [field]}]
                }
            }
        }
    metadata = {"uid": action.uid, "resourceVersion": action.version}
    return json.dumps({"metadata": metadata, "spec": spec}).encode()


def gang_object(action: WriteGang) -> dict[str, Any]:
    """A Gang as it is created; its status follows."""
    metadata: dict[str, Any] = {"name": action.gang, "namespace": action.job.namespace}
    spec: dict[str, Any] = {"job": action.job.name, "uid": action.job.uid}
    if action.owner is not None:
        metadata["ownerReferences"] = [_reference(action.owner)]
        spec["owner"] = _reference(action.owner)
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "Gang", "metadata": metadata, "spec": spec}


def _reference(owner: Owner) -> dict[str, str]:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}


def event_object(action: Say) -> dict[str, Any]:
    """An Event about a pod or an owner."""
    if action.owner is not None:
        about: dict[str, str] = _reference(action.owner)
    else:
        about = {"apiVersion": "v1", "kind": "Pod", "name": action.pod, "uid": action.uid}
    now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about['name'][:200]}.", "namespace": action.job.namespace},
        "involvedObject": about | {"namespace": action.job.namespace},
        "reason": action.reason,
        "message": action.message[:1024],
        "type": "Warning" if action.warning else "Normal",
        "source": {"component": "muster"},
        "reportingComponent": "muster",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


__all__ = ["JSON", "Hands", "event_object", "gang_object", "pod_path", "ungate_patch"]
