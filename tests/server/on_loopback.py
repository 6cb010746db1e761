"""A server of `web_server` on a port of loopback, and who speaks to it over a socket."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from muster.server.tls import Certificates
from muster.server.web import Bounded, web_server

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def tells_scheme(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers "http" or "https"."""
    while (await receive()).get("more_body"):
        pass
    body = scope["scheme"].encode()
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(
    app: ASGIApp = tells_scheme, certificates: Certificates | None = None, **bounds: object
) -> Iterator[int]:
    """Its port. bounds: `arrives=0.3` and others of `Bounded`."""
    protocol: type[Bounded] = type("Tight", (Bounded,), {"open": Counter(), **bounds})
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    server = web_server(app, "127.0.0.1", port, certificates, protocol=protocol)
    server.config.lifespan = "off"
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for _ in range(1000):
        if server.started:
            break
        thread.join(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(10)


def asks(one: socket.socket) -> bool:
    """One request: whether it is answered, and well."""
    scheme = "https" if isinstance(one, ssl.SSLSocket) else "http"
    one.sendall(GET)
    found = b""
    while not found.endswith(f"\r\n\r\n{scheme}".encode()):
        more = one.recv(1000)
        if not more:
            return False
        found += more
    return found.startswith(b"HTTP/1.1 200")
