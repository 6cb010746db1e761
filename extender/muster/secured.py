"""The certificates of a running `muster serve`: renewed in their Secret where they are Muster's own, read again where
others renew them, and who signed told by a ConfigMap. One thread does it (`run`).

An API server that is away keeps nobody from starting: until the Secret can be read, the port serves a certificate of
this process alone, which probes take and clients refuse.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from muster import signing, threads
from muster.cluster.api import Api
from muster.cluster.tls import Kept, publish
from muster.errors import ClusterError
from muster.server.tls import AUTHORITY, FILES, Certificates
from muster.settings import Settings

log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between looks at the files."""
ASK = 60.0
"""Seconds between looks at the Secret, or a tenth of a certificate's life where that is less."""
AGAIN = 10.0
"""Seconds until the API server is asked again that did not answer."""


class Secured:
    """What the ports are secured with."""

    def __init__(self, settings: Settings, api: Api, now: Callable[[], float] = time.time) -> None:
        """Raises ConfigurationError where a folder's certificate can't be used."""
        self._api, self._now = api, now
        self._namespace = settings.leader.namespace
        self._kept: Kept | None = None
        self._own = Path()  # a folder for what the Secret holds
        self._publish, self._published = "", b""
        self._due = self._tell = 0.0  # monotonic
        self._said = ""
        self.of: dict[str, Certificates] = {}
        if settings.webhook is not None:
            folder = Path(settings.webhook.certificates)
            self.of["webhook"] = Certificates(folder, "webhook.certificates", now)
        if (tls := settings.tls) is not None:
            self._publish = tls.publish
            if tls.secret:
                self._kept = Kept(api, self._namespace, tls.secret, tls.hosts, tls.life)
                self._every = min(ASK, tls.life / 10)
                self._own = Path(tempfile.mkdtemp(prefix="muster-tls-"))  # for its owner only
                if not self._renew():
                    self._write(signing.renewed({}, tls.hosts, tls.life, now()) or {})
            folder = Path(tls.certificates) if tls.certificates else self._own
            self.of["service"] = Certificates(folder, "tls.secret" if tls.secret else "tls.certificates", now)

    def authority(self) -> bytes:
        """Who signed the service port's certificate, PEM, as clients are told; empty: they are told nobody."""
        return self._published

    def run(self, ended: threading.Event) -> None:
        """Until then."""
        while True:
            threads.beat()
            if self._kept is not None and time.monotonic() >= self._due:
                self._renew()
            for certificates in self.of.values():
                certificates.look()
            self._announce()
            if ended.wait(LOOK):
                break
        if self._kept is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    def _renew(self) -> bool:
        """Whether the Secret could be read, and written where it was due."""
        assert self._kept is not None
        try:
            self._write(self._kept.renewed(self._now()))
        except ClusterError as error:
            self._warn(f"tls.secret: {self._kept.name} can't be looked after now: {error}")
            self._due = time.monotonic() + min(AGAIN, self._every)
            return False
        self._due = time.monotonic() + self._every
        return True

    def _write(self, made: Mapping[str, bytes]) -> None:
        """As the files of a folder, each whole at any moment; the authority's key is none of them."""
        for name in (*FILES, AUTHORITY):
            file = self._own / name
            value = made.get(name, b"")
            if file.is_file() and file.read_bytes() == value:
                continue
            following = file.with_suffix(".next")
            following.touch(0o600)
            following.write_bytes(value)
            following.replace(file)

    def _announce(self) -> None:
        authority = self.of["service"].authority if "service" in self.of else b""
        if not self._publish or authority == self._published or time.monotonic() < self._tell:
            return
        try:
            publish(self._api, self._namespace, self._publish, authority)
        except ClusterError as error:
            self._warn(f"tls.publish: {self._publish} can't be written now: {error}")
            self._tell = time.monotonic() + AGAIN
            return
        self._published = authority

    def _warn(self, what: str) -> None:
        """Once for each thing that is wrong."""
        if what != self._said:
            self._said = what
            log.warning("%s", what)
