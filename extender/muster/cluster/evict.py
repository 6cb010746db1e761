"""Evict: the one action that ends a pod of ours, by the policy/v1 Eviction (design §1).

1 dry run, where the Job controller's finalizer is to go: a PodDisruptionBudget that refuses leaves the pod as it is.
2 our mark, why the pod is ended (`muster.dev/leaving`, an EndReason); with it the finalizer off: what the Job
  controller does not track it does not count.
3 the eviction.
4 finalizer and mark as they were, where the pod stays after all.

Each request names the uid and the version that it was decided on (an Eviction takes both as preconditions): a pod
that ended or changed meanwhile is refused with 409 and looked at, never deleted. One that ended by itself stays, so
that its owner counts it; one that was to end because it could not run stays where it runs by now (NEVER_RAN). What is
left half done by a crash is found by its missing finalizer (core.workload.unfinished_eviction).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from muster.cluster import decode_pods
from muster.cluster.api import NOT_SENT, STRATEGIC, Api, message
from muster.cluster.paths import path
from muster.core.workload import identity
from muster.errors import ClusterError
from muster.types import NEVER_RAN, Event, Evict, JobKey, Phase, PodRecord, PodSeen, RestoreFinalizer

GONE, CHANGED, REFUSED, BUSY = 404, 409, 429, 503
"""Outcomes: nothing to end; it ended or keeps changing; a PodDisruptionBudget does not allow it (whatever status the
API server has for that); the server has too much to do."""
LOOKS = 3
"""How often a pod that changed is looked at and tried again before that is left to the next cycle."""
BUDGET = "DisruptionBudget"
"""The API server's word (a cause's reason) for what a PodDisruptionBudget refuses."""
SEVERAL = "more than one PodDisruptionBudget"


@dataclass
class Eviction:
    """One eviction. scheduler: the schedulerName, to decode pods; seen: where they go; wanted: if it still is."""

    api: Api
    action: Evict
    scheduler: str
    seen: list[Event]
    wanted: Callable[[], bool] = lambda: True
    version: str = field(default="", init=False)
    tracked: bool = field(default=False, init=False)
    """The finalizer is on, as far as is known."""
    off: bool = field(default=False, init=False)
    """The finalizer is off (by us, or by one who did not come to an end), so it must be on where the pod stays."""
    marked: bool = field(default=False, init=False)
    """Our mark is on, by us: it goes where the pod stays."""

    def carry_out(self) -> tuple[int, str]:
        """HTTP status and message of its outcome. Raises ClusterError where no answer came."""
        self.version = self.action.version
        self.tracked = self.action.tracked
        self.off = self.action.by_job and not self.tracked
        status, text = NOT_SENT, "not wanted any more"
        try:
            for _ in range(LOOKS):
                status, text = self._try()
                if status != CHANGED or not self._look():
                    break
        except ClusterError:
            self._put_back()
            raise
        if not 200 <= status < 300 and status != GONE:
            self._put_back()
        return status, text

    def _try(self) -> tuple[int, str]:
        if not self.off and not self.wanted():
            return NOT_SENT, "not wanted any more"
        if self.tracked:
            status, text = self._evict(dry_run=True)
            if not 200 <= status < 300:
                return status, text
        if self.tracked or not (self.marked or self.off):
            status, text = self._mark()
            if status != 200:
                return status, text
        return self._evict(dry_run=False)

    def _mark(self) -> tuple[int, str]:
        metadata: dict[str, Any] = {
            "uid": self.action.uid,
            "annotations": {identity.LEAVING: str(self.action.reason)},
        }
        if self.version:
            metadata["resourceVersion"] = self.version
        if self.tracked:
            metadata["$deleteFromPrimitiveList/finalizers"] = [decode_pods.TRACKING]
        path = pod_path(self.action.job, self.action.pod)
        try:
            status, data = self.api.request("PATCH", path, {"metadata": metadata}, STRATEGIC)
        except ClusterError:
            self.off = self.tracked  # perhaps: putting back what was not taken changes nothing
            self.marked = True
            raise
        if status != 200:
            return status, message(data)
        off = self.tracked
        self._saw(data)
        self.off, self.marked = off or self.off, True
        return status, ""

    def _evict(self, *, dry_run: bool) -> tuple[int, str]:
        preconditions = {"uid": self.action.uid}
        if self.version:
            preconditions["resourceVersion"] = self.version
        options: dict[str, Any] = {"preconditions": preconditions}
        if dry_run:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": self.action.pod, "namespace": self.action.job.namespace},
            "deleteOptions": options,
        }
        path = pod_path(self.action.job, self.action.pod) + "/eviction"
        return verdict(*self.api.request("POST", path, body, patient=False))

    def _look(self) -> bool:
        """The pod as it is now; whether there is still one to end."""
        status, data = self.api.request("GET", pod_path(self.action.job, self.action.pod))
        if status == 404:
            return True  # and the next try says so
        if status != 200:
            return False
        pod = self._saw(data)
        if pod.uid != self.action.uid or pod.phase.ended or pod.deleting:
            return False
        return pod.phase is not Phase.BOUND or self.action.reason not in NEVER_RAN

    def _saw(self, data: bytes) -> PodRecord:
        pod = decode_pods.pod(data, self.scheduler)
        self.seen.append(PodSeen(pod))
        self.version, self.tracked = pod.version, pod.tracked
        self.off = self.off and not pod.tracked  # another leader may have put it back
        return pod

    def _put_back(self) -> None:
        if not (self.off or self.marked):
            return
        try:
            put_back(self.api, self.action, self.scheduler, self.seen)
        except ClusterError:
            return  # the next cycle finds it half done


def put_back(
    api: Api, action: Evict | RestoreFinalizer, scheduler: str, seen: list[Event]
) -> tuple[int, str]:
    """Our mark off a pod that stays, and on one of a Job its controller's finalizer. A pod that is being deleted
    takes no finalizer (422): it needs none."""
    metadata: dict[str, Any] = {"uid": action.uid, "annotations": {identity.LEAVING: None}}
    if isinstance(action, RestoreFinalizer) or action.by_job:
        metadata["finalizers"] = [decode_pods.TRACKING]
    path = pod_path(action.job, action.pod)
    status, data = api.request("PATCH", path, {"metadata": metadata}, STRATEGIC)
    if status == 200:
        seen.append(PodSeen(decode_pods.pod(data, scheduler)))
    return status, "" if status == 200 else message(data)


def verdict(status: int, data: bytes) -> tuple[int, str]:
    """What the API server says of an eviction: REFUSED, in its words, for what a PodDisruptionBudget does not allow.

    A pod that two budgets select is answered 201, with a Status of "Failure" in the body (kubernetes v1.37
    pkg/registry/core/pod/storage/eviction.go, Create); too many evictions at once of one budget are 403.
    """
    try:
        found = json.loads(data)
        causes = (found.get("details") or {}).get("causes") or ()
        text = str(found.get("message", ""))
    except (ValueError, AttributeError):
        return status, "" if 200 <= status < 300 else message(data)
    said = [str(cause.get("message", "")) for cause in causes if cause.get("reason") == BUDGET]
    if said or SEVERAL in text:
        return REFUSED, said[0] if said else text
    if 200 <= status < 300 and found.get("status") == "Failure":
        status = int(found.get("code") or 500)
    if status == REFUSED:
        status = BUSY
    return status, "" if 200 <= status < 300 else text


def pod_path(job: JobKey, name: str) -> str:
    """The path of a pod of a job."""
    return path("v1", "pods", job.namespace, name)
