"""Owners that are custom resources: what they declare, and where they stand.

A kind is watched from when a pod of ours first has an owner of it (`KINDS`), and of what the watch delivers only
records are kept. An owner that no watch delivers, because its kind is not there, its version is another one or we may
not list it, is read by name: before its first pod starts, again when it gets a pod, and every AGAIN. What `custom`
does not know, or may not be read, has no declared size: annotations decide, else its pods start as they come.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping

import msgspec

from muster.cluster import custom_owners
from muster.cluster.api import Api, message
from muster.cluster.paths import path
from muster.cluster.reader import Reader
from muster.cluster.watch import Reflector, Resource, Sink
from muster.errors import ClusterError, InputError
from muster.types import Event, Owner, OwnerGone, OwnerRecord, OwnerSeen, Unreadable

log = logging.getLogger(__name__)

AGAIN = 30.0
"""Seconds after which an owner that is read by name is read again: users scale them."""
GROWN = 2.0
"""Seconds after which one is that got another pod."""
PATIENCE = 3.0
"""Seconds for which an owner waits for the first list of its kind before it is read by name."""
WORKERS = 4
"""Threads that read by name."""

Kind = tuple[str, str]  # group, kind

KINDS: Mapping[Kind, tuple[str, str]] = {
    ("kubeflow.org", "PyTorchJob"): ("v1", "pytorchjobs"),
    ("kubeflow.org", "TFJob"): ("v1", "tfjobs"),
    ("kubeflow.org", "MPIJob"): ("v1", "mpijobs"),
    ("kubeflow.org", "XGBoostJob"): ("v1", "xgboostjobs"),
    ("kubeflow.org", "PaddleJob"): ("v1", "paddlejobs"),
    ("kubeflow.org", "JAXJob"): ("v1", "jaxjobs"),
    ("jobset.x-k8s.io", "JobSet"): ("v1alpha2", "jobsets"),
    ("ray.io", "RayCluster"): ("v1", "rayclusters"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ("v1", "leaderworkersets"),
    ("batch.volcano.sh", "Job"): ("v1alpha1", "jobs"),
}
"""Version and plural of those that are watched."""

Key = tuple[str, Owner]  # namespace, owner
Wanted = Mapping[str, tuple[str, Owner]]


class Owners:
    """Watches by kind, and readers of the rest. lets_on: admission gives pods of ours the toleration of our taint."""

    def __init__(self, api: Api, scheduler: str, sink: Sink, *, lets_on: bool = False) -> None:
        self._api, self._scheduler, self._sink, self._lets_on = api, scheduler, sink, lets_on
        self.reader: Reader[Key] = Reader(
            "owners", self._read, sink, WORKERS, lambda key: OwnerGone(key[1].uid)
        )
        self._plurals: dict[tuple[str, str], str] = {}
        self.watches: dict[Kind, Reflector] = {}
        self._ready: frozenset[Kind] = (
            frozenset()
        )  # of these, have listed, or know that they can't, or are late
        self._since: dict[Kind, float] = {}  # monotonic
        self._lock = threading.Lock()
        # under the lock:
        self._wanted: Wanted = {}
        self._records: dict[str, OwnerRecord] = {}  # that watches deliver, by uid
        self._moved = False

    def start(self) -> None:
        """Begin."""
        self.reader.start()

    def stop(self) -> None:
        """End soon."""
        self.reader.stop()
        for watch in self.watches.values():
            watch.stop()

    def want(self, owners: Wanted, grown: Iterable[str] = ()) -> None:
        """Owners by uid, with their namespace, that pods or jobs of ours have and the core's watches don't deliver.

        grown: uids of those that got a pod just now, or are wanted again.
        """
        with self._lock:
            before, self._wanted = self._wanted, owners
            fresh = (owners.keys() - before.keys() if owners is not before else set()) | set(grown)
            known = [OwnerSeen(self._records[uid]) for uid in fresh if self._has(owners, uid)]
            if known:
                self._sink([*known])
            moved = self._moved or owners is not before
            self._moved = False
        for kind in {kind_of(owners[uid][1]) for uid in fresh if uid in owners}:
            self._watch(kind)
        late = time.monotonic() - PATIENCE
        ready = frozenset(k for k, w in self.watches.items() if w.synced.is_set() or self._since[k] < late)
        if moved or ready != self._ready:
            self._ready = ready
            self.reader.want(frozenset(self._not_delivered(owners)))
        self.reader.hurry([owners[uid] for uid in fresh if uid in owners], time.monotonic() + GROWN)

    def _not_delivered(self, owners: Wanted) -> Iterable[Key]:
        for uid, (namespace, owner) in owners.items():
            kind = kind_of(owner)
            if kind not in self.watches or (kind in self._ready and not self._has(owners, uid)):
                yield namespace, owner

    def _has(self, owners: Wanted, uid: str) -> bool:
        """Whether a watch has delivered an owner that is wanted: that of the namespace, whatever a pod refers to."""
        record = self._records.get(uid)
        return record is not None and uid in owners and owners[uid][0] == record.namespace

    # ---- watched ----

    def _watch(self, kind: Kind) -> None:
        """Watch all of a kind from now on, where it is one that is known."""
        if kind in self.watches or kind not in KINDS:
            return
        version, plural = KINDS[kind]
        version = f"{kind[0]}/{version}"

        def decode(raw: msgspec.Raw) -> tuple[str, Event]:
            record = self._record(raw, version, kind[1])
            return record.owner.uid, OwnerSeen(record)

        resource = Resource(f"{plural} of {kind[0]}", path(version, plural), decode, OwnerGone, optional=True)
        self.watches[kind] = Reflector(self._api, resource, self._delivered)
        self._since[kind] = time.monotonic()
        self.watches[kind].start()

    def _delivered(self, events: list[Event]) -> None:
        """From a watch: kept, and passed on where it is wanted."""
        with self._lock:
            wanted: list[Event] = []
            for event in events:
                if isinstance(event, OwnerSeen):
                    uid = event.owner.owner.uid
                    self._moved = self._moved or uid not in self._records
                    self._records[uid] = event.owner
                    if self._has(self._wanted, uid):
                        wanted.append(event)
                elif isinstance(event, OwnerGone):
                    self._moved = True
                    if self._has(self._wanted, event.uid):
                        wanted.append(event)
                    self._records.pop(event.uid, None)
                elif isinstance(event, Unreadable):
                    known = self._wanted.get(event.gone.uid) if isinstance(event.gone, OwnerGone) else None
                    if known is not None and known[0] == event.namespace:
                        wanted.append(event)
            if wanted:
                self._sink(wanted)

    # ---- read by name ----

    def _read(self, key: Key) -> tuple[Event, float]:
        namespace, owner = key
        pause = AGAIN if kind_of(owner) in custom_owners.KINDS else math.inf
        try:
            return OwnerSeen(self.read(namespace, owner)), pause
        except InputError as error:
            log.warning("%s %s/%s is not read: %s", owner.kind[:80], namespace, owner.name[:80], error)
            return OwnerSeen(OwnerRecord(owner, namespace)), math.inf

    def read(self, namespace: str, owner: Owner) -> OwnerRecord:
        """One owner as it is now; without sizes where there are none that we may read and understand.

        Raises ClusterError where the API server has no answer yet, InputError for names that no object has, and
        msgspec.DecodeError for an answer that can't be read.
        """
        unknown = OwnerRecord(owner, namespace)
        if kind_of(owner) not in custom_owners.KINDS:
            return unknown
        plural = self._plural(owner)
        if not plural:
            return unknown
        status, data = self._api.request("GET", path(owner.api_version, plural, namespace, owner.name))
        if status in (401, 403, 404):
            return unknown
        if status != 200:
            raise ClusterError(message(data), status)
        found = self._record(data, owner.api_version, owner.kind)
        return found if found.owner.uid == owner.uid else unknown

    def _record(self, raw: bytes | msgspec.Raw, version: str, kind: str) -> OwnerRecord:
        found = custom_owners.record(raw, version, kind, self._scheduler)
        return custom_owners.let_on(found) if self._lets_on else found

    def _plural(self, owner: Owner) -> str:
        key = (owner.api_version, owner.kind)
        if key not in self._plurals:
            status, data = self._api.request("GET", path(owner.api_version))
            if status in (401, 403, 404):
                return ""
            if status != 200:
                raise ClusterError(message(data), status)
            for resource in json.loads(data).get("resources", ()):
                if "/" not in resource["name"]:
                    self._plurals[(owner.api_version, resource["kind"])] = resource["name"]
        return self._plurals.get(key, "")


def kind_of(owner: Owner) -> Kind:
    """Group and kind."""
    return owner.api_version.partition("/")[0], owner.kind
