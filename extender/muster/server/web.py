"""A web server that no slow or greedy client keeps from its work: uvicorn, with bounds on what it lacks bounds for.

A connection has ARRIVES seconds to send a request whole, counted from its first byte, or from when it was opened; so
has each later request on it. Idle ones are closed by uvicorn (`timeout_keep_alive`). There are MOST connections at a
time, OF_ONE of one address (loopback apart: port-forwards and proxies come from there); what is above is closed.
Where there are MOST, a new one takes the place of the oldest of the address that has the most of them: else a few
pods that hold all of them would keep the kubelet's probes out, and muster would be started again and again. It
does not bound how fast an answer is read: answers are small, and wait in the client's connection only.
With TLS (server/tls.py) all of that counts from when the connection was opened, its handshake included, which uvicorn
would not bound; each handshake is made with the newest certificate.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from ipaddress import ip_address
from typing import ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr

from muster.server.tls import Certificates

ARRIVES = 10.0
MOST, OF_ONE = 1024, 64


class Bounded(HttpToolsProtocol):
    """uvicorn's protocol for one connection, with the bounds above."""

    arrives: ClassVar[float] = ARRIVES
    most: ClassVar[int] = MOST
    of_one: ClassVar[int] = OF_ONE
    open: ClassVar[Counter[str]] = Counter()
    """Connections by address, of all servers of this process that use this class."""
    certificates: ClassVar[Certificates | None] = None
    """None: plain HTTP."""

    _late: asyncio.TimerHandle | None = None
    _address = ""
    _since = 0.0
    _handshake: asyncio.Task[None] | None = None
    _early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more; closed at once where that is one too many."""
        self.connections.add(self)
        self.transport, self.client = transport, get_remote_addr(transport)
        address = self.client[0] if self.client else ""
        if (self.open[address] >= self.of_one and not _local(address)) or not self._has_room(address):
            self.connections.discard(self)
            transport.abort()
            return
        self._address, self._since = address, self.loop.time()
        self.open[address] += 1
        self._wait()
        if self.certificates is None:
            super().connection_made(transport)
        else:
            transport.pause_reading()  # what comes now is for the handshake, which begins in a moment
            self._handshake = self.loop.create_task(self._secure(transport, self.certificates))

    async def _secure(self, transport: asyncio.Transport, certificates: Certificates) -> None:
        """The handshake, within the time that a request has."""
        try:
            secured = await self.loop.start_tls(
                transport, self, certificates.context, server_side=True, ssl_handshake_timeout=self.arrives
            )
        except OSError:  # ssl.SSLError is one: plain HTTP, no common version, gone
            secured = None
        if secured is None or secured.is_closing():
            transport.abort()
            self._leave()
            return
        super().connection_made(secured)
        self._handshake = None
        if self._early:
            super().data_received(self._early)

    def data_received(self, data: bytes) -> None:
        """What comes with the handshake's last bytes waits for its end."""
        if self._handshake is not None:
            self._early += data
            return
        super().data_received(data)

    def _has_room(self, address: str) -> bool:
        """Whether there is one to spare for that address; the oldest of one that has more of them makes way."""
        if len(self.connections) <= self.most:
            return True
        there = [c for c in self.connections if isinstance(c, Bounded) and c._address]
        there = [c for c in there if not c.transport.is_closing()]
        if len(there) < self.most:
            return True
        of = Counter([c._address for c in there])
        greediest = max(of, key=lambda one: of[one], default=address)
        if of[greediest] <= of[address] + 1:
            return False
        min((c for c in there if c._address == greediest), key=lambda c: c._since).transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """One less."""
        self._leave()
        super().connection_lost(exc)

    def _leave(self) -> None:
        self._came()
        self.connections.discard(self)
        if self._address:
            self.open[self._address] -= 1
            if self.open[self._address] <= 0:
                del self.open[self._address]
            self._address = ""

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._wait()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """It is there whole."""
        self._came()
        super().on_message_complete()

    def _wait(self) -> None:
        self._came()
        self._late = self.loop.call_later(self.arrives, self.transport.abort)

    def _came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class ForAgents(Bounded):
    """Where agents beside training hold a connection each, as long as they train: 1,000 of them leave as many as
    ever for all others. Of one address they have no more than others: a node has 16 GPUs or fewer."""

    most: ClassVar[int] = 4 * MOST


def _local(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return True  # a socket of this machine


def web_server(
    app: ASGIApp,
    host: str,
    port: int,
    certificates: Certificates | None = None,
    *,
    protocol: type[Bounded] = Bounded,
) -> uvicorn.Server:
    """A web server; HTTPS with these certificates."""
    if certificates is not None:
        protocol = type("Secured", (protocol,), {"certificates": certificates})
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            http=protocol,
            proxy_headers=False,  # nobody reads the client's address
        )
    )
