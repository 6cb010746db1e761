"""An API server that answers GET by hand: for commands that only read Gangs and nodes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.gangs import a_busy_cluster


class Server:
    """GET answers by path; a number is an HTTP status. `asked` counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {
            "/apis/muster.dev/v1alpha1/gangs": {"items": a_busy_cluster()},
            "/apis/muster.dev/v1alpha1/namespaces/team/gangs": {
                "items": [g for g in a_busy_cluster() if g["metadata"]["namespace"] == "team"]
            },
            "/api/v1/nodes": {
                "metadata": {"resourceVersion": "1"},
                "items": [
                    {
                        "metadata": {"name": f"n{n}"},
                        "spec": {},
                        "status": {"allocatable": {"nvidia.com/gpu": "8"}},
                    }
                    for n in range(4)
                ],
            },
        }
        outer = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                outer.asked.append(path)
                found = outer.answers.get(path, 404)
                body = json.dumps({"message": "no"} if isinstance(found, int) else found).encode()
                self.send_response(found if isinstance(found, int) else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def kubeconfig(self, folder: Path) -> str:
        """A kubeconfig whose context is namespace team."""
        file = folder / "kubeconfig"
        found = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        file.write_text(yaml.safe_dump(found))
        return str(file)


@contextmanager
def serving() -> Iterator[Server]:
    """A Server, until the block ends."""
    made = Server()
    try:
        yield made
    finally:
        made.http.shutdown()
        made.http.server_close()
