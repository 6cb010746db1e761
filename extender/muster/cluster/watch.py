# Over 300 lines: a reflector is one state machine: list, watch, expiry and being set back share its version.
"""List and watch one resource for ever, as bytes, into the driver's queue of events.

A list that has expired (410), a watch that breaks or a server that is away are the normal course: the
reflector lists again with growing pauses (tenacity) and says as Gone what has vanished meanwhile. Pauses begin again
only after a round that lasted (STEADY), so that a server that expires each watch is not listed again and again.

An etcd that was restored from an older backup knows nothing of the version where a watch was: such a watch stands,
and is silent until the server has come as far again. So before each watch that does not begin at a list, a list of
one object says how far the server is; versions of one resource are numbers that grow (KEP-5504). Restored as
Kubernetes recommends (`etcdutl snapshot restore --bump-revision --mark-compacted`) it is further on, the watch has
expired, and the list has older versions of what changed after the backup. What was learned after the backup never
happened then, and `past` is told: new versions would be taken for late news.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec
import tenacity

from muster.cluster import api_types, decode
from muster.cluster.api import WATCH_SILENCE, Api
from muster.errors import ClusterError
from muster.threads import beat, supervised
from muster.types import Event, Gone, PodRecord, Unreadable

log = logging.getLogger(__name__)

PAGE = 2000
"""Objects a page of the first list: bounds the memory of one answer."""
WATCH_SECONDS = 290
SERVED_AGAIN = 5.0
"""Seconds between looks at whether an optional resource is served: its definition may come and go."""
STEADY, AT_ONCE = 10.0, 1.0
"""Seconds: a round that lasted so long went well, whatever ended it; one that the server ends sooner did not."""
FIRST_PAUSE, AWAY, STORM = 0.1, 5.0, 30.0
"""Seconds before the next round: at first, doubling; the most, and the most before another whole list."""

_event = msgspec.json.Decoder(api_types.WatchEvent)
_bookmark = msgspec.json.Decoder(api_types.Bookmark)
_error = msgspec.json.Decoder(api_types.ErrorStatus)


class Sink(Protocol):
    """Where events go; called from the reflector's thread."""

    def __call__(self, events: list[Event]) -> None: ...


@dataclass(frozen=True)
class Resource:
    """What to watch. `decode` makes an event of an object and its identity; `gone` one of an identity.

    `identity` is the same of an object's name: what can't be decoded is told as Unreadable, and is there all the
    same; `sketch` says whose such a pod is. `optional` resources may not be served at all. `new` marks the event of
    an object that was created while we watched.
    """

    name: str
    path: str
    decode: Callable[[msgspec.Raw], tuple[str, Event]]
    gone: Callable[[str], Gone]
    identity: Callable[[api_types.Named], str] = lambda named: named.uid
    sketch: Callable[[msgspec.Raw], PodRecord | None] = lambda raw: None  # noqa: ARG005
    optional: bool = False
    new: Callable[[Event], Event] = lambda event: event


class ExpiredError(ClusterError):
    """The watch can't go on from where it was: list again."""


class PastError(ExpiredError):
    """The server has not come as far as we have: it was set back."""


def _nothing() -> None:
    """Nobody wants to know."""


