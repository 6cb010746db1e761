"""The shell around the referee: a thread with a watch for each kind, one that judges, and one that asks whether
anybody answers. Kinds of owners that are not known beforehand, and PodGroups, are followed from the first pod that
names one."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import urllib3

from e2e.bench.raw import Wire
from e2e.cluster import Cluster, Json, Refused
from e2e.referee.gangs import watched
from e2e.referee.judge import Referee, Rules
from e2e.referee.objects import controller, group

GROUP_VERSION = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/v[0-9]+[a-z0-9]*")
TICK = 0.25
"""Seconds between two looks at what came."""
ANSWERED = 2.5
"""Seconds without an answer of the API after which the referee's clock stands still."""
KINDS = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "Job": "/apis/batch/v1/jobs",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "Deployment": "/apis/apps/v1/deployments",
}
NOT_FOLLOWED = frozenset(("Pod", "Node", "CronJob", "DaemonSet"))
GROUP = "PodGroup"
GONE = 410


class Watching:
    """A referee that watches a cluster from now until `close`."""

    def __init__(self, cluster: Cluster, rules: Rules | None = None, announced: tuple[str, ...] = ()) -> None:
        self.referee = Referee(rules, announced)
        self._cluster = Cluster(cluster.kubeconfig)
        self._wire = Wire(cluster.kubeconfig)
        self._sockets: dict[str, socket.socket] = {}
        self._seen: queue.SimpleQueue[tuple[str, bool, Json]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._versions: dict[str, int] = {}  # resourceVersion of each pod as it was judged, by uid
        self._blind: list[str] = []
        self._answered = time.monotonic()
        self._threads: list[threading.Thread] = []
        self._followed: set[tuple[str, str]] = set()  # kinds by name and API group
        for kind, path in KINDS.items():
            self._thread(self._watch, kind, kind, "", path)
        self._thread(self._ask, "asks")
        self._judge = self._thread(self._go_on, "judges")

    # ---- for scenarios ----

    @property
    def faults(self) -> list[str]:
        """What was found so far; nobody who watches may have ended."""
        with self._lock:
            return [*self.referee.faults, *self._blind]

    def open(self) -> list[str]:
        """What would become a fault if it stayed so, once all pods were seen as the API has them now."""
        listed = {item.uid: item for item in self._cluster.all_pods()}
        with self._lock:
            behind = [
                str(one)
                for one in listed.values()
                if self._versions.get(one.uid, 0) < int(one.raw["metadata"]["resourceVersion"])
            ]
            gone = [uid for uid in self._versions if uid not in listed]
            if behind or gone:
                return [f"the referee has not seen yet: {', '.join([*behind, *gone][:5])}"]
            return self.referee.open()

    def close(self) -> None:
        """No more is seen. RuntimeError where a thread does not end."""
        self._over.set()
        for sock in list(self._sockets.values()):  # its reader waits: closing that would wait, too
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(15)
        left = [thread.name for thread in self._threads if thread.is_alive()]
        if left:
            raise RuntimeError(f"the referee does not end: {', '.join(left)}")

    # ---- threads ----

    def _thread(self, what: Any, name: str, *arguments: str) -> threading.Thread:
        def run() -> None:
            try:
                what(*arguments)
            except Exception as error:
                with self._lock:
                    self._blind.append(f"the referee is blind: {name}: {error!r}")

        thread = threading.Thread(target=run, name=f"referee {name}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _go_on(self) -> None:
        """Judges what came; its clock stands still while nobody answers."""
        now, last = 0.0, time.monotonic()
        while not self._over.wait(TICK):
            moment = time.monotonic()
            if moment - self._answered < ANSWERED:
                now += moment - last
            last = moment
            with self._lock:
                self._take(now)
                self.referee.tick(now)
        with self._lock:
            self._take(now)

    def _take(self, now: float) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                kind, gone, plain = self._seen.get_nowait()
                meta = plain["metadata"]
                if kind == "Pod":
                    if gone:
                        self._versions.pop(meta["uid"], None)
                    else:
                        self._versions[meta["uid"]] = int(meta["resourceVersion"])
                self.referee.saw(kind, plain, now, gone=gone)
                if kind == "Pod":
                    self._follow_group(plain)
                if kind != "Node":
                    self._follow_owner(meta)

    def _follow_owner(self, meta: Json) -> None:
        above = controller(meta)
        if above is None or watched(above) or above.kind in NOT_FOLLOWED:
            return
        if not GROUP_VERSION.fullmatch(above.api_version):
            return  # a tenant wrote it, and it leads elsewhere (../healthz)
        self._follow(above.kind, above.api, above.api_version)

    def _follow_group(self, plain: Json) -> None:
        api, name = group(plain)
        if name:
            self._follow(GROUP, api, "")

    def _follow(self, kind: str, api: str, version: str) -> None:
        if (kind, api) not in self._followed:
            self._followed.add((kind, api))
            self._thread(self._find, f"finds {kind} of {api}", kind, api, version)

    def _find(self, kind: str, api: str, version: str) -> None:
        """Where objects of this kind live, in this version or, where none is named, in any; a kind that no server
        knows is forgotten, until it is named again."""
        try:
            offers = self._cluster.get(f"/apis/{api}")["versions"] if not version else []
            path = self._path(kind, [version] if version else [one["groupVersion"] for one in offers])
        except (
            Refused,
            urllib3.exceptions.HTTPError,
            OSError,
            ValueError,
        ):  # "../healthz" is no list of kinds
            path = ""
        if path:
            self._watch(kind, api, path)
        else:
            self._followed.discard((kind, api))

    def _path(self, kind: str, versions: Iterable[str]) -> str:
        for version in versions:
            for one in self._cluster.get(f"/apis/{version}")["resources"]:
                if one["kind"] == kind and "/" not in one["name"]:
                    return f"/apis/{version}/{one['name']}"
        return ""

    def _ask(self) -> None:
        own = Cluster(self._cluster.kubeconfig, timeout=2.0, retries=0)
        while not self._over.wait(1.0):
            with contextlib.suppress(Refused, urllib3.exceptions.HTTPError, OSError):
                own.get("/api/v1/namespaces/kube-system")
                self._answered = time.monotonic()

    def _watch(self, kind: str, api: str, path: str) -> None:
        """List, then watch from there; again where the server has forgotten that version. What vanished meanwhile is
        told as gone."""
        path += "?"
        known: dict[str, Json] = {}
        version = ""
        while not self._over.is_set():
            connection = self._wire.connect(timeout=60.0)
            try:
                if not version:
                    connection.request("GET", path)
                    version = self._listed(kind, connection.getresponse(), known)
                connection.request(
                    "GET", f"{path}watch=true&allowWatchBookmarks=true&resourceVersion={version}"
                )
                self._sockets[path] = connection.sock
                if self._over.is_set():  # it was closed before this one was known
                    return
                for event in _events(connection.getresponse()):
                    if event["type"] == "ERROR":
                        raise _Refused(int(event["object"].get("code", 500)))
                    found = event["object"]
                    version = found["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._put(kind, event["type"] == "DELETED", found, known)
            except _Refused as refused:
                if refused.status == GONE:
                    version = ""
                if refused.status == 404 and (kind, api) in self._followed:
                    self._followed.discard((kind, api))  # its definition is gone
                    return
                self._over.wait(0.2)
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                self._over.wait(0.1)  # closed by us, or broken: from the last event on
            finally:
                connection.close()

    def _listed(self, kind: str, answer: http.client.HTTPResponse, known: dict[str, Json]) -> str:
        data = answer.read()
        if answer.status != 200:
            raise _Refused(answer.status)
        found = json.loads(data)
        there = {item["metadata"]["uid"]: item for item in found["items"]}
        for uid in known.keys() - there.keys():
            self._put(kind, True, known[uid], known)
        for item in there.values():
            self._put(kind, False, item, known)
        return str(found["metadata"]["resourceVersion"])

    def _put(self, kind: str, gone: bool, plain: Json, known: dict[str, Json]) -> None:
        plain["kind"] = kind  # items of a list do not say it
        plain["metadata"].pop("managedFields", None)
        uid = plain["metadata"]["uid"]
        if gone:
            known.pop(uid, None)
        else:
            known[uid] = plain
        self._seen.put((kind, gone, plain))


@contextlib.contextmanager
def watching(
    cluster: Cluster, rules: Rules | None = None, announced: tuple[str, ...] = ()
) -> Iterator[Watching]:
    """A referee for as long as the block lasts. Its faults are the caller's to look at."""
    watch = Watching(cluster, rules, announced)
    try:
        yield watch
    finally:
        watch.close()


class _Refused(Exception):  # noqa: N818
    def __init__(self, status: int) -> None:
        super().__init__(f"the API server answers {status}")
        self.status = status


def _events(answer: http.client.HTTPResponse) -> Iterator[Json]:
    """The events of one watch, until it breaks off."""
    if answer.status != 200:
        raise _Refused(answer.status)
    rest = b""
    while chunk := answer.read1(1 << 20):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)
