"""The threads of `muster serve`: none dies silently.

`supervised` starts each of them (tests/test_threads.py finds one that is started elsewhere). What escapes from its
body is logged and counted (`muster_thread_errors_total`), and the body begins again after a pause that doubles. A
`vital` one has nothing to go on with, such as a server whose port is taken: the process ends then, and who started it
starts it again. A thread that is dead all the same, or that has not gone on (`beat`) for as long as it said, is what
/healthz names (`ailing`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds before a body begins again: after its first error, doubling, and the most."""
QUIET = 60.0
"""Seconds without an error after which the next one counts as the first."""
STALLED = 60.0
"""Seconds within which a thread that looks at something now and then must have gone on."""
GRACE = 10.0
"""Seconds that the process has to end in order once a vital thread has ended."""
YOUNG = (100_000, 50, 100)
"""Objects and collections after which Python looks for cycles of garbage. Its own (700, 10, 10) walks a large
cluster's records again and again and finds nothing: a quarter of a cycle's time, and pauses of 150 ms in every
thread (measured: 5,000 nodes, 12,000 jobs)."""

_started: set[Supervised] = set()
_errors: dict[str, int] = {}


class KilledError(BaseException):
    """A thread that ends without a word (fault injection)."""


def _exit(why: str) -> None:
    log.critical("%s; muster ends", why)
    os._exit(1)


class Pauses:
    """How long what has ended is left alone before it begins again."""

    def __init__(self) -> None:
        self._next = PAUSE

    def sleep(self, began: float) -> None:
        """It has ended, and began last at this moment (monotonic)."""
        pause = PAUSE if time.monotonic() - began > QUIET else self._next
        time.sleep(pause)
        self._next = min(2 * pause, LONGEST_PAUSE)


class Supervised(threading.Thread):
    """One thread. Read by `ailing` from another one."""

    ends: Callable[[str], None] = staticmethod(_exit)
    """How the process ends, told why; `muster serve` puts its own way here."""
    injected: Callable[[str], None] | None = None
    """Fault injection: called with the thread's name as it goes on."""

    def __init__(
        self, name: str, body: Callable[[], object], within: float | None, *, vital: bool = False
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._body, self._vital = body, vital
        self.within = within
        self.beaten = time.monotonic()
        self.last = ""
        self.over = False

    def run(self) -> None:
        """The body, until it returns; it is made for that, or its error is one of many."""
        pauses = Pauses()
        while not self.over:
            began = time.monotonic()
            try:
                self.beat()
                self._body()
                self.over = True
            except KilledError:
                return
            except BaseException as error:
                self.last = f"{type(error).__name__}: {error}"
                _errors[self.name] = _errors.get(self.name, 0) + 1
                log.exception("thread %s", self.name)
            if self._vital:
                self.ends(f"thread {self.name} ended{': ' if self.last else ''}{self.last}")
                return
            if not self.over:
                pauses.sleep(began)
        _started.discard(self)

    def beat(self) -> None:
        """It goes on."""
        self.beaten = time.monotonic()
        injected = type(self).injected
        if injected is not None:
            injected(self.name)


def supervised(
    name: str, body: Callable[[], object], *, within: float | None = None, vital: bool = False
) -> Supervised:
    """Start a thread that runs `body` until it returns.

    within: seconds that may pass between two calls of `beat`, None: it may wait as long as it likes. vital: the
    process ends with it."""
    thread = Supervised(name, body, within, vital=vital)
    thread.start()
    _started.add(thread)
    if thread.over:
        _started.discard(thread)
    return thread


def beat() -> None:
    """Called by what a supervised thread runs, as often as it goes on; nothing in any other thread."""
    thread = threading.current_thread()
    if isinstance(thread, Supervised):
        thread.beat()


def ailing(now: float) -> list[str]:
    """Threads that are dead or have stopped, at `now` (monotonic), as /healthz names them."""
    found = []
    started = list(_started)  # at once: others start threads meanwhile
    for thread in sorted(started, key=lambda t: t.name):
        if thread.over:
            continue
        if not thread.is_alive():
            found.append(f"thread {thread.name} is dead")
        elif thread.within is not None and now - thread.beaten > thread.within:
            found.append(f"thread {thread.name} has not gone on for {now - thread.beaten:.0f} s")
    return found


class ThreadErrors(Collector):
    """muster_thread_errors_total{thread}."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """One reading."""
        errors = CounterMetricFamily(
            "muster_thread_errors", "Errors that escaped in a thread, which began again.", labels=["thread"]
        )
        for name, count in sorted(_errors.items()):
            errors.add_metric([name], count)
        yield errors
