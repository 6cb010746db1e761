"""Muster's own certificate on the API: one Secret that any replica renews, one ConfigMap that says who signed."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from muster.cluster.tls import Kept, publish
from muster.errors import ClusterError

NOW, LIFE = 1_800_000_000.0, 86400.0
SECRET = "/api/v1/namespaces/muster-system/secrets/muster-tls"
CONFIG = "/api/v1/namespaces/muster-system/configmaps/muster-ca"


class Server:
    """One object with data and a version; `others` write it before our patches arrive."""

    def __init__(self, others: list[dict[str, str]] | None = None, refuses: int = 0) -> None:
        self.data: dict[str, str] = {}
        self.version, self.others, self.refuses = 1, others or [], refuses
        self.writes: list[str] = []

    def get(self, path: str) -> bytes:
        assert path in (SECRET, CONFIG)
        if self.refuses == 404:
            raise ClusterError("secrets not found", 404)
        return json.dumps({"metadata": {"resourceVersion": str(self.version)}, "data": self.data}).encode()

    def request(self, method: str, path: str, body: dict[str, Any], kind: str) -> tuple[int, bytes]:
        assert (method, kind) == ("PATCH", "application/merge-patch+json")
        if self.refuses:
            return self.refuses, b'{"message": "it is forbidden"}'
        if self.others:
            self.data, self.version = self.others.pop(0), self.version + 1
        asked = body.get("metadata", {}).get("resourceVersion", str(self.version))
        if asked != str(self.version):
            return 409, b'{"message": "the object has been modified"}'
        self.data = {k: v for k, v in {**self.data, **body["data"]}.items() if v is not None}
        self.version += 1
        self.writes.append(path)
        return 200, b"{}"


def kept(server: Server) -> Kept:
    return Kept(server, "muster-system", "muster-tls", ("muster",), LIFE)  # type: ignore[arg-type]


def test_an_empty_secret_is_filled_once_and_renewed_when_it_is_due() -> None:
    server = Server()
    first = kept(server).renewed(NOW)
    assert {name: base64.b64decode(value) for name, value in server.data.items()} == first
    assert kept(server).renewed(NOW + LIFE / 2) == first
    assert server.writes == [SECRET]
    second = kept(server).renewed(NOW + LIFE * 0.7)
    assert (second["tls.crt"] != first["tls.crt"], second["ca.crt"]) == (True, first["ca.crt"])
    assert server.writes == [SECRET, SECRET]


def test_of_two_replicas_one_writes_and_the_other_takes_it() -> None:
    other = Server()
    theirs = kept(other).renewed(NOW)
    server = Server(others=[other.data])
    assert kept(server).renewed(NOW) == theirs
    assert server.writes == []


def test_what_is_no_base64_is_made_again() -> None:
    server = Server()
    server.data = {"tls.crt": "%%%", "ca.crt": 7}  # type: ignore[dict-item]
    assert kept(server).renewed(NOW)["tls.crt"].startswith(b"-----BEGIN")


@pytest.mark.parametrize(("status", "says"), [(403, "403 it is forbidden"), (404, "not found")])
def test_a_refusal_says_why(status: int, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        kept(Server(refuses=status)).renewed(NOW)


def test_an_api_server_on_which_others_write_all_the_time_is_left_for_now() -> None:
    server = Server(others=[{"tls.crt": str(i)} for i in range(9)])
    with pytest.raises(ClusterError, match="others write it all the time"):
        kept(server).renewed(NOW)


def test_who_signed_is_written_where_it_is_not_said_yet() -> None:
    server = Server()
    api: Any = server
    for _ in range(3):
        publish(api, "muster-system", "muster-ca", b"PEM")
    assert (server.data, server.writes) == ({"ca.crt": "PEM"}, [CONFIG])
    publish(api, "muster-system", "muster-ca", b"")
    assert server.data == {}
    with pytest.raises(ClusterError, match="403"):
        publish(Server(refuses=403), "muster-system", "muster-ca", b"PEM")  # type: ignore[arg-type]
