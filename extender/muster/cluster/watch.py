"""List and watch one resource for ever, as bytes, into the driver's queue of events.

A list that has expired (410), a watch that breaks or a server that is away are the normal course: the
reflector lists again with growing pauses (tenacity) and says as Gone what has vanished meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec
import tenacity

from muster.cluster import decode, wire
from muster.cluster.api import Api
from muster.errors import ClusterError
from muster.types import Event

log = logging.getLogger(__name__)

PAGE = 2000
"""Objects a page of the first list: bounds the memory of one answer."""
WATCH_SECONDS = 290
SERVED_AGAIN = 5.0
"""Seconds between looks at whether an optional resource is served: its definition may come and go."""

_event = msgspec.json.Decoder(wire.WatchEvent)
_bookmark = msgspec.json.Decoder(wire.Bookmark)
_error = msgspec.json.Decoder(wire.ErrorStatus)


class Sink(Protocol):
    """Where events go; called from the reflector's thread."""

    def __call__(self, events: list[Event]) -> None: ...


@dataclass(frozen=True)
class Resource:
    """What to watch. `decode` makes an event of an object and its identity; `gone` one of an identity.

    An object that can't be decoded is logged and left out; `optional` resources may not be served at all.
    """

    name: str
    path: str
    decode: Callable[[msgspec.Raw], tuple[str, Event]]
    gone: Callable[[str], Event]
    optional: bool = False


class ExpiredError(ClusterError):
    """The watch can't go on from where it was: list again."""


class Reflector:
    """One resource's thread."""

    def __init__(self, api: Api, resource: Resource, sink: Sink) -> None:
        self.resource = resource
        self.synced = threading.Event()
        self.lists = 0
        self._api, self._sink = api, sink
        self._known: set[str] = set()
        self._version = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource.name}", daemon=True)

    def start(self) -> None:
        """Begin; `synced` is set after the first list (or when the resource is not served)."""
        self._thread.start()

    def stop(self) -> None:
        """End with the next event; the thread is a daemon."""
        self._stop.set()

    def successor(self) -> Reflector:
        """A new reflector that lists afresh and knows what this one knew; this one says nothing more."""
        self._stop.set()
        heir = Reflector(self._api, self.resource, self._sink)
        heir._known = set(self._known)
        return heir

    def _run(self) -> None:
        attempts = tenacity.Retrying(
            wait=tenacity.wait_exponential_jitter(initial=0.1, max=5, jitter=0.5),
            retry=tenacity.retry_if_exception_type((ClusterError, msgspec.DecodeError)),
            before_sleep=self._complain,
        )
        while not self._stop.is_set():
            try:
                attempts(self._round)
            except _NotServedError:
                self._stop.wait(SERVED_AGAIN)

    def _complain(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        log.warning("watching %s: %s (attempt %d)", self.resource.name, error, state.attempt_number)

    def _round(self) -> None:
        """One list if it is needed, then one watch."""
        if not self._version:
            self._list()
        try:
            self._watch()
        except ExpiredError:
            self._version = ""

    def _list(self) -> None:
        separator = "&" if "?" in self.resource.path else "?"
        token, seen = "", set[str]()
        while True:
            path = f"{self.resource.path}{separator}limit={PAGE}" + (f"&continue={token}" if token else "")
            try:
                page = decode.listed(self._api.get(path))
            except ClusterError as error:
                if self.resource.optional and error.status in (403, 404):
                    self._sink([self.resource.gone(identity) for identity in self._known])
                    self._known, self.lists = set(), 0
                    self.synced.set()
                    raise _NotServedError from error
                if error.status == 410:
                    token, seen = "", set()
                    continue
                raise
            events: list[Event] = []
            for raw in page.items:
                self._decode(raw, events, seen)
            self._sink(events)
            token = page.metadata.continue_
            if not token:
                break
        self._sink([self.resource.gone(identity) for identity in self._known - seen])
        self._known = seen
        self._version = page.metadata.resource_version
        if self.resource.optional and not self.lists:
            log.info("%s are served", self.resource.name)
        self.lists += 1
        self.synced.set()

    def _decode(self, raw: msgspec.Raw, events: list[Event], seen: set[str]) -> None:
        try:
            identity, event = self.resource.decode(raw)
        except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
            log.error("%s: an object could not be read and is left out: %s", self.resource.name, error)
            return
        seen.add(identity)
        events.append(event)

    def _watch(self) -> None:
        separator = "&" if "?" in self.resource.path else "?"
        path = (
            f"{self.resource.path}{separator}watch=true&allowWatchBookmarks=true"
            f"&timeoutSeconds={WATCH_SECONDS}&resourceVersion={self._version}"
        )
        try:
            for line in self._api.lines(path):
                if self._stop.is_set():
                    return
                self._one(line)
        except ClusterError as error:
            if error.status == 410 or (error.status == 404 and self.resource.optional):
                raise ExpiredError(str(error), error.status) from error
            raise

    def _one(self, line: bytes) -> None:
        event = _event.decode(line)
        if event.type == "BOOKMARK":
            self._version = _bookmark.decode(event.object).metadata.resource_version
            return
        if event.type == "ERROR":
            status = _error.decode(event.object)
            raise (
                ExpiredError(status.message, 410)
                if status.code == 410
                else ClusterError(status.message, status.code)
            )
        self._version = _bookmark.decode(event.object).metadata.resource_version
        events: list[Event] = []
        if event.type == "DELETED":
            identity, _ = self.resource.decode(event.object)
            self._known.discard(identity)
            events.append(self.resource.gone(identity))
        else:
            self._decode(event.object, events, self._known)
        if events:
            self._sink(events)


class _NotServedError(Exception):
    """The API server does not serve an optional resource."""
