"""The process that answers the verbs (server/verbs.py), as the planner's process sees it: started, told of each new
View, started again with the whole View where it has ended, and ended with us.

One thread, "verbs", does all of it. `show` gives it a View and waits until every answer from then on is by that View
or a later one: a gate that came off before would have its pod refused, and a refusal counts against the pod's pin.
There is nothing to wait for while there is no such process, since a new one opens its port with the newest View, nor
for long where it hangs: one that takes no View in TAKES seconds is killed.
"""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import io
import logging
import pickle
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from operator import attrgetter
from time import monotonic
from types import MappingProxyType
from typing import Any

import msgspec

from muster import threads, types
from muster.core.views.view import View
from muster.core.views.view_changes import NOTHING, Part, changes
from muster.errors import ConfigurationError
from muster.points import Profile
from muster.server.extender_metrics import ExtenderMetrics
from muster.server.verbs import GRACE, LENGTH, WHOLE, Told

log = logging.getLogger(__name__)

TAKES = 10.0
"""Seconds in which it must have taken a View. 10,000 jobs at once take it one."""
STARTS = 20.0
"""Seconds in which it must be there, and its port open; /healthz fails where it has not been for so long."""
BEAT = 1.0
"""Seconds after which it is told again what it knows, to see whether it goes on."""


class EndedError(Exception):
    """The process is not there any more, or is no good."""


class Answering:
    """The process that answers the verbs on a port of 127.0.0.1."""

    def __init__(self, port: int, scheduler: str, metrics: ExtenderMetrics) -> None:
        self._arguments = (str(port), scheduler)
        self._metrics = metrics
        self._wakes, self._wake = socket.socketpair()
        self._wakes.setblocking(False)
        self._wake.setblocking(False)
        self._stopped = False
        self._changed = threading.Condition()  # guards the four below
        self._newest: View = NOTHING
        self._number = 0  # of the newest
        self._took = 0  # number of the View that answers are by
        self._told = False  # a process is there that was sent a View, and may answer
        self.open = False
        """Whether its port is open now."""
        self.opened = False
        """Whether that has been: kube-scheduler can call the verbs, but for moments."""
        self._away: float | None = None
        """Since when (monotonic) it should be open and is not."""

    # ---- for other threads ----

    def start(self) -> threads.Supervised:
        """Start the process. Its port opens with the first View of a planner that is synced."""
        return threads.supervised("verbs", self._run, within=threads.STALLED)

    def show(self, view: View) -> None:
        """A new View is in force; returns when no answer is by an older one any more."""
        with self._changed:
            self._newest, self._number = view, self._number + 1
            number = self._number
            if view.synced and not self.open and self._away is None:
                self._away = monotonic()
            self._rouse()
            self._changed.wait_for(lambda: self._took >= number or not self._told)

    def stop(self) -> None:
        """The process is ended soon. A signal's handler may call it."""
        self._stopped = True
        self._rouse()

    def ailing(self, now: float) -> list[str]:
        """What /healthz names, at `now` (monotonic)."""
        away = self._away
        if away is None or now - away <= STARTS:
            return []
        return [f"nobody has answered the verbs for {now - away:.0f} s"]

    def _rouse(self) -> None:
        with contextlib.suppress(OSError):  # it has not looked since the last hundreds, or is over
            self._wake.send(b"!")

    # ---- its thread ----

    def _run(self) -> None:
        pauses = threads.Pauses()
        while not self._stopped:
            began, child = monotonic(), Child(self._arguments)
            self._metrics.starts.inc()
            try:
                self._keep(child)
            except EndedError as error:
                if not self._stopped:
                    log.error(
                        "the process that answers the verbs (%d) %s; it is started again", child.pid, error
                    )
            finally:
                child.end(GRACE if self._stopped else 0.0)
                self._gone()
            if not self._stopped:
                pauses.sleep(began)
        self._wake.close()
        self._wakes.close()

    def _gone(self) -> None:
        """There is none, and nobody waits for what it takes."""
        with self._changed:
            self._told = self.open = False
            if self._newest.synced and self._away is None:
                self._away = monotonic()
            self._changed.notify_all()

    def _keep(self, child: Child) -> None:
        """Tell it of each View, and hear what it says, until `stop`. Raises EndedError where it can't go on."""
        sent, number = NOTHING, 0  # the View that it was sent last
        started = at = monotonic()  # at: when that was
        awaits, silent = (
            True,
            0.0,
        )  # whether it has yet to say that it took it; seconds for which it has said nothing
        while not self._stopped:
            threads.beat()
            heard = child.hear(self._wakes)
            if heard is None:
                silent += BEAT * awaits
            for told in heard or ():
                self._hear(told)
                if told.ready or told.took:
                    awaits, silent = False, 0.0
                    with self._changed:
                        self._took = number
                        self._changed.notify_all()
            if silent > (TAKES if self._told else STARTS):
                raise EndedError(f"took no plan in {silent:.0f} s")
            now = monotonic()
            if self._away is not None and now - max(self._away, started) > STARTS:
                raise EndedError(f"did not open its port in {STARTS:.0f} s")
            if not awaits and (self._number != number or now - at >= BEAT):
                with self._changed:
                    view, number, self._told = self._newest, self._number, True
                child.send(changes(sent, view) if view is not sent else ())
                sent, at, awaits = view, now, True

    def _hear(self, told: Told) -> None:
        if told.open:
            log.info("the verbs are answered")
            self.open = self.opened = True
            self._away = None
        for call in told.calls:
            self._metrics.note(*call)
        if told.dropped:
            log.warning("%d calls of the verbs are not counted", told.dropped)


