"""The certificate of a port: taken when its files change, kept where they go wrong. Real files and handshakes."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from muster.errors import ConfigurationError
from muster.server.tls import Certificates, Ends
from muster.signing import renewed
from tests.server.on_loopback import GET, asks, serving

HOSTS, LIFE = ("127.0.0.1",), 86_400.0
"""s from when this module is read: longer than all tests together take."""


def made(now: float, kept: dict[str, bytes] | None = None, life: float = LIFE) -> dict[str, bytes]:
    """The next certificate of the same authority."""
    authority = {name: value for name, value in (kept or {}).items() if name.startswith("ca")}
    found = renewed(authority, HOSTS, life, now)
    assert found is not None
    return found


def lay(folder: Path, files: dict[str, bytes]) -> None:
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (folder / name).write_bytes(files[name])


class Clock:
    now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def first(tmp_path: Path, clock: Clock) -> dict[str, bytes]:
    files = made(clock.now)
    lay(tmp_path, files)
    return files


def looked(certificates: Certificates) -> None:
    """Two looks: the change, and that it has settled."""
    certificates.look()
    certificates.look()


def test_a_replaced_certificate_is_taken_once_it_has_settled(
    tmp_path: Path, clock: Clock, first: dict[str, bytes]
) -> None:
    found = Certificates(tmp_path, "tls.certificates", clock)
    before = found.context
    following = made(clock.now + 60.0, first)
    (tmp_path / "tls.crt").write_bytes(following["tls.crt"])
    found.look()  # between the two files
    lay(tmp_path, following)
    found.look()
    assert found.context is before
    found.look()
    assert found.context is not before
    assert found.ends == int(clock.now + 60.0 + LIFE)
    assert found.authority == following["ca.crt"]
    taken = found.context
    looked(found)
    assert found.context is taken


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"tls.key": b"no key"}, "tls.key: expected the key of tls.crt, PEM, found another"),
        ({"tls.key": made(time.time())["tls.key"]}, "found another (KEY_VALUES_MISMATCH)"),
        ({"tls.crt": b"no certificate"}, "tls.crt: expected a certificate, PEM, found none"),
        ({"tls.crt": b"", "tls.key": b""}, "tls.crt: expected a certificate, PEM, found none"),
        (made(Clock.now - 2 * LIFE), "tls.crt: expected one that is valid now, found one that ended 20"),
        (made(Clock.now + LIFE), "tls.crt: expected one that is valid now, found one that begins 20"),
        (None, "No such file"),
    ],
)
def test_what_can_not_be_used_is_said_once_and_the_last_good_one_stays(
    tmp_path: Path,
    clock: Clock,
    first: dict[str, bytes],
    wrong: dict[str, bytes] | None,
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = Certificates(tmp_path, "tls.certificates", clock)
    before = found.context
    if wrong is None:
        (tmp_path / "tls.key").unlink()
    else:
        lay(tmp_path, {**first, **wrong})
    for _ in range(5):
        found.look()
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert says in caplog.text
    assert caplog.records[0].getMessage().startswith("tls.certificates: ")
    assert caplog.records[0].getMessage().endswith("; the last good certificate stays in force")
    assert (found.context, found.authority) == (before, first["ca.crt"])
    lay(tmp_path, made(clock.now, first))
    looked(found)
    assert found.context is not before


def test_at_the_start_what_can_not_be_used_ends_the_process_and_says_why(
    tmp_path: Path, clock: Clock
) -> None:
    with pytest.raises(ConfigurationError, match=r"webhook\.certificates: no file .*tls\.crt and .*tls\.key"):
        Certificates(tmp_path, "webhook.certificates", clock)
    lay(tmp_path, {**made(clock.now), "tls.key": made(clock.now)["tls.key"]})
    with pytest.raises(
        ConfigurationError, match=r"tls\.certificates: .*tls\.key: expected the key of tls\.crt"
    ):
        Certificates(tmp_path, "tls.certificates", clock)


def test_one_that_has_ended_is_served_and_said_once(
    tmp_path: Path, clock: Clock, first: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    found = Certificates(tmp_path, "tls.certificates", clock)
    clock.now += LIFE + 1.0
    looked(found)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "one that ended" in caplog.text
    Certificates(tmp_path, "tls.certificates", clock)
    lay(tmp_path, made(clock.now, first))
    looked(found)
    clock.now += LIFE + 1.0
    found.look()
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 3


def test_a_metric_says_when_it_ends(tmp_path: Path, clock: Clock, first: dict[str, bytes]) -> None:
    registry = CollectorRegistry()
    registry.register(Ends({"service": Certificates(tmp_path, "tls.certificates", clock)}))
    name = "muster_certificate_end_timestamp_seconds"
    assert registry.get_sample_value(name, {"port": "service"}) == int(clock.now + LIFE)
    assert first


# --- the server, with handshakes ------------------------------------------------------------------------------


@pytest.fixture
def serve(
    tmp_path: Path, clock: Clock, first: dict[str, bytes]
) -> Iterator[Callable[..., tuple[int, Certificates]]]:
    """`serve(arrives=0.3)`: a server with the folder's certificate and these bounds; its port."""
    assert first

    def start(**bounds: object) -> tuple[int, Certificates]:
        certificates = Certificates(tmp_path, "tls.certificates", clock)
        return servers.enter_context(serving(certificates=certificates, **bounds)), certificates

    with ExitStack() as servers:
        yield start


