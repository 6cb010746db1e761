"""The client's kept connections, against a server of its own on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubernetes.client import Configuration

from muster.cluster import api as module
from muster.cluster.api import NOT_SENT, Api, Errand, TermOverError
from muster.errors import ClusterError


class Server:
    """Answers as it is told, and remembers what came over which connection."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes, int]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.close_after = self._ended = False
        self.hangs = threading.Event()
        self.hangs.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                outer.hangs.wait()
                outer.seen.append((self.command, self.path, body, self.client_address[1]))
                status, headers, answer = outer.answers.pop(0) if outer.answers else (200, {}, b"{}")
                if status == 0:  # no answer
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if headers.get("Transfer-Encoding") == "chunked":
                    self.end_headers()
                    for part in (answer[:3], answer[3:], b""):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                else:
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                self.close_connection = self.close_connection or outer.close_after

            do_GET = do_POST = do_PATCH = do_DELETE = do  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who gave up is gone
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._server.shutdown()
            self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.end()


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "REQUEST_TIMEOUT", 60.0)  # a server that is slow does not hang
    config = Configuration()
    config.host, config.proxy = f"{server.address}/clusters/a", None
    one = Api(config)
    yield one
    one.close()


def test_requests_share_a_connection_and_keep_the_hosts_path(server: Server, client: Api) -> None:
    server.answers = [(200, {}, b"one"), (201, {"Transfer-Encoding": "chunked"}, b"two and more")]
    assert client.request("GET", "/api") == (200, b"one")
    assert client.request("PATCH", "/api/p", {"a": 1}, "text/patch") == (201, b"two and more")
    assert [seen[:3] for seen in server.seen] == [
        ("GET", "/clusters/a/api", b""),
        ("PATCH", "/clusters/a/api/p?fieldValidation=Ignore", b'{"a": 1}'),
    ]
    assert server.seen[0][3] == server.seen[1][3]


def test_whether_it_may_be_sent_is_asked_once_the_connection_stands(server: Server, client: Api) -> None:
    """A connection takes its time, and a term may end meanwhile."""
    asked: list[int] = []

    def may(last: int) -> bool:
        asked.append(len(server.seen))
        return len(asked) < last

    assert client.during(Errand(lambda: may(99))).request("PATCH", "/api/p", {})[0] == 200
    assert asked == [0, 0], "before, and once the connection stands"
    asked.clear()
    with pytest.raises(TermOverError) as raised:
        client.during(Errand(lambda: may(2))).request("PATCH", "/api/p", {})
    assert (raised.value.status, len(asked), len(server.seen)) == (NOT_SENT, 2, 1)
    assert client.request("GET", "/api")[0] == 200, "who belongs to no term is not asked"


def test_an_errand_knows_for_how_long_the_server_asked_to_wait(server: Server, client: Api) -> None:
    errand = Errand(lambda: True)
    server.answers = [(429, {"Retry-After": "1"}, b"slow down"), (200, {}, b"{}")]
    assert client.during(errand).request("POST", "/api", {}, patient=False)[0] == 429
    assert client.during(errand).request("POST", "/api", {}, patient=False)[0] == 200
    assert errand.after == 1.0


def test_a_watch_gives_whole_lines_and_a_half_one_at_its_end_is_none(server: Server, client: Api) -> None:
    server.answers = [(200, {"Transfer-Encoding": "chunked"}, b'{"a": 1}\n\n{"b": 2}\n{"c": ')]
    assert list(client.lines("/api?watch=true")) == [b'{"a": 1}', b'{"b": 2}']


def test_a_watch_that_is_refused_or_breaks_says_so(server: Server, client: Api) -> None:
    server.answers = [(410, {}, b'{"message": "too old resource version"}')]
    with pytest.raises(ClusterError, match="410 too old resource version") as refused:
        list(client.lines("/api?watch=true"))
    assert refused.value.status == 410
    server.answers = [(0, {}, b"")]
    with pytest.raises(ClusterError, match="watch /api") as broken:
        list(client.lines("/api?watch=true"))
    assert broken.value.status == 0


def test_a_question_in_the_path_stays_one(server: Server, client: Api) -> None:
    client.request("PATCH", "/api/p?dryRun=All", {}, "text/patch")
    assert server.seen[0][1] == "/clusters/a/api/p?dryRun=All&fieldValidation=Ignore"


def test_a_busy_server_is_asked_again(server: Server, client: Api) -> None:
    server.answers = [(429, {}, b"slow down"), (429, {"Retry-After": "0"}, b"slow down")]
    assert client.request("POST", "/api", {})[0] == 200
    assert len(server.seen) == 3


def test_a_server_that_stays_busy_is_believed(server: Server, client: Api) -> None:
    server.answers = [(429, {}, b"slow down")] * 9
    assert client.request("POST", "/api", {})[0] == 429
    assert len(server.seen) == module.TRIES + 1


def test_pauses_double_unless_the_server_says_how_long(
    server: Server, client: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    monkeypatch.setattr(module, "PAUSE", 0.1)
    server.answers = [(429, {}, b"slow down")] * 3
    assert client.request("POST", "/api", {})[0] == 200
    server.answers = [(429, {"Retry-After": said}, b"slow down") for said in ("1", "60")]
    assert client.request("POST", "/api", {})[0] == 200
    assert slept == [0.1, 0.2, 0.4, 1.0, module.LONGEST_PAUSE]


def test_a_request_that_is_answered_goes_past_tenacity(
    server: Server, client: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs as much CPU as the request, and each pod that starts is one or two."""

    def called(**_: object) -> None:
        raise AssertionError("no retry is needed")

    monkeypatch.setattr(module.tenacity, "Retrying", called)
    assert client.request("PATCH", "/api", {})[0] == 200
    server.answers = [(500, {}, b"{}")]
    assert client.request("PATCH", "/api", {})[0] == 500


def test_an_answer_that_does_not_come_is_an_error_and_the_request_is_not_sent_twice(
    server: Server, client: Api
) -> None:
    server.answers = [(0, {}, b"")]
    with pytest.raises(ClusterError, match="Empty reply from server"):
        client.request("POST", "/api", {})
    assert len(server.seen) == 1
    assert client.request("POST", "/api", {})[0] == 200


def test_a_connection_that_was_closed_while_it_rested_is_not_used(server: Server, client: Api) -> None:
    server.close_after = True
    for _ in range(3):
        assert client.request("POST", "/api", {})[0] == 200
    assert len({seen[3] for seen in server.seen}) == 3


def test_a_server_that_hangs_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_TIMEOUT", 0.05)
    config = Configuration()
    config.host, config.proxy = server.address, None
    one = Api(config)
    server.hangs.clear()
    with pytest.raises(ClusterError, match="timed out"):
        one.request("GET", "/api")
    server.hangs.set()
    one.close()


def test_nobody_there_is_said(server: Server, client: Api) -> None:
    server.end()
    with pytest.raises(ClusterError, match="GET /api"):
        client.request("GET", "/api")