class Reflector:
    """One resource's thread. past: called where the server was set back, before everything is listed again."""

    def __init__(self, api: Api, resource: Resource, sink: Sink, past: Callable[[], None] = _nothing) -> None:
        self.resource = resource
        self.synced = threading.Event()
        self.lists = 0
        self._api, self._out, self._past = api, sink, past
        self._known: dict[str, int] = {}
        """The version of each object that is there, 0 where it says nothing."""
        self._version = ""
        self._stop = threading.Event()
        lists = tenacity.wait_exponential_jitter(multiplier=FIRST_PAUSE, max=STORM, jitter=0.5)
        looks = tenacity.wait_exponential_jitter(multiplier=FIRST_PAUSE, max=AWAY, jitter=0.5)
        self.attempts = tenacity.Retrying(
            wait=lambda state: (lists if _expired(state) else looks)(state),
            retry=tenacity.retry_if_exception_type(ClusterError),
            stop=tenacity.stop_when_event_set(self._stop),
            sleep=tenacity.sleep_using_event(self._stop),
            before_sleep=self._complain,
        )

    def start(self) -> None:
        """Begin; `synced` is set after the first list (or when the resource is not served)."""
        supervised(f"watch-{self.resource.name}", self._run, within=WATCH_SILENCE + 2 * STORM)

    def stop(self) -> None:
        """Say nothing more, and end with the next event."""
        self._stop.set()

    def successor(self, *, afresh: bool = False) -> Reflector:
        """A new reflector that lists and knows what this one knew (afresh: nothing); this one says nothing more."""
        self._stop.set()
        heir = Reflector(self._api, self.resource, self._out, self._past)
        if not afresh:
            heir._known = dict(self._known)
        return heir

    def _run(self) -> None:
        self._version = ""
        while not self._stop.is_set():
            beat()
            try:
                self.attempts(self.round)
            except NotServedError:
                self._stop.wait(SERVED_AGAIN)
            except tenacity.RetryError:
                return  # stopped

    def _complain(self, state: tenacity.RetryCallState) -> None:
        beat()
        error = state.outcome.exception() if state.outcome is not None else None
        log.warning("watching %s: %s (attempt %d)", self.resource.name, error, state.attempt_number)

    def round(self) -> None:
        """One list if it is needed, then one watch until it ends. Raises ClusterError where it ended too soon."""
        began = time.monotonic()
        try:
            if self._version:
                self._look_back()
            else:
                self._list()
            self._watch()
        except PastError:
            self._version = ""
            self._known = dict.fromkeys(self._known, 0)
            self._past()
            raise
        except (ClusterError, msgspec.DecodeError) as error:
            unserved = isinstance(error, ClusterError) and error.status == 404 and self.resource.optional
            again = unserved or isinstance(error, ExpiredError | msgspec.DecodeError)
            if again:  # of what can't be read nobody knows what it was
                self._version = ""
            if time.monotonic() - began < STEADY:
                if isinstance(error, ClusterError):
                    raise
                raise ExpiredError(f"what can't be read: {error}") from error
            log.warning("watching %s: %s%s", self.resource.name, error, "; listing again" if again else "")
            return
        if time.monotonic() - began < AT_ONCE and not self._stop.is_set():
            raise ClusterError("the server ended the watch at once")

    def _look_back(self) -> None:
        """Whether the server has come as far as we have."""
        separator = "&" if "?" in self.resource.path else "?"
        page = decode.listed(self._api.get(f"{self.resource.path}{separator}limit=1"))
        found = page.metadata.resource_version
        if _before(found, self._version):
            raise PastError(
                f"the server is at version {found}, and was at {self._version}: it was set back", 410
            )

    def _sink(self, events: list[Event]) -> None:
        if not self._stop.is_set():
            self._out(events)

    def _list(self) -> None:
        separator = "&" if "?" in self.resource.path else "?"
        token, seen = "", dict[str, int]()
        while True:
            path = f"{self.resource.path}{separator}limit={PAGE}" + (f"&continue={token}" if token else "")
            try:
                page = decode.listed(self._api.get(path))
            except ClusterError as error:
                if self.resource.optional and error.status in (403, 404):
                    self._sink([self.resource.gone(identity) for identity in self._known])
                    self._known, self.lists = {}, 0
                    self.synced.set()
                    raise NotServedError from error
                if error.status == 410:
                    raise ExpiredError(str(error), 410) from error
                raise
            beat()
            events: list[Event] = []
            for raw in page.items:
                self._decode(raw, events, seen)
            self._sink(events)
            self._known |= seen  # told: where a later page fails, the next list tells which of these are gone
            token = page.metadata.continue_
            if not token:
                break
        self._sink([self.resource.gone(identity) for identity in self._known.keys() - seen.keys()])
        self._known = seen
        self._version = page.metadata.resource_version
        if self.resource.optional and not self.lists:
            log.info("%s are served", self.resource.name)
        self.lists += 1
        self.synced.set()

    def _decode(self, raw: msgspec.Raw, events: list[Event], seen: dict[str, int]) -> None:
        try:
            identity, event = self.resource.decode(raw)
        except Exception as error:  # whatever it is: one object must not keep the others from being read
            identity, event = self._unreadable(raw, error)
        if identity:
            version, known = _version(raw), self._known.get(identity, 0)
            if version < known:
                raise PastError(
                    f"{identity} is of version {version}, and was of {known}: the server was set back", 410
                )
            seen[identity] = version
        events.append(event)

    def _unreadable(self, raw: msgspec.Raw, error: Exception) -> tuple[str, Event]:
        """What can be told of an object that can't be decoded; the identity is "" where not even its name can."""
        resource = self.resource
        try:
            named = decode.named(raw)
        except msgspec.DecodeError:
            return "", Unreadable(resource.name, "", error)
        identity = resource.identity(named)
        what = f"{resource.name} {named.namespace}/{named.name}"
        gone = resource.gone(identity)
        return identity, Unreadable(what, named.namespace, error, gone, resource.sketch(raw))

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
                beat()
                self._one(line)
        except ClusterError as error:
            if error.status == 410:
                raise ExpiredError(str(error), error.status) from error
            raise

    def _one(self, line: bytes) -> None:
        event = _event.decode(line)
        if event.type == "ERROR":
            status = _error.decode(event.object)
            raise ClusterError(status.message, status.code)
        version = _bookmark.decode(event.object).metadata.resource_version
        if _before(version, self._version):
            raise ClusterError(f"an event of version {version} after {self._version}")
        if event.type == "BOOKMARK":
            self._version = version
            return
        events: list[Event] = []
        if event.type == "DELETED":
            identity = self.resource.identity(decode.named(event.object))
            self._known.pop(identity, None)
            events.append(self.resource.gone(identity))
        else:
            self._decode(event.object, events, self._known)
            if event.type == "ADDED":
                events = [self.resource.new(one) for one in events]
        self._version = version
        if events:
            self._sink(events)


def _before(version: str, other: str) -> bool:
    """Whether the one is older; neither where they are no numbers."""
    return 0 < _number(version) < _number(other)


def _version(raw: msgspec.Raw) -> int:
    return _number(_bookmark.decode(raw).metadata.resource_version)


def _number(version: str) -> int:
    """0 for what is none."""
    return int(version) if version.isdigit() else 0


def _expired(state: tenacity.RetryCallState) -> bool:
    return state.outcome is not None and isinstance(state.outcome.exception(), ExpiredError)


class NotServedError(Exception):
    """The API server does not serve an optional resource."""
