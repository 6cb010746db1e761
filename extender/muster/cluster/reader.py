"""What is read by name and now and then, because watching all of its kind would cost more: one thread a kind.

The Ledger says what it wants to know, by key; each answer is an event, and says when it is worth asking again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from muster.cluster.watch import Sink
from muster.errors import ClusterError
from muster.types import Event

log = logging.getLogger(__name__)

SOON = 1.0
"""Seconds after which a read that got no answer is tried again."""
LOOK = 0.5
"""Seconds between looks at what is due; a new key is read at once."""

K = TypeVar("K", bound=tuple[Any, ...])


class Reader(Generic[K]):
    """The thread that reads `kind`. `read` gives the event of a key, and the seconds until it is due again."""

    def __init__(self, kind: str, read: Callable[[K], tuple[Event, float]], sink: Sink) -> None:
        self._kind, self._read, self._sink = kind, read, sink
        self._due: dict[K, float] = {}
        self._wanted: frozenset[K] = frozenset()
        self._stop = threading.Event()
        self._new = threading.Event()

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name=self._kind, daemon=True).start()

    def stop(self) -> None:
        """End soon."""
        self._stop.set()
        self._new.set()

    def want(self, keys: frozenset[K]) -> None:
        """What is wanted from now on; what is not any more is forgotten, and read anew when it comes back."""
        before, self._wanted = self._wanted, keys
        if keys is not before and keys - before:
            self._new.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._new.wait(LOOK)
            self._new.clear()
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Read what is due at `now` (monotonic)."""
        wanted = self._wanted
        self._due = {key: at for key, at in self._due.items() if key in wanted}
        for key in sorted(key for key in wanted if self._due.get(key, 0.0) <= now):
            if self._stop.is_set():
                return
            try:
                event, pause = self._read(key)
            except ClusterError as error:
                self._due[key] = now + SOON
                log.warning("reading %s %s: %s", self._kind, "/".join(map(str, key)), error)
                continue
            self._due[key] = now + pause
            self._sink([event])