class Child:
    """The process, and the socket to it."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            # -P: no module of the folder that we happen to run in
            command = [sys.executable, "-P", "-m", "muster.server.verbs", str(theirs.fileno()), *arguments]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._line.settimeout(TAKES)
        self._heard = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def hear(self, wakes: socket.socket) -> list[Told] | None:
        """What it says, waiting for a BEAT at most, or until somebody wakes us; None where nothing happened. Raises
        EndedError when it has ended."""
        ready, _, _ = select.select([self._line, wakes], [], [], BEAT)
        if wakes in ready:
            with contextlib.suppress(BlockingIOError):
                wakes.recv(1 << 16)
        if self._line not in ready:
            return [] if ready else None
        try:
            said = self._line.recv(1 << 16)
        except ConnectionError:  # it had not read all that was sent
            said = b""
        if not said:
            raise EndedError("has ended")
        *lines, self._heard = (self._heard + said).split(b"\n")
        return [_told.decode(one) for one in lines]

    def send(self, parts: Iterable[Part]) -> None:
        """All of what changed, and that it is all. Raises EndedError where it does not take it."""
        try:
            for message in (*parts, WHOLE):
                packed = pack(message)
                self._line.sendall(len(packed).to_bytes(LENGTH, "big") + packed)
        except OSError as error:
            raise EndedError(f"takes no plan ({error})") from error

    def end(self, within: float) -> None:
        """It ends when the socket does, or is killed after `within` seconds. Returns when it is gone."""
        self._line.close()
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def sendable(profile: Profile) -> Profile:
    """The profile, if the process of the verbs can have its Filter and Score plugins. Raises ConfigurationError."""
    for plugin in (*profile.filters, *(plugin for plugin, _ in profile.scores)):
        try:
            pickle.loads(pack(plugin))
        except Exception as error:
            raise ConfigurationError(
                f"profile {profile.name}: plugin {type(plugin).__name__}: expected a plugin of plain values, "
                f"which can be sent to the process that answers the verbs, found {type(error).__name__}: {error}"
            ) from error
    return profile


def pack(message: object) -> bytes:
    """A message in pickle; records are made again from their fields, so that what is worked out from these (a Shape's
    hash) is by the reader's process, and in a quarter of the time."""
    packed = io.BytesIO()
    pickler = pickle.Pickler(packed, protocol=5)
    pickler.dispatch_table = _records
    pickler.dump(message)
    return packed.getvalue()


def _fields(record: type) -> Callable[[Any], tuple[Any, ...]]:
    """The pickler's reduction of a record: how it is made."""
    names = [field.name for field in dataclasses.fields(record) if field.init]
    several = attrgetter(*names, names[0])  # one more, so that it is a tuple of a single one, too
    return lambda one: (record, several(one)[:-1])


_records = copyreg.dispatch_table | {
    record: _fields(record)
    for record in vars(types).values()
    if isinstance(record, type) and dataclasses.is_dataclass(record)
}
_records[MappingProxyType] = lambda mapping: (dict, (dict(mapping),))
_told = msgspec.json.Decoder(Told)
