"""A server that training processes report to: it answers as it is told and keeps what it was sent."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import muster_report.report
from tests.json_server import PATIENT, Answer, JsonServer


class ReportServer:
    """`answers` are given in turn (status, body, headers); `bodies` and `tokens` are what came. `asked`: something
    has come, and may be held."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []  # the last one stays
        self.bodies: list[Any] = []
        self.tokens: list[str] = []
        self.came = threading.Condition()
        self.asked = threading.Event()
        self.hold = threading.Event()
        self.hold.set()
        self._server = JsonServer(self._said)
        self.url = self._server.url

    def _said(self, path: str, who: str, body: Any) -> Answer:
        self.asked.set()
        self.hold.wait()
        with self.came:
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            self.bodies.append((path, body))
            self.tokens.append(who)
            self.came.notify_all()
        return answer

    def encrypt(self, certificate: Path) -> None:
        """Speak https from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # The handshake is each connection's own thread's.
        self._server.http.socket = context.wrap_socket(
            self._server.http.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = self.url.replace("http:", "https:")

    def close(self) -> None:
        self.hold.set()
        self._server.close()

    def wait(self, count: int) -> list[Any]:
        """The bodies, when there are so many."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.bodies) >= count, PATIENT), self.bodies
            return [body for _, body in self.bodies]


@contextlib.contextmanager
def served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, token: str, every: float
) -> Iterator[ReportServer]:
    """One that runs, where MUSTER_URL and MUSTER_TOKEN_FILE say; it takes reports of two workers, `every` s. Who
    posts from this process waits for its answer as long as it takes: a post that is given up is sent again."""
    monkeypatch.setattr(muster_report.report, "TIMEOUT", PATIENT)
    running = ReportServer()
    running.answers = [(200, {"accepted": True, "replicas": {"worker": 2}, "every": every}, {})]
    (tmp_path / "token").write_text(token)
    monkeypatch.setenv("MUSTER_URL", running.url)
    monkeypatch.setenv("MUSTER_TOKEN_FILE", str(tmp_path / "token"))
    try:
        yield running
    finally:
        running.close()
