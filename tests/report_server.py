"""A server that training processes report to: it answers as it is told and keeps what it was sent."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import muster.report

PATIENT = 60.0
"""Seconds for what takes milliseconds, on a machine that is busy with something else."""


class ReportServer:
    """`answers` are given in turn (status, body, headers); `bodies` and `tokens` are what came."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any, dict[str, str]]] = []  # the last one stays
        self.bodies: list[Any] = []
        self.tokens: list[str] = []
        self.came = threading.Condition()
        self.hold = threading.Event()
        self.hold.set()
        outer = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.hold.wait()
                with outer.came:
                    code, answer, headers = (
                        outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                    )
                    outer.bodies.append((self.path, json.loads(body)))
                    outer.tokens.append(self.headers["Authorization"])
                    outer.came.notify_all()
                text = json.dumps(answer).encode()
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who gave up is gone
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def encrypt(self, certificate: Path) -> None:
        """Speak https from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # The handshake is each connection's own thread's.
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = self.url.replace("http:", "https:")

    def close(self) -> None:
        self.hold.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

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
    monkeypatch.setattr(muster.report, "TIMEOUT", PATIENT)
    running = ReportServer()
    running.answers = [(200, {"accepted": True, "replicas": {"worker": 2}, "every": every}, {})]
    (tmp_path / "token").write_text(token)
    monkeypatch.setenv("MUSTER_URL", running.url)
    monkeypatch.setenv("MUSTER_TOKEN_FILE", str(tmp_path / "token"))
    try:
        yield running
    finally:
        running.close()
