"""The certificate of a port, as it lies in a folder: tls.crt and tls.key, PEM, and ca.crt, which says who signed.

It is read again when the files change (`look`, every second), and new connections get it at once: nobody needs a
restart. One that can't be used (a key of another certificate, not PEM, past its end) is said once, with the file and
what was found, and the last good one stays. At the start there is no such one: what can't be used ends the process
(ConfigurationError); what is past its end is served all the same, since clients refuse it by themselves, and a
kubelet that probes does not look at it: no scheduler stands still for a certificate.
A change is taken when two looks in a row have found the same, so that two files which are replaced one after the
other are no mistake.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from muster.errors import ConfigurationError

log = logging.getLogger(__name__)

FILES = ("tls.crt", "tls.key")
AUTHORITY = "ca.crt"


class Certificates:
    """The newest good certificate of one folder. Changed by one thread, read by others."""

    def __init__(self, folder: Path, field: str, now: Callable[[], float] = time.time) -> None:
        """field: the setting that names the folder. Raises ConfigurationError where nothing in it can be used."""
        self.folder, self._field, self._now = folder, field, now
        missing = [str(folder / name) for name in FILES if not (folder / name).is_file()]
        if missing:
            raise ConfigurationError(f"{field}: no file {' and '.join(missing)}")
        self._seen = self._taken = self._read()
        try:
            self.context, _, self.ends = self._loaded(self._taken)
        except (ValueError, OSError) as error:
            raise ConfigurationError(f"{field}: {error}") from error
        self._refused: tuple[bytes, ...] = ()
        self._over = False
        self._mind_the_end()

    @property
    def authority(self) -> bytes:
        """Who signed, PEM, as the folder tells it; empty: it does not."""
        return self._taken[2]

    def look(self) -> None:
        """Take what is new in the folder, if it can be used."""
        self._mind_the_end()
        try:
            found = self._read()
        except OSError as error:
            found = (str(error).encode(),)
        settled, self._seen = found == self._seen, found
        if not settled or found in (self._taken, self._refused):
            return
        try:
            if len(found) == 1:
                raise ValueError(found[0].decode())
            context, begins, ends = self._loaded(found)
            if not begins <= self._now() < ends:
                what = _ended(ends) if ends <= self._now() else f"one that begins {_at(begins)}"
                raise ValueError(f"{self.folder / FILES[0]}: expected one that is valid now, found {what}")
        except (ValueError, OSError) as error:
            self._refused = found
            log.error("%s: %s; the last good certificate stays in force", self._field, error)
            return
        self.context, self.ends, self._taken, self._over = context, ends, found, False
        log.info("%s: a new certificate is in force, until %s", self._field, _at(ends))

    def _read(self) -> tuple[bytes, ...]:
        """The bytes of certificate, key and authority. Raises OSError."""
        authority = self.folder / AUTHORITY
        return (
            *((self.folder / name).read_bytes() for name in FILES),
            authority.read_bytes() if authority.is_file() else b"",
        )

    def _loaded(self, found: tuple[bytes, ...]) -> tuple[ssl.SSLContext, float, float]:
        """What serves these, and from when to when they are valid, Unix s. Raises ValueError and OSError."""
        certificate, key = (self.folder / name for name in FILES)
        try:
            read = x509.load_pem_x509_certificate(found[0])
        except ValueError as error:
            raise ValueError(f"{certificate}: expected a certificate, PEM, found none ({error})") from error
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            why = f"{key}: expected the key of {certificate.name}, PEM, found another ({error.reason})"
            raise ValueError(why) from error
        return context, read.not_valid_before_utc.timestamp(), read.not_valid_after_utc.timestamp()

    def _mind_the_end(self) -> None:
        if self.ends <= self._now() and not self._over:
            self._over = True
            what = self.folder / FILES[0]
            log.error(
                "%s: %s: %s, and is served: clients will refuse it", self._field, what, _ended(self.ends)
            )


class Ends(Collector):
    """muster_certificate_end_timestamp_seconds{port}: an alert long before is better than a log at the end."""

    def __init__(self, of: dict[str, Certificates]) -> None:
        """of: certificates by the port's name."""
        self._of = of

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One reading."""
        ends = GaugeMetricFamily(
            "muster_certificate_end_timestamp_seconds",
            "When the certificate that a port serves ends, Unix s.",
            labels=["port"],
        )
        for port, certificates in sorted(self._of.items()):
            ends.add_metric([port], certificates.ends)
        yield ends


def _ended(ends: float) -> str:
    return f"one that ended {_at(ends)}"


def _at(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
