"""Threads that send: what is urgent goes first, and what is equally urgent in its order."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable
from typing import Generic, TypeVar

from muster.threads import beat, supervised

T = TypeVar("T")


class WorkerPool(Generic[T]):
    """`size` threads that call `work` with what they are given, smallest rank first, then as it came."""

    def __init__(self, name: str, size: int, work: Callable[[T], object]) -> None:
        self._work = work
        self._queue: queue.PriorityQueue[tuple[int, int, T | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._closed = False
        self._threads = [supervised(f"{name}-{i}", self._run) for i in range(size)]

    def give(self, what: T, rank: int = 0) -> None:
        """Queue one piece of work; returns at once."""
        self._queue.put((rank, next(self._numbers), what))

    @property
    def waiting(self) -> int:
        """Pieces that no thread has taken yet."""
        return self._queue.qsize()

    @property
    def idle(self) -> bool:
        """Whether all that it was given is done, or was taken back."""
        return self._queue.unfinished_tasks == 0

    def drop(self) -> list[T]:
        """Take back all that no thread has taken yet: it is not done."""
        dropped: list[T] = []
        while True:
            try:
                _, _, what = self._queue.get_nowait()
            except queue.Empty:
                return dropped
            self._queue.task_done()
            if what is not None:
                dropped.append(what)

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
            beat()
            if what is None:
                return
            if not self._closed:
                self._work(what)
            self._queue.task_done()
