"""Threads that send: what is urgent goes first, and what is equally urgent in its order."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Crew(Generic[T]):
    """`size` threads that call `work` with what they are given, smallest rank first, then as it came."""

    def __init__(self, name: str, size: int, work: Callable[[T], object]) -> None:
        self._work = work
        self._queue: queue.PriorityQueue[tuple[int, int, T | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def give(self, what: T, rank: int = 0) -> None:
        """Queue one piece of work; returns at once."""
        self._queue.put((rank, next(self._numbers), what))

    @property
    def waiting(self) -> int:
        """Pieces that no thread has taken yet."""
        return self._queue.qsize()

    def close(self, *, all_of_it: bool = False) -> None:
        """End: what is under way ends; what waits is dropped, or done first where `all_of_it` is wanted."""
        self._closed = not all_of_it
        for _ in self._threads:
            self._queue.put((1 << 30, next(self._numbers), None))
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while True:
            _, _, what = self._queue.get()
            if what is None:
                return
            if not self._closed:
                self._work(what)
