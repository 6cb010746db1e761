"""The kube-scheduler beside: when it may start, and whether it may go on.

It holds the Lease whatever becomes of muster, and a muster that crashes again and again would keep a replica that is
well from leading.

- *Go on*: its livenessProbe asks GET /healthz/scheduler (charts/). The kubelet ends a kube-scheduler whose muster is
  not ready for two minutes: the Lease is free then. A muster that has just started says no as well (`STEADY`): else
  it would say yes between any two crashes, and a kubelet's back-offs are as short as its configuration has them.
  kube-scheduler's own /livez is asked last, so that one that hangs is still found.
- *Start*: the kubelet starts it again within a second, before the other replica has looked at the Lease, and waits
  for no sidecar then. So it reads its configuration from a named pipe that muster writes: where no muster is, it
  waits there, without the Lease.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import ssl
import threading
from collections.abc import Callable
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from time import monotonic

from anyio import to_thread

from muster.errors import ConfigurationError
from muster.threads import supervised

log = logging.getLogger(__name__)

PORT = 10259
"""Of kube-scheduler, HTTPS. It makes its certificate itself at each start; on loopback nobody needs to check it."""
STEADY = 60.0
"""Seconds that muster must have run. The probe waits as long before it first asks, and gives up after twice that: a
muster that restarts once has a minute for it."""
TIMEOUT = 10.0
"""Seconds that kube-scheduler has for its answer: less than the probe waits."""
FRESH = 1.0
"""Seconds for which its answer is given again: nobody needs a token here, and each question is a TLS handshake."""


class Beside:
    """The kube-scheduler of this pod; made when muster starts."""

    def __init__(
        self, port: int = PORT, steady: float = STEADY, clock: Callable[[], float] = monotonic
    ) -> None:
        self._port, self._steady, self._clock = port, steady, clock
        self._started = clock()
        self._turn = asyncio.Lock()
        self._asked = -math.inf
        self._said = ""

    async def lacks(self) -> list[str]:
        """What is missing, of a muster that is ready; empty when nothing is."""
        if self._clock() - self._started < self._steady:
            return [f"{self._steady:g} s since muster started"]
        async with self._turn:
            if self._clock() - self._asked >= FRESH:
                self._said = await to_thread.run_sync(livez, self._port)
                self._asked = self._clock()
        return [self._said] if self._said else []


def livez(port: int) -> str:
    """What is wrong with the kube-scheduler whose port this is, "" for nothing."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    line = HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT, context=unverified)
    try:
        line.request("GET", "/livez")
        status = line.getresponse().status
    except (OSError, HTTPException) as error:
        return f"an answer of kube-scheduler ({error})"
    finally:
        line.close()
    return "" if status == 200 else f"a live kube-scheduler (/livez: {status})"


def configure(configuration: Path, pipe: Path, ended: threading.Event, steady: float = STEADY) -> None:
    """Give the configuration to each kube-scheduler that opens the pipe, in a thread of its own: at once where the
    pipe is new (so is the pod), else once muster has run for a while. Raises ConfigurationError where either is
    missing and can't be made."""
    try:
        text = configuration.read_bytes()
        again = pipe.exists()
        if not again:
            os.mkfifo(pipe, 0o600)
    except OSError as error:
        raise ConfigurationError(f"--scheduler-pipe: {error}") from error

    def run() -> None:
        if again:
            ended.wait(steady)
        while not ended.is_set():
            try:
                _give(text, pipe)
            except OSError as error:
                log.warning("kube-scheduler could not be given its configuration: %s", error)
                ended.wait(1.0)

    supervised("configuration", run)


def _give(text: bytes, pipe: Path) -> None:
    """Wait for a reader, and give it the text. The next one has a pipe of its own: this one may still be reading."""
    with pipe.open("wb", buffering=0) as reader:
        following = pipe.with_suffix(".next")
        following.unlink(missing_ok=True)
        os.mkfifo(following, 0o600)
        following.replace(pipe)
        reader.write(text)
