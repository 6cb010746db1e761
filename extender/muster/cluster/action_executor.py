"""Carrying out actions: each is one idempotent request or a short chain, and ends in an Outcome.

A few threads take actions in the plan's order, gates before further placements: the first job starts while others
are still being recorded. Whatever the server says comes back as an event (design §3): 409 (stale version), 422
(another uid), 404, 429 and timeouts are news for the next cycle, not errors.
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import nullcontext
from typing import Any, NamedTuple

from muster.cluster import decode, decode_pods, paths, provisioning_requests
from muster.cluster.action_bodies import event_object, expose_patch, gang_object, gang_patch, ungate_patch
from muster.cluster.api import JSON, MERGE, NOT_SENT, STRATEGIC, Api, Errand, message
from muster.cluster.evict import Eviction, pod_path, put_back
from muster.cluster.learned_store import Shelf
from muster.cluster.lease import Term
from muster.cluster.watch import Sink
from muster.cluster.worker_pool import WorkerPool
from muster.errors import ClusterError
from muster.types import (
    Action,
    CreateProvisioningRequest,
    DeleteGang,
    DeleteProvisioningRequest,
    Event,
    Evict,
    Expose,
    GangSeen,
    JobKey,
    Nominate,
    Outcome,
    PodSeen,
    RecordEvent,
    RestoreFinalizer,
    State,
    Ungate,
    WriteGang,
    WriteLearned,
)

log = logging.getLogger(__name__)

GANGS = "muster.dev/v1alpha1"
GONE = 404
CROWD = 64
"""So many requests of starts that wait to be sent are many."""


class Sending(NamedTuple):
    """An action on its way, and the term that it belongs to (None: it may be sent at any time)."""

    action: Action
    term: Term | None


def _always() -> bool:
    return True


class ActionExecutor:
    """The threads that send. `scheduler` is the schedulerName, to decode the pods that come back.

    They wait for the server nearly all of the time, so their number is the number of requests under way: 16 at 25 ms
    an answer are 640 a second, and a small part of what an API server lets one client have.
    Gates come off before further placements are recorded, in a Gang or on a start's first pod. None of those waits
    for ever: a gate that may come off is one of a placement that was recorded before.
    """

    def __init__(
        self, api: Api, sink: Sink, scheduler: str, threads: int = 16, shelf: Shelf | None = None
    ) -> None:
        self._api, self._sink, self._scheduler = api, sink, scheduler
        self._shelf = shelf or Shelf(api)
        self._part = ""
        self._overtaken: frozenset[str] = frozenset()
        self._starts: WorkerPool[Sending] = WorkerPool("act", threads, self._one)
        # Nor does what is only told delay a start: statuses that hold no placement, and Events. Why a job waits
        # is told before that others run.
        self._book: WorkerPool[Sending] = WorkerPool("book", 4, self._told)
        self._aside = threading.Lock()
        self._talk: WorkerPool[Sending] = WorkerPool("say", 1, self._one)

    def carry_out(self, actions: tuple[Action, ...], term: Term | None = None) -> None:
        """Queue actions; returns at once. None of their requests is sent once the term is over (Outcome NOT_SENT)."""
        for action in actions:
            sending = Sending(action, term)
            match action:
                case RecordEvent():
                    self._talk.give(sending)
                case WriteGang(leaves_whole=uids) if uids:  # evictions wait for it
                    self._starts.give(sending)
                case WriteGang(reservations=(), status={"state": State.RUNNING | State.FINISHED}):
                    self._book.give(sending, rank=1)
                case (
                    DeleteGang()
                    | WriteGang(reservations=())
                    | CreateProvisioningRequest()
                    | DeleteProvisioningRequest()
                    | WriteLearned()
                ):
                    self._book.give(sending)
                case WriteGang() | Ungate(carries=(_, *_)):
                    self._starts.give(sending, rank=1)
                case _:
                    self._starts.give(sending)

    def drop(self) -> int:
        """Forget what no thread has taken yet (a leader that stepped down): Outcome NOT_SENT for each; how many."""
        dropped = [sending for crew in (self._starts, self._book, self._talk) for sending in crew.drop()]
        self._sink([Outcome(sending.action, NOT_SENT, "the term is over") for sending in dropped])
        return len(dropped)

    @property
    def idle(self) -> bool:
        """Whether every action has had its Outcome."""
        return all(crew.idle for crew in (self._starts, self._book, self._talk))

    def call_back(self, uids: frozenset[str]) -> None:
        """Pods that are not to be ended after all: what has not begun is not done (Outcome NOT_SENT)."""
        self._overtaken = uids

    @property
    def crowded(self) -> bool:
        """Whether many requests of starts are not under way yet."""
        return self._starts.waiting > CROWD

    @property
    def starting(self) -> bool:
        """Whether any request of a start is not under way yet."""
        return self._starts.waiting > 0

    def close(self, *, all_of_it: bool = False) -> None:
        """Stop taking actions; what is under way ends, and what waits where `all_of_it` is wanted."""
        for crew in (self._starts, self._book, self._talk):
            crew.close(all_of_it=all_of_it)

    def _told(self, sending: Sending) -> None:
        """Under load, status-only writes are serialised: each costs the API server as much as a start."""
        with self._aside if self.crowded else nullcontext():
            self._one(sending)

    def _one(self, sending: Sending) -> None:
        seen: list[Event] = []
        action, term = sending
        api, errand = self._api, Errand(term.open if term is not None else _always)
        if term is not None:
            api = api.during(errand)
        try:
            status, text = self._send(api, action, seen)
        except ClusterError as error:
            status, text = error.status, str(error)
        except Exception as error:  # a bug must not end the thread, and must be seen
            log.exception("%s failed", type(action).__name__)
            status, text = 0, str(error)
        if not 200 <= status < 300 and status not in (GONE, NOT_SENT):
            log.info("%s %s: %s %s", type(action).__name__, action.job, status, text)
        self._sink([*seen, Outcome(action, status, text, errand.after)])

    def _send(self, api: Api, action: Action, seen: list[Event]) -> tuple[int, str]:
        match action:
            case Ungate():
                return self._pod_patch(api, action.job, action.pod, ungate_patch(action), "", seen)
            case Nominate():
                body = {"metadata": {"uid": action.uid}, "status": {"nominatedNodeName": action.node}}
                return self._pod_patch(api, action.job, action.pod, body, "/status", seen)
            case Evict():
                return Eviction(
                    api, action, self._scheduler, seen, lambda: action.uid not in self._overtaken
                ).carry_out()
            case RestoreFinalizer():
                return put_back(api, action, self._scheduler, seen)
            case WriteGang():
                return self._write_gang(api, action, seen)
            case DeleteGang():
                return self._delete_gang(api, action.job, action.gang, action.object_uid)
            case CreateProvisioningRequest():
                return provisioning_requests.ask(api, action)
            case DeleteProvisioningRequest():
                return provisioning_requests.drop(api, action)
            case Expose():
                return self._pod_patch(api, action.job, action.pod, expose_patch(action), "", seen)
            case RecordEvent():
                return self._say(api, action)
            case WriteLearned():
                return self._shelf.write(action, api)

    def _pod_patch(
        self, api: Api, job: JobKey, name: str, body: dict[str, Any] | bytes, part: str, seen: list[Event]
    ) -> tuple[int, str]:
        status, data = api.request("PATCH", pod_path(job, name) + part, body, STRATEGIC)
        if status == 200:
            seen.append(PodSeen(decode_pods.pod(data, self._scheduler)))
        return status, "" if status == 200 else message(data)

    def _write_gang(self, api: Api, action: WriteGang, seen: list[Event]) -> tuple[int, str]:
        """Create it with its status where it is missing, else write its status: placements are on the API
        before a gate comes off, and a job that starts at once costs one request for that."""
        path = paths.path(GANGS, "gangs", action.job.namespace)
        name = paths.segment(action.gang)
        if action.replaces:
            status, text = self._delete_gang(api, action.job, action.gang, action.replaces)
            if status not in (200, 202, GONE):
                return status, text
        if not action.exists:
            status, data = api.request("POST", path, gang_object(action))
            if status == 409:  # created by an earlier term, or its predecessor is not gone yet
                status, data = api.request("GET", f"{path}/{name}")
                found = json.loads(data) if status == 200 else {}
                if found.get("spec", {}).get("uid", "") != action.job.uid or "deletionTimestamp" in found.get(
                    "metadata", {}
                ):
                    return 409, "a Gang of the same name belongs to an earlier job"
            elif not 200 <= status < 300:
                return status, message(data)
            elif self._kept(action, data, seen):
                return status, ""
        return self._write_status(api, action, f"{path}/{name}", seen)

    def _write_status(self, api: Api, action: WriteGang, path: str, seen: list[Event]) -> tuple[int, str]:
        """One request; two where the Gang's definition is of an older chart, which had a /status apart (and ignores
        a status that comes another way), until that is known."""
        status, data = 0, b""
        for part in (self._part, "/status" if not self._part else ""):
            status, data = api.request("PATCH", path + part, gang_patch(action, part), MERGE)
            if status == 200 and self._kept(action, data, seen):
                self._part = part
                return status, ""
            if status not in (200, GONE):
                break
        return (status, message(data)) if status != 200 else (0, "the API did not keep the status")

    @staticmethod
    def _kept(action: WriteGang, data: bytes, seen: list[Event]) -> bool:
        """Whether the answer has the status that was sent: what is not on the API must not be taken for recorded."""
        gang = decode.gang(data)
        if (gang.state, gang.placement) != (action.status["state"], action.reservations):
            return False
        seen.append(GangSeen(gang))
        return True

    def _delete_gang(self, api: Api, job: JobKey, gang: str, object_uid: str) -> tuple[int, str]:
        path = paths.path(GANGS, "gangs", job.namespace, gang)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": object_uid}}
        status, data = api.request("DELETE", path, body)
        return status, "" if 200 <= status < 300 else message(data)

    def _say(self, api: Api, action: RecordEvent) -> tuple[int, str]:
        path = paths.path("v1", "events", action.job.namespace)
        status, data = api.request("POST", path, event_object(action))
        return status, "" if 200 <= status < 300 else message(data)


__all__ = ["JSON", "ActionExecutor", "event_object", "gang_object", "gang_patch", "pod_path", "ungate_patch"]