def secured(port: int, trusted: bytes) -> ssl.SSLSocket:
    context = ssl.create_default_context(cadata=trusted.decode())
    line = socket.create_connection(("127.0.0.1", port), timeout=20)
    return context.wrap_socket(line, server_hostname="127.0.0.1")


def test_new_connections_get_the_new_certificate_and_open_ones_go_on(
    serve: Callable[..., tuple[int, Certificates]], tmp_path: Path, clock: Clock, first: dict[str, bytes]
) -> None:
    port, certificates = serve()
    with secured(port, first["ca.crt"]) as old:
        assert asks(old)
        following = made(clock.now, first)
        lay(tmp_path, following)
        looked(certificates)
        with secured(port, first["ca.crt"]) as new:
            assert new.getpeercert(True) == ssl.PEM_cert_to_DER_cert(following["tls.crt"].decode())
            assert asks(new)
        assert old.getpeercert(True) == ssl.PEM_cert_to_DER_cert(first["tls.crt"].decode())
        assert asks(old)


def test_who_trusts_another_authority_or_speaks_plainly_gets_nothing_and_nobody_else_notices(
    serve: Callable[..., tuple[int, Certificates]], first: dict[str, bytes]
) -> None:
    port, _ = serve()
    with pytest.raises(ssl.SSLCertVerificationError):
        secured(port, made(Clock.now)["ca.crt"])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        plain.sendall(GET)
        found = b""
        with suppress(ConnectionResetError):
            while more := plain.recv(1000):
                found += more
        assert b"200" not in found
    with secured(port, first["ca.crt"]) as one:
        assert asks(one)


def test_a_request_that_comes_with_the_handshake_s_last_bytes_is_answered(
    serve: Callable[..., tuple[int, Certificates]], first: dict[str, bytes]
) -> None:
    port, _ = serve()
    context = ssl.create_default_context(cadata=first["ca.crt"].decode())
    come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(come, go, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                line.sendall(go.read())
                come.write(line.recv(65536))
        client.write(GET)
        line.sendall(go.read())  # Finished and the request in one piece
        found = b""
        while not found.endswith(b"https"):
            try:
                found += client.read(65536)
            except ssl.SSLWantReadError:
                more = line.recv(65536)
                assert more, found
                come.write(more)


def test_who_opens_a_connection_and_does_not_shake_hands_is_closed_in_time_and_counted(
    serve: Callable[..., tuple[int, Certificates]], first: dict[str, bytes]
) -> None:
    port, _ = serve(arrives=0.5, most=3)
    silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(5)]
    try:
        for one in silent:
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
    finally:
        for one in silent:
            one.close()
    with secured(port, first["ca.crt"]) as last:
        assert asks(last)
