"""The process that answers the extender verbs: `python -m muster.server.verbs FD PORT SCHEDULER`.

It knows the planner's process (server/answering.py) by one socket, FD. From there come Views, in parts
(core.views.view_changes); a View is in force when it is there whole, and acknowledged then. Back go what happened and
what was answered, as lines of JSON; where nobody reads them, counts are dropped, and no verb waits. Its port opens
with the first View of a planner that is synced. It ends with the socket, which the kernel closes with the planner's
process however that ends.

One loop and no other thread: a verb waits for one part of a View at the most.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import pickle
import signal
import socket
import sys
from time import monotonic

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from muster.core.views.view import Board
from muster.core.views.view_changes import Copy, Part
from muster.server.extender import make_extender_app
from muster.threads import YOUNG

log = logging.getLogger(__name__)

KEPT = 120
"""Seconds for which an idle connection of a kube-scheduler is kept: longer than it does (90). A POST on a connection
that is just being closed is lost, and it repeats none."""
BIND = 2.0
"""Seconds for which a port that is taken is tried: by one of these that is about to end, after its planner did."""
TELLS = 0.25
"""Seconds between two lines of counts."""
UNREAD = 1 << 18
"""Bytes that wait to be read by the planner's process, from which on counts are dropped."""
BACKLOG = 2048
GRACE = 3.0
"""Seconds for calls that are being answered when it ends."""
LENGTH = 8
"""Bytes before each message that say how long it is."""
WHOLE = "whole"
"""The message after the last part of a View."""
DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


class Told(msgspec.Struct, omit_defaults=True):
    """One line of this process: it is ready for a View, a View is in force, its port is open; or calls."""

    ready: bool = False
    took: bool = False
    open: bool = False
    calls: list[tuple[str, int, str, float]] = []
    dropped: int = 0


class Telling:
    """What is told to the planner's process."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._calls: list[tuple[str, int, str, float]] = []
        self._dropped = 0

    def say(self, told: Told) -> None:
        """At once."""
        self._writer.write(msgspec.json.encode(told) + b"\n")

    def call(self, verb: str, status: int, verdict: str, seconds: float) -> None:
        """One call that was answered, soon."""
        if not self._calls:
            asyncio.get_running_loop().call_later(TELLS, self._flush)
        self._calls.append((verb, status, verdict, seconds))

    def _flush(self) -> None:
        calls, self._calls = self._calls, []
        if self._writer.transport.get_write_buffer_size() > UNREAD:
            self._dropped += len(calls)
            return
        self.say(Told(calls=calls, dropped=self._dropped))
        self._dropped = 0


async def answer(line: socket.socket, port: int, scheduler: str) -> None:
    """Until the planner's process is gone, or a signal comes. Raises OSError where the port is taken, and what else
    keeps it from its work."""
    board = Board(Copy().view())
    reader, writer = await asyncio.open_connection(sock=line)
    telling = Telling(writer)
    server = uvicorn.Server(
        uvicorn.Config(
            make_extender_app(board, telling.call, scheduler),
            log_level="warning",
            access_log=False,
            http=HttpToolsProtocol,  # its clients are on loopback: no bounds as the service port's (server/web.py)
            proxy_headers=False,
            timeout_keep_alive=KEPT,
        )
    )
    synced = asyncio.Event()
    telling.say(Told(ready=True))
    reading = asyncio.create_task(_read(reader, board, telling, synced))
    serving = asyncio.create_task(_serve(server, port, telling, synced))
    ended, _ = await asyncio.wait({reading, serving}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await asyncio.wait({serving}, timeout=GRACE if synced.is_set() else 0)
    for task in ended:
        task.result()


async def _read(reader: asyncio.StreamReader, board: Board, telling: Telling, synced: asyncio.Event) -> None:
    """Take Views until there is nobody who sends them."""
    copy = Copy()
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = int.from_bytes(await reader.readexactly(LENGTH), "big")
            part: Part | str = pickle.loads(await reader.readexactly(length))
            if part == WHOLE:
                board.view = copy.view()
                telling.say(Told(took=True))
                if board.view.synced and not synced.is_set():
                    gc.freeze()
                    synced.set()
            elif isinstance(part, Part):
                copy.take(part)
            await asyncio.sleep(0)  # a verb that waits is answered before the next part


async def _serve(server: uvicorn.Server, port: int, telling: Telling, synced: asyncio.Event) -> None:
    """Open the port, once it is known what to answer."""
    await synced.wait()
    listening = await _bound(port)
    listening.listen(BACKLOG)
    telling.say(Told(open=True))
    await server.serve([listening])


async def _bound(port: int) -> socket.socket:
    deadline = monotonic() + BIND
    while True:
        # By name: asyncio sets TCP_NODELAY only on sockets that say they are TCP; else each answer takes 40 ms.
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("127.0.0.1", port))
        except OSError:
            found.close()
            if monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            return found


def main(arguments: list[str]) -> None:
    """The process. Where it is stopped, or in an endless loop, the kernel ends it with the thread that started it."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    gc.set_threshold(*YOUNG)
    line, port, scheduler = arguments
    try:
        asyncio.run(answer(socket.socket(fileno=int(line)), int(port), scheduler))
    except OSError as error:
        log.error("the verbs can't be answered on port %s: %s", port, error)
        os._exit(1)
    except KeyboardInterrupt:
        pass
    os._exit(0)  # nothing that is still open is waited for


if __name__ == "__main__":
    main(sys.argv[1:])
