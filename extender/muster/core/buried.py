"""What is gone, remembered as long as a late word about it may be on its way."""

from __future__ import annotations

BURIED = 20_000
"""Uids that are not forgotten: more objects than can end within a request's timeout."""


class Buried:
    """Uids of objects that are gone; of more than `most` the oldest are forgotten."""

    def __init__(self, most: int = BURIED) -> None:
        self._most = most
        self._uids: dict[str, None] = {}  # oldest first

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def add(self, uid: str) -> None:
        """It is gone."""
        self._uids[uid] = None
        if len(self._uids) > self._most:
            del self._uids[next(iter(self._uids))]
