"""Owners that are custom resources: their declared sizes, read when a pod of theirs appears and now and then.

One function a kind, from the object's spec to counts by role. A kind that is not here, is not served or may
not be read has no declared size: annotations decide, else its pods start as they come.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from muster.cluster import fragile
from muster.cluster.api import Api, message
from muster.cluster.watch import Sink
from muster.errors import ClusterError
from muster.types import Owner, OwnerRecord, OwnerSeen

log = logging.getLogger(__name__)

AGAIN = 30.0
"""Seconds after which an owner that still has pods is read again: users scale them."""
SOON = 2.0
"""Seconds after which a read that got no answer is tried again, and one whose owner got another pod."""
LOOK = 0.5
"""Seconds between looks at what is due; a new owner is read at once."""

Json = Mapping[str, Any]
Counts = tuple[tuple[str, int], ...]


def replica_specs(spec: Json) -> Counts:
    """Kubeflow's training operator: spec.pytorchReplicaSpecs.{Master,Worker}.replicas and its siblings."""
    for key, found in spec.items():
        if key.endswith("ReplicaSpecs") and isinstance(found, Mapping):
            return tuple((role.lower(), _count(one.get("replicas"))) for role, one in found.items())
    return ()


def replicated_jobs(spec: Json) -> Counts:
    """JobSet: replicas of each replicated job times its parallelism."""
    return tuple(
        (
            str(one["name"]),
            _count(one.get("replicas")) * _count(one.get("template", {}).get("spec", {}).get("parallelism")),
        )
        for one in spec.get("replicatedJobs", ())
    )


def ray_groups(spec: Json) -> Counts:
    """RayCluster: one head and the replicas of each worker group, by the label ray.io/group."""
    workers = (
        (str(g["groupName"]).lower(), _count(g.get("replicas"))) for g in spec.get("workerGroupSpecs", ())
    )
    return (("headgroup", 1), *workers)


def tasks(spec: Json) -> Counts:
    """Volcano's Job: the replicas of each task."""
    return tuple((str(t["name"]).lower(), _count(t.get("replicas"))) for t in spec.get("tasks", ()))


def group_size(spec: Json) -> Counts:
    """LeaderWorkerSet: pods of one group, which is the gang."""
    return (("worker", _count(spec.get("leaderWorkerTemplate", {}).get("size"))),)


KINDS: Mapping[str, Callable[[Json], Counts]] = {
    "PyTorchJob": replica_specs,
    "TFJob": replica_specs,
    "MPIJob": replica_specs,
    "XGBoostJob": replica_specs,
    "PaddleJob": replica_specs,
    "JAXJob": replica_specs,
    "JobSet": replicated_jobs,
    "RayCluster": ray_groups,
    "LeaderWorkerSet": group_size,
    "Job": tasks,  # batch.volcano.sh; Kubernetes' own Jobs are watched
}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 1


class Owners:
    """The thread that reads them."""

    def __init__(self, api: Api, sink: Sink) -> None:
        self._api, self._sink = api, sink
        self._grown: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._read: dict[str, float] = {}  # when it was read, by uid
        self._due: dict[str, float] = {}  # when it is to be read again
        self._plurals: dict[tuple[str, str], str] = {}
        self._wanted: Mapping[str, tuple[str, Owner]] = {}
        self._stop = threading.Event()
        self._new = threading.Event()

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="owners", daemon=True).start()

    def stop(self) -> None:
        """End soon."""
        self._stop.set()
        self._new.set()

    def want(self, owners: Mapping[str, tuple[str, Owner]], grown: Iterable[str] = ()) -> None:
        """Owners by uid, with their namespace, that pods of ours have and no watch delivers.

        grown: uids of those that got a pod just now.
        """
        before, self._wanted = self._wanted, owners
        for uid in grown:
            self._grown.put(uid)
        if owners is not before and owners.keys() - before.keys():
            self._new.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._new.wait(LOOK)
            self._new.clear()
            wanted = self._wanted
            now = time.monotonic()
            while not self._grown.empty():
                uid = self._grown.get()
                self._due[uid] = min(self._due.get(uid, now), self._read.get(uid, now - SOON) + SOON)
            self._due = {uid: at for uid, at in self._due.items() if uid in wanted}
            self._read = {uid: at for uid, at in self._read.items() if uid in wanted}
            for uid, (namespace, owner) in list(wanted.items()):
                if now < self._due.get(uid, 0.0):
                    continue
                self._read[uid], self._due[uid] = now, now + AGAIN
                try:
                    self._sink([OwnerSeen(self.read(namespace, owner))])
                except ClusterError as error:
                    self._due[uid] = now + SOON
                    log.warning("reading %s %s/%s: %s", owner.kind, namespace, owner.name, error)

    def read(self, namespace: str, owner: Owner) -> OwnerRecord:
        """One owner as it is now; without sizes where there are none that we may read and understand.

        Raises ClusterError where the API server has no answer yet.
        """
        unknown = OwnerRecord(owner, namespace)
        sizes = KINDS.get(owner.kind)
        if sizes is None:
            return unknown
        plural = self._plural(owner)
        if not plural:
            return unknown
        path = f"/apis/{owner.api_version}/namespaces/{quote(namespace)}/{plural}/{quote(owner.name)}"
        status, data = self._api.request("GET", path)
        if status in (401, 403, 404):
            return unknown
        if status != 200:
            raise ClusterError(message(data), status)
        found = json.loads(data)
        if found["metadata"]["uid"] != owner.uid:
            return unknown
        try:
            spec = found.get("spec") or {}
            return OwnerRecord(
                owner,
                namespace,
                roles=sizes(spec),
                fragile=fragile.reasons(owner.kind, spec),
                optional=fragile.optional(owner.kind, spec),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.warning("%s %s/%s declares no size: %r", owner.kind, namespace, owner.name, error)
            return unknown

    def _plural(self, owner: Owner) -> str:
        key = (owner.api_version, owner.kind)
        if key not in self._plurals:
            status, data = self._api.request("GET", f"/apis/{owner.api_version}")
            if status in (401, 403, 404):
                return ""
            if status != 200:
                raise ClusterError(message(data), status)
            for resource in json.loads(data).get("resources", ()):
                if "/" not in resource["name"]:
                    self._plurals[(owner.api_version, resource["kind"])] = resource["name"]
        return self._plurals.get(key, "")
