"""When the kube-scheduler beside may start, and go on; e2e/test_installed_for_real.py has a kubelet that asks."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from e2e.lab.credentials import Authority
from muster.core.views.view import Board, empty_view
from muster.errors import ConfigurationError
from muster.server.access import Verdict
from muster.server.kube_scheduler import FRESH, STEADY, Beside, configure
from muster.server.service import make_service_app
from tests.scenario import FIFO, job, snapshot
from tests.server.reading import viewed

PATH = "/healthz/scheduler"


class Nobody:
    def may_list(self, token: str, namespace: str | None) -> Verdict:  # noqa: ARG002
        return Verdict.UNKNOWN


@dataclass
class Scheduler:
    """A kube-scheduler as its /livez shows it: HTTPS, with a certificate that nobody knows."""

    port: int = 0
    status: int = 200
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    found = Scheduler()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "ca.crt", tmp_path / "ca.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    found.port = server.server_port
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


class Clock:
    """A clock that stands until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(client: TestClient) -> tuple[int, list[str]]:
    got = client.get(PATH)
    return got.status_code, got.json()["missing"]


def test_a_kube_scheduler_goes_on_beside_a_muster_that_is_ready_and_has_run_for_a_while(
    scheduler: Scheduler,
) -> None:
    clock, closed = Clock(), ["the port of the extender"]
    board = Board(empty_view(FIFO))
    app = make_service_app(
        board,
        Nobody(),
        missing=lambda: ["pods"],
        closed=lambda: closed,
        beside=Beside(scheduler.port, clock=clock),
    )
    with TestClient(app) as client:
        assert told(client) == (503, ["pods"])
        board.view = viewed(snapshot(nodes=1, jobs=[job("runs", worker=1, on=["n0"])]))
        assert told(client) == (503, ["the port of the extender"])
        closed.clear()
        clock.now = STEADY - 1
        assert told(client) == (503, ["60 s since muster started"])
        assert client.get("/readyz").status_code == 200
        assert scheduler.asked == []
        clock.now = STEADY
        assert told(client) == (200, [])
        assert told(client) == (200, [])
        assert scheduler.asked == ["/livez"], "a crowd costs it one question a second"
        scheduler.status = 500
        clock.now += FRESH
        assert told(client) == (503, ["a live kube-scheduler (/livez: 500)"])


def test_a_kube_scheduler_that_does_not_answer_is_not_live() -> None:
    board = Board(viewed(snapshot(nodes=1, jobs=[])))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        beside = Beside(nobody.getsockname()[1], steady=0.0)
        with TestClient(make_service_app(board, Nobody(), beside=beside)) as client:
            status, (missing,) = told(client)
    assert status == 503
    assert missing.startswith("an answer of kube-scheduler (")
    assert "refused" in missing


def test_without_a_kube_scheduler_beside_nobody_asks_for_it() -> None:
    board = Board(viewed(snapshot(nodes=1, jobs=[])))
    with TestClient(make_service_app(board, Nobody())) as client:
        got = client.get(PATH)
        assert (got.status_code, got.json()) == (
            404,
            {"error": "no kube-scheduler is in the pod of this muster"},
        )


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    (tmp_path / "scheduler.yaml").write_text("kind: KubeSchedulerConfiguration\n")
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "scheduler.yaml"


def test_each_kube_scheduler_reads_its_configuration_once_and_whole(
    tmp_path: Path, pipe: Path, ended: threading.Event
) -> None:
    configure(tmp_path / "scheduler.yaml", pipe, ended)
    for _ in range(50):
        assert pipe.read_text() == "kind: KubeSchedulerConfiguration\n"


def test_beside_a_muster_that_has_restarted_it_waits_until_that_has_run_for_a_while(
    tmp_path: Path, pipe: Path, ended: threading.Event
) -> None:
    os.mkfifo(pipe)
    configure(tmp_path / "scheduler.yaml", pipe, ended, steady=3600.0)
    waiting = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(waiting, 1) == b"", "nobody writes"
    os.close(waiting)
    (again := pipe.with_name("again")).mkdir()
    os.mkfifo(again / "scheduler.yaml")
    configure(tmp_path / "scheduler.yaml", again / "scheduler.yaml", ended, steady=0.0)
    assert (again / "scheduler.yaml").read_text() == "kind: KubeSchedulerConfiguration\n"


def test_without_a_configuration_or_a_place_for_the_pipe_muster_says_so(
    tmp_path: Path, pipe: Path, ended: threading.Event
) -> None:
    for configuration, where in (("none.yaml", pipe), ("scheduler.yaml", tmp_path / "none" / "pipe")):
        with pytest.raises(ConfigurationError, match=r"--scheduler-pipe: .*No such file"):
            configure(tmp_path / configuration, where, ended)
