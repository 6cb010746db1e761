"""A server on this machine that takes JSON by POST, on threads of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENT = 60.0
"""Seconds for what takes milliseconds, on a machine that is busy with something else."""
Answer = tuple[int, Any, dict[str, str]]
"""Status, body and further headers."""


class JsonServer:
    """`answer` gets path, Authorization and body, and gives the answer; None closes the connection without one."""

    def __init__(self, answer: Callable[[str, str, Any], Answer | None], protocol: str = "HTTP/1.0") -> None:
        class Answers(BaseHTTPRequestHandler):
            protocol_version = protocol

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                found = answer(self.path, self.headers["Authorization"], body)
                if found is None:
                    self.close_connection = True
                    return
                code, said, headers = found
                text = json.dumps(said).encode()
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # type: ignore[method-assign]  # who gave up is gone
        self._thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    def close(self) -> None:
        self.http.shutdown()
        self._thread.join()
        self.http.server_close()
