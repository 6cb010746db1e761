"""What a running muster does about its certificates: an API server that is away and comes back, a team's own."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster import secured, signing
from muster.errors import ClusterError
from muster.secured import Secured
from muster.settings import load_settings
from muster.threads import supervised

OWN = load_settings(
    "leader: {namespace: space}\ntls: {secret: muster-tls, hosts: [127.0.0.1], life: 1h, publish: muster-ca}"
)


class Server:
    """A Secret and a ConfigMap, or nobody."""

    def __init__(self, away: bool = False) -> None:
        self.away = away
        self.data: dict[str, dict[str, str]] = {"secrets/muster-tls": {}, "configmaps/muster-ca": {}}

    def _found(self, path: str) -> dict[str, str]:
        if self.away:
            raise ClusterError("nobody answers")
        return self.data[path.removeprefix("/api/v1/namespaces/space/")]

    def get(self, path: str) -> bytes:
        return json.dumps({"metadata": {"resourceVersion": "1"}, "data": self._found(path)}).encode()

    def request(self, method: str, path: str, body: dict[str, Any], kind: str) -> tuple[int, bytes]:
        assert (method, kind) == ("PATCH", "application/merge-patch+json")
        self._found(path).update(body["data"])
        return 200, b"{}"

    @property
    def told(self) -> str:
        return self.data["configmaps/muster-ca"].get("ca.crt", "")


def made(server: Server) -> Secured:
    return Secured(OWN, server)  # type: ignore[arg-type]


@contextmanager
def running(it: Secured) -> Iterator[None]:
    ended = threading.Event()
    thread = supervised("certificates", lambda: it.run(ended))
    try:
        yield
    finally:
        ended.set()
        thread.join(10)


def until(what: str, true: Any) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secured, "LOOK", 0.01)
    monkeypatch.setattr(secured, "AGAIN", 0.02)


def test_the_first_replica_makes_a_certificate_and_says_who_signed() -> None:
    server = Server()
    it, other = made(server), made(server)
    assert it.of["service"].authority == other.of["service"].authority != b""
    assert base64.b64decode(server.data["secrets/muster-tls"]["ca.crt"]) == it.of["service"].authority
    assert it.authority() == b"", "nobody is told what others can't read yet"
    with running(it):
        until("it is told", lambda: server.told == it.of["service"].authority.decode())
        until("pods are told the same", lambda: it.authority().decode() == server.told)


def test_an_api_server_that_is_away_keeps_nobody_from_starting(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(away=True)
    it = made(server)
    alone = it.of["service"].authority
    assert alone != b""
    with running(it):
        until("it says so", lambda: "muster-tls can't be looked after now: nobody answers" in caplog.text)
        server.away = False
        until("the Secret's is taken", lambda: it.of["service"].authority != alone)
        until("it is told", lambda: server.told == it.of["service"].authority.decode())
    assert len([one for one in caplog.records if "can't be looked after" in one.getMessage()]) == 1


def test_the_authority_s_key_is_in_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    it = made(Server())
    assert it.of["service"].folder.parent == tmp_path
    files = {file.name: file for file in tmp_path.rglob("*") if file.is_file()}
    assert set(files) == {"tls.crt", "tls.key", "ca.crt"}
    assert files["tls.key"].stat().st_mode & 0o777 == 0o600
    assert files["tls.key"].parent.stat().st_mode & 0o777 == 0o700
    with running(it):
        pass
    assert list(tmp_path.iterdir()) == [], "nothing is left of it"


def test_a_team_s_own_certificate_needs_no_secret_of_ours(tmp_path: Path) -> None:
    files = signing.renewed({}, ["127.0.0.1"], 3600.0, time.time()) or {}
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(files[name])
    settings = load_settings(
        f"leader: {{namespace: space}}\ntls: {{certificates: {tmp_path}, publish: muster-ca}}"
    )
    server = Server()
    del server.data["secrets/muster-tls"]
    it = Secured(settings, server)  # type: ignore[arg-type]
    with running(it):
        (tmp_path / "ca.crt").write_bytes(files["ca.crt"])
        until("who signed is told once it is known", lambda: server.told == files["ca.crt"].decode())
