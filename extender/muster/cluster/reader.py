"""What is read by name and now and then, because watching all of its kind would cost more, or may not be done.

The Ledger says what it wants to know, by key; each answer is an event, and says when it is worth asking again.
Several workers read, and namespaces take turns: who has 10,000 objects to be read keeps nobody else waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from muster.cluster.watch import Sink
from muster.errors import ClusterError
from muster.threads import STALLED, beat, supervised
from muster.types import Event, Gone, Unreadable

log = logging.getLogger(__name__)

SOON = 1.0
"""Seconds after which a read that got no answer is tried again."""
LATER = 10.0
"""Seconds after which one that failed in another way is."""
LOOK = 0.5
"""Seconds between looks at what is due; a new key is read at once."""

K = TypeVar("K", bound=tuple[Any, ...])


class Reader(Generic[K]):
    """The threads that read `kind`. `read` gives the event of a key (None: nothing to tell), whose first part is its
    namespace, and the seconds until it is due again; gone: the event that would tell its end, where it can end."""

    def __init__(
        self,
        kind: str,
        read: Callable[[K], tuple[Event | None, float]],
        sink: Sink,
        workers: int = 1,
        gone: Callable[[K], Gone | None] = lambda key: None,  # noqa: ARG005
    ) -> None:
        self._kind, self._read, self._sink, self._workers, self._gone = kind, read, sink, workers, gone
        self._wanted: frozenset[K] = frozenset()
        self._stop = threading.Event()
        self._new = threading.Event()
        self._lock = threading.Lock()
        # under the lock:
        self._due: dict[K, float] = {}
        self._turns: dict[str, deque[K]] = {}  # what is due, by namespace; the first one's turn is next
        self._taken: set[K] = set()  # these, and those that are being read
        self._hurried: set[K] = set()  # of those: once more when they have been read

    def start(self) -> None:
        """Begin."""
        for number in range(self._workers):
            supervised(f"{self._kind}-{number}", self._run, within=STALLED)

    def stop(self) -> None:
        """End soon."""
        self._stop.set()
        self._new.set()

    def want(self, keys: frozenset[K]) -> None:
        """What is wanted from now on; what is not any more is forgotten, and read again when it comes back."""
        before, self._wanted = self._wanted, keys
        if keys is not before and keys - before:
            self._new.set()

    def hurry(self, keys: Iterable[K], at: float) -> None:
        """Read these again at `at` (monotonic), if not before."""
        with self._lock:
            for key in keys:
                if key in self._due:
                    self._due[key] = min(self._due[key], at)
                if key in self._taken:
                    self._hurried.add(key)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._new.wait(LOOK)
            self._new.clear()
            beat()
            self.look()

    def look(self, now: float | None = None) -> None:
        """Read what is due at `now` (monotonic; None: now)."""
        self._line_up(time.monotonic() if now is None else now)
        while not self._stop.is_set() and (key := self._next()) is not None:
            beat()
            pause = LATER
            try:
                event, pause = self._read(key)
                if event is not None:
                    self._sink([event])
            except ClusterError as error:
                pause = SOON
                log.warning("reading %s %s: %s", self._kind, _words(key), error)
            except Exception as error:  # of this one; the others are read
                what = f"{self._kind} {_words(key)}"
                self._sink([Unreadable(what, str(key[0]), error, self._gone(key))])
            finally:
                with self._lock:
                    self._taken.discard(key)
                    pause = 0.0 if key in self._hurried else pause
                    self._hurried.discard(key)
                    self._due[key] = (time.monotonic() if now is None else now) + pause

    def _line_up(self, now: float) -> None:
        wanted = self._wanted
        with self._lock:
            self._due = {key: at for key, at in self._due.items() if key in wanted}
            due = [key for key in wanted if key not in self._taken and self._due.get(key, 0.0) <= now]
            for key in sorted(due):
                self._turns.setdefault(str(key[0]), deque()).append(key)
            self._taken.update(due)

    def _next(self) -> K | None:
        """The next of the namespace whose turn it is; it is the last of the namespaces then."""
        with self._lock:
            while self._turns:
                namespace = next(iter(self._turns))
                keys = self._turns.pop(namespace)
                key = keys.popleft()
                if keys:
                    self._turns[namespace] = keys
                if key in self._wanted:
                    return key
                self._taken.discard(key)
            return None


def _words(key: tuple[Any, ...]) -> str:
    return "/".join(map(str, key))[:200]
