"""Jobs over which a page or a figure raised (core.views.safe_rendering): counted each time, each new error once in
the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from muster.types import JobKey

log = logging.getLogger(__name__)

KEPT = 1000
"""Jobs of which the last error is kept, to tell a new one."""


class Stumbles:
    """Called from the threads that render. count: called each time."""

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._said: dict[JobKey, str] = {}  # under the lock; the last ones

    def aside(self, key: JobKey, error: Exception) -> None:
        """A job that a page did without, and over what."""
        self._count()
        said = repr(error)[:400]
        with self._lock:
            again = self._said.pop(key, None) == said
            self._said[key] = said
            if len(self._said) > KEPT:
                del self._said[next(iter(self._said))]
        if not again:
            log.error("put aside in page: %s", key, exc_info=error)
