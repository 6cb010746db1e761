"""The API as bytes, so that the measuring costs little of the two cores that are measured.

An httpx request costs a millisecond, decoding a pod about as much; 3,000 binds a run and 80,000 pods to
create would be felt. Here: http.client on kept connections, and watches that look for a name and nothing else."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.lab import libyaml
from e2e.lab.errors import LabError

NAME = re.compile(rb'"name":"([^"]+)"')
"""The first in a line is metadata.name: nothing that comes before it in an object has a plain `name`."""
VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
THREADS = 8
_here = threading.local()


class Wire:
    """One apiserver, as the user of a kubeconfig file. Usable from several threads: a connection each."""

    def __init__(self, kubeconfig: Path) -> None:
        raw = libyaml.load(kubeconfig.read_text())
        cluster, user = raw["clusters"][0]["cluster"], raw["users"][0]["user"]
        self._address = urlsplit(cluster["server"]).netloc
        self._tls = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:  # ssl loads a client certificate from a file only
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            self._tls.load_cert_chain(pair.name)

    def connect(self, timeout: float = 60.0) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, context=self._tls, timeout=timeout)

    def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body; one more try on a fresh connection where the kept one has died."""
        for last in (False, True):
            kept: dict[str, http.client.HTTPSConnection] = _here.__dict__.setdefault("connections", {})
            connection = kept.setdefault(self._address, self.connect())
            try:
                connection.request(method, path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, OSError):
                connection.close()
                kept.pop(self._address, None)
                if last:
                    raise
        raise AssertionError("not reached")

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """JSON in and out. LabError with the apiserver's answer where it says no."""
        status, data = self.send(method, path, None if body is None else json.dumps(body).encode())
        if status >= 400:
            raise LabError(f"{method} {path}: {status} {data[:300].decode(errors='replace')}")
        return json.loads(data) if data.startswith(b"{") else data.decode()

    def create(
        self, path: str, bodies: Iterable[bytes], threads: int = THREADS, said: Callable[[], object] = bool
    ) -> int:
        """POST many objects from several threads, in their order as far as that goes; how many.

        `said` is called after each. LabError with the first refusal."""

        def one(body: bytes) -> None:
            status, data = self.send("POST", path, body)
            if status >= 400:
                raise LabError(f"POST {path}: {status} {data[:300].decode(errors='replace')}")
            said()

        with ThreadPoolExecutor(threads) as several:
            return sum(1 for _ in several.map(one, bodies))

    def names(self, path: str) -> list[str]:
        """Names of the objects of a collection."""
        found: list[str] = []
        token = ""
        while True:
            page = self.ask("GET", f"{path}?limit=5000" + (f"&continue={token}" if token else ""))
            found += [item["metadata"]["name"] for item in page["items"]]
            token = page["metadata"].get("continue", "")
            if not token:
                return found

    def version(self, path: str) -> str:
        """The resourceVersion of a collection now: where a watch begins."""
        return str(self.ask("GET", f"{path}?limit=1")["metadata"]["resourceVersion"])

    def clear(self, path: str, threads: int = THREADS) -> None:
        """Delete all objects of a collection at once (grace 0)."""
        body = json.dumps({"gracePeriodSeconds": 0}).encode()
        with ThreadPoolExecutor(threads) as several:
            for _ in several.map(lambda name: self.send("DELETE", f"{path}/{name}", body), self.names(path)):
                pass


class Watch:
    """Receives events of a collection from now on; for each object the time of the first event that counts.

    `counts` is asked with the whole line; times are time.monotonic() at the arrival of its bytes. An
    apiserver under load ends watches that it finds slow, so an ended one goes on from its last event."""

    def __init__(
        self, wire: Wire, path: str, selector: str = "", counts: Callable[[bytes], bool] | None = None
    ) -> None:
        self.seen: dict[str, float] = {}
        self._wire, self._counts = wire, counts
        self._path = f"{path}?watch=true" + (f"&{selector}" if selector else "")
        self._version = wire.version(path)
        self._arrived = threading.Condition()
        self._closed, self._broken = False, ""
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="bench-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            connection = self._wire.connect(timeout=3600)
            try:
                connection.request("GET", f"{self._path}&resourceVersion={self._version}")
                self._socket = connection.sock
                answer = connection.getresponse()
                if answer.status != 200:
                    self._broken = f"the watch was refused: {answer.status}"
                    return
                self._read(answer)
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                time.sleep(0.01)  # closed by us, or broken: from the last event on

    def _read(self, answer: http.client.HTTPResponse) -> None:
        rest = b""
        while chunk := answer.read1(1 << 20):
            now = time.monotonic()
            *lines, rest = (rest + chunk).split(b"\n")
            with self._arrived:
                for line in lines:
                    found = NAME.search(line)
                    if found and (self._counts is None or self._counts(line)):
                        self.seen.setdefault(found[1].decode(), now)
                    version = VERSION.search(line)
                    self._version = version[1].decode() if version else self._version
                self._arrived.notify_all()

    def wait(self, count: int, seconds: float, said: Callable[[int], object] = bool, what: str = "") -> None:
        """Until `count` objects were seen; `said` hears how many meanwhile. LabError after `seconds` without
        a new one."""
        with self._arrived:
            last, moved = -1, time.monotonic()
            while len(self.seen) < count:
                if len(self.seen) != last:
                    last, moved = len(self.seen), time.monotonic()
                    said(last)
                if self._broken:
                    raise LabError(f"{what or 'seen'}: {last} of {count}; {self._broken}")
                if time.monotonic() - moved > seconds:
                    raise LabError(f"{what or 'seen'}: {last} of {count}, and none for {seconds:.0f} s")
                self._arrived.wait(0.2)
        said(count)

    def close(self) -> None:
        """End the watch. The socket only: closing its reader would wait for the read that is under way."""
        self._closed = True
        with contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)


BOUND = "fieldSelector=spec.nodeName%21%3D"
"""Only pods that have a node: one event when a pod gets it."""


def bound(wire: Wire, namespace: str) -> Watch:
    """Watches a namespace's pods for their binds."""
    return Watch(wire, f"/api/v1/namespaces/{namespace}/pods", BOUND)


def create_namespace(wire: Wire, name: str) -> None:
    """With its service account, without which no pod is taken."""
    wire.ask(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    for _ in range(600):
        if wire.send("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] == 200:
            return
        time.sleep(0.1)
    raise LabError(f"namespace {name} has no service account `default` after 60 s")


def bodies(objects: Iterable[object]) -> Sequence[bytes]:
    """Objects as they are sent."""
    return [json.dumps(one, separators=(",", ":")).encode() for one in objects]
