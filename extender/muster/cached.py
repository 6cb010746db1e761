"""Caches that are bounded in bytes: tenants write what fills them, so a count of entries would bound nothing.

Every cache of what pods, owners or reports say is one of these, and stands with its bound in extender/README.md;
tests/test_cached.py fills each and counts, and finds any other. Two generations: what is asked for stays, what is not
goes when the younger half is full; so a hit is one look into a dict, without a lock, which a library's LRU with sizes
is not (a pod that is decoded asks a dozen times).
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = ParamSpec("P")
R = TypeVar("R")

MIB = 1 << 20
ENTRY = 200
"""Bytes that a dict takes for an entry, more or less, and the objects that hold it."""
SHARE = 8
"""What takes more than this part of a cache is not kept: it would push out all else."""
_MISSING: Any = object()


class Cache(Generic[K, V]):
    """Values by key, `most` bytes of both together. Used by several threads at once."""

    __slots__ = ("_filled", "_lock", "_old", "_young", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        self.clear()

    def __reduce__(self) -> tuple[type[Cache[K, V]], tuple[int]]:
        """A copy in another process begins empty."""
        return Cache, (self.most,)

    def clear(self) -> None:
        """Nothing is kept."""
        with self._lock:
            self._young: dict[K, V] = {}
            self._old: dict[K, V] = {}
            self._filled = 0

    def get(self, key: K, default: Any = None) -> V:
        """What is kept, else the default."""
        found = self._young.get(key, _MISSING)
        if found is _MISSING:
            found = self._old.get(key, _MISSING)
            if found is _MISSING:
                return cast(V, default)
            self.put(key, found)
        return cast(V, found)

    def put(self, key: K, value: V) -> None:
        """Keep it, if it is not too large."""
        size = ENTRY + weight(key) + weight(value)
        if size > self.most // SHARE:
            return
        with self._lock:
            if key in self._young:
                return
            if self._filled + size > self.most // 2:
                self._old, self._young, self._filled = self._young, {}, 0
            self._young[key] = value
            self._filled += size

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def weight(self) -> int:
        """Bytes of all that is kept, counted now."""
        both = {**self._old, **self._young}
        return sum(ENTRY + weight(key) + weight(value) for key, value in both.items())


CACHES: dict[str, Cache[Any, Any]] = {}
"""Those of functions, by name."""


def cached(name: str, most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """As functools.lru_cache, of `most` bytes: results of a pure function of positional, hashable arguments."""

    def of(function: Callable[P, R]) -> Callable[P, R]:
        cache: Cache[Any, R] = Cache(most)
        CACHES[name] = cache

        @functools.wraps(function)
        def ask(*args: P.args, **kwargs: P.kwargs) -> R:
            key: Any = (args, *sorted(kwargs.items())) if kwargs else args
            found = cache.get(key, _MISSING)
            if found is _MISSING:
                found = function(*args, **kwargs)
                cache.put(key, found)
            return found

        return ask

    return of


def weight(value: object) -> int:
    """Bytes of a value with all that it holds: text, numbers, containers, dataclasses, arrays. What two share counts
    twice."""
    total, rest = 0, [value]
    while rest:
        one = rest.pop()
        total += sys.getsizeof(one)
        if isinstance(one, tuple | list | set | frozenset):
            if len(one) > 64 and isinstance(one, tuple) and type(one[0]) is type(one[-1]) in (float, int):
                total += 32 * len(one)  # a curve, or counts
            else:
                rest.extend(one)
        elif isinstance(one, np.ndarray):
            total += one.nbytes if one.base is not None else 0  # else it was counted
        elif isinstance(one, dict):
            rest.extend(one.keys())
            rest.extend(one.values())
        elif dataclasses.is_dataclass(one) and not isinstance(one, type):
            rest.extend(getattr(one, field.name) for field in dataclasses.fields(one))
    return total
