"""POST /v1/agents: a thread that tells Muster where the agent stands, and hears its orders.

A request is answered at once or held by Muster for up to 20 s, and for a sixth of the lease at most. What changes
meanwhile is told at once: the request that is held is given up, and another one sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

from muster_report.agent.standing import Answer, read_answer
from muster_report.report import TRIES, Refused, addresses, connection_to, exchange, pod_token

PATH = "/v1/agents"
HELD = 25.0
"""Seconds for an answer: Muster's 20, and some for the way."""
PART = 3
"""Of a lease, what is waited for an answer at most: whoever doesn't answer by then is asked on another connection."""
FIRST, LONGEST = 0.1, 2.0
"""Seconds between tries while nobody answers: a lease is running out."""
AGAIN = 0.2
"""Seconds between requests that are answered alike, where there is no news."""
ASKED = 5.0
"""Seconds that a refusal may ask us to wait for, at most."""


def boottime() -> float:
    """Seconds by the clock that leases are counted on: nobody sets it, and it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Poll:
    """heard: takes an answer and when its request was sent, on the thread; say: each problem's sentence, once."""

    def __init__(self, heard: Callable[[Answer, float], None], say: Callable[[str], None]) -> None:
        self._heard, self._say = heard, say
        self._said: set[str] = set()
        self._turn = threading.Condition()
        self._body: dict[str, Any] = {}
        self._version = self._answered = 0
        self._wire: socket.socket | None = None  # of the request that is held; a second handle of the socket
        self._connection: tuple[str, HTTPConnection] | None = None  # kept between requests
        self._patience = HELD
        self._failures = 0
        self._first = 0  # index of the URL that answered last

    def start(self) -> None:
        threading.Thread(target=self._run, name="muster-poll", daemon=True).start()

    def tell(self, body: dict[str, Any]) -> None:
        """What holds from now on."""
        with self._turn:
            self._body = body
            self._version += 1
            self._turn.notify_all()
            if self._wire is not None:
                with contextlib.suppress(OSError):
                    self._wire.shutdown(socket.SHUT_RDWR)

    def flush(self, timeout: float) -> bool:
        """Whether the newest was answered, after `timeout` seconds at most."""
        with self._turn:
            wanted = self._version
            return self._turn.wait_for(lambda: self._answered >= wanted, timeout)

    # ---- the thread ----

    def _run(self) -> None:
        last = None
        while True:
            with self._turn:
                body, version = json.dumps(self._body).encode(), self._version
            try:
                sent, found = self._post(body, version)
                answer = read_answer(found)
                self._patience = min(HELD, answer.lease / PART)
                self._heard(answer, sent)
                self._failures = 0
                with self._turn:
                    self._answered = version
                    self._turn.notify_all()
                    if answer == last:  # an order that is being carried out: Muster answers at once
                        self._wait_for_news(version, max(0.0, AGAIN - (boottime() - sent)))
                last = answer
            except Refused as refused:
                self._failed(version, f"status {refused.status}", str(refused), refused.after)
            except Exception as error:  # a thread that dies would take the lease with it
                self._failed(version, repr(type(error)), repr(error), 0.0)

    def _failed(self, version: int, kind: str, why: str, asked: float) -> None:
        with self._turn:
            if version != self._version:
                return  # given up: there is news
            if kind not in self._said:
                self._said.add(kind)
                self._say(f"no orders from Muster: {why}")
            pause = min(LONGEST, FIRST * 2.0 ** min(self._failures, 10)) * random.uniform(0.75, 1.25)
            self._failures += 1
            self._wait_for_news(version, max(pause, min(asked, ASKED)))

    def _wait_for_news(self, version: int, seconds: float) -> None:
        self._turn.wait_for(lambda: version != self._version, seconds)

    def _post(self, body: bytes, version: int) -> tuple[float, dict[str, Any]]:
        """When the request that was answered was sent, and its answer. Raises Refused."""
        urls = addresses()
        if not urls:
            raise Refused(0, "MUSTER_URL is not set: admission sets it")
        last = Refused(0, "nobody answered")
        for attempt in range(max(TRIES, len(urls))):
            which = (self._first + attempt) % len(urls)
            kept = self._connection is not None and self._connection[0] == urls[which]
            try:
                found = self._ask(urls[which], pod_token(), body, version)
            except Refused as refused:
                last = refused
                self._close()
                if refused.status == 421 or (
                    refused.status in (0, 502, 503)
                    and version == self._version
                    and (kept or attempt + 1 < len(urls))
                ):
                    time.sleep(0.01 * attempt)
                    continue
                raise
            self._first = which
            return found
        raise last

    def _ask(self, url: str, token: str, body: bytes, version: int) -> tuple[float, dict[str, Any]]:
        if self._connection is not None and self._connection[0] != url:
            self._close()
        if self._connection is None:
            self._connection = (url, connection_to(url, self._patience))
        connection = self._connection[1]
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                raise Refused(0, f"{url}: {error!r}") from error
        connection.sock.settimeout(self._patience)
        with self._turn:
            if version != self._version:
                raise Refused(0, "there is news")
            self._wire = socket.socket(fileno=os.dup(connection.sock.fileno()))
        sent = boottime()
        try:
            return sent, exchange(connection, url, PATH, token, body, {})
        finally:
            with self._turn:
                self._wire.close()
                self._wire = None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None
