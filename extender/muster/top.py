"""`muster top`: Gang objects and nodes, read again and again with the caller's own rights, on a live terminal.

One thread reads, so that keys never wait for the API server. Nothing is written and no port is forwarded; what the
caller may not read is said. A poll from the API server's own cache (resourceVersion=0), every --interval seconds or
more slowly where one takes long, is all the load that it makes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

import click
from rich.console import Console
from rich.live import Live

from muster.cluster import decode
from muster.cluster.api import Api
from muster.cluster.credentials import configuration
from muster.errors import ClusterError
from muster.gangs import Gang
from muster.kubeconfig import context_namespace
from muster.screen import SORTS, Capacity, Look, Seen, clipped, listing, picture
from muster.types import Shape

NODES_EVERY = 30.0
"""Seconds between readings of the nodes: they are large and change seldom."""
GENTLE = 10.0
"""A reading that took t seconds is followed by a pause of GENTLE times t at least."""
GLANCE = 0.1
"""Seconds in which a key, a new reading or another size of the terminal is seen."""
GANGS = "/apis/muster.dev/v1alpha1/gangs"


class Reader:
    """Reads the cluster, once or again and again."""

    def __init__(self, api: Api, namespace: str, everywhere: bool, interval: float) -> None:
        """everywhere: all namespaces must be readable; else one's own are enough, where others are not."""
        self._api, self._namespace, self._everywhere, self._interval = api, namespace, everywhere, interval
        self._nodes_due = 0.0
        self._stop = threading.Event()
        self.seen = Seen()

    def read(self) -> Seen:
        """One reading. Raises ClusterError where jobs can't be read."""
        found, all_of_them = self._gangs()
        capacity = self.seen.capacity
        if time.monotonic() >= self._nodes_due:
            capacity = self._capacity()
            self._nodes_due = time.monotonic() + NODES_EVERY
        self.seen = Seen(found, capacity, time.time(), all_of_them)
        return self.seen

    def start(self) -> None:
        """Read in a thread until `stop`; a reading that fails is told in `seen.trouble`."""
        threading.Thread(target=self._run, name="reader", daemon=True).start()

    def stop(self) -> None:
        """End soon."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self.read()
            except ClusterError as error:
                self.seen = replace(self.seen, trouble=str(error).removeprefix("GET ").partition(": ")[2])
            took = time.monotonic() - began
            self._stop.wait(max(self._interval, GENTLE * took))

    def _gangs(self) -> tuple[list[Gang], bool]:
        try:
            return _items(self._api.get(f"{GANGS}?resourceVersion=0")), True
        except ClusterError as error:
            if error.status not in (401, 403) or self._everywhere:
                raise
        path = GANGS.replace("/gangs", f"/namespaces/{self._namespace}/gangs")
        return _items(self._api.get(f"{path}?resourceVersion=0")), False

    def _capacity(self) -> Capacity | None:
        """What the nodes offer; None where the caller may not list them, as most tenants."""
        try:
            page = decode.listed(self._api.get("/api/v1/nodes?resourceVersion=0"))
        except ClusterError:
            return None
        nodes = [decode.node(raw) for raw in page.items]
        gpus = 0
        for node in nodes:
            gpus += Shape(tuple(node.allocatable.items())).gpus
        return Capacity(gpus, len(nodes), sum(node.unschedulable for node in nodes))


def _items(body: bytes) -> list[Gang]:
    found: list[Gang] = json.loads(body)["items"]
    return found


def top(
    namespace: str | None,
    everywhere: bool,
    sort_by: str,
    once: bool,
    interval: float,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """The command, with its options as they were given; see `muster top --help`."""
    own = namespace or context_namespace(kubeconfig, context)
    look = Look("" if everywhere else own, sort_by, interval=interval)
    reader = Reader(Api(configuration(kubeconfig, context), connections=2), own, everywhere, interval)
    console = Console(highlight=False)
    if once or not console.is_terminal:
        seen = reader.read()
        flat = Console(width=10_000, color_system=None, highlight=False, markup=False, emoji=False)
        with flat.capture() as text:
            flat.print(listing(seen, look, time.time()))
        click.echo("\n".join(line.rstrip() for line in text.get().splitlines()))
        return
    logging.disable(logging.CRITICAL)  # a connection pool's warnings would tear the picture
    reader.read()  # what is wrong with the credentials is said before the screen is taken
    reader.start()
    try:
        with _keys() as keys:
            _show(console, reader, replace(look, keys=keys), own)
    except KeyboardInterrupt:
        pass
    finally:
        reader.stop()


def _show(console: Console, reader: Reader, look: Look, own: str) -> None:
    """Draw what was read, as often as there is something new: a reading, a key, another size, or a second."""
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        drawn: tuple[object, ...] = ()
        while True:
            now, (width, height) = time.time(), console.size
            state = (reader.seen, look, width, height, int(now))
            if state != drawn:
                with _at_once(console):
                    live.update(picture(reader.seen, look, now, width, height), refresh=True)
                drawn = state
            for key in _pressed(look.keys):
                if key == "q":
                    return
                look = _after(key, look, own, len(reader.seen.gangs), height)


@contextlib.contextmanager
def _at_once(console: Console) -> Iterator[None]:
    """What is drawn in here is shown whole, never half of it, by terminals with synchronized output (mode 2026)."""
    console.file.write("\x1b[?2026h")
    try:
        yield
    finally:
        console.file.write("\x1b[?2026l")
        console.file.flush()


def _after(key: str, look: Look, own: str, jobs: int, height: int) -> Look:
    """How it is looked at after a key."""
    if key == "s":
        names = list(SORTS)
        return replace(look, sort=names[(names.index(look.sort) + 1) % len(names)], first=0)
    if key == "a":
        return replace(look, namespace="" if look.namespace else own, first=0)
    steps = {"down": 1, "up": -1, "next": height // 2, "previous": -(height // 2), "home": -jobs, "end": jobs}
    return replace(look, first=clipped(look.first + steps[key], jobs, height)) if key in steps else look


# ---- the keyboard ----

SEQUENCES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "previous",
    "\x1b[6~": "next",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "k": "up",
    "j": "down",
    " ": "next",
    "g": "home",
    "G": "end",
    "q": "q",
    "Q": "q",
    "\x04": "q",
    "s": "s",
    "a": "a",
    "A": "a",
}
"""What keys send, and what they mean here; j, k, g and G as in `less`."""


_sequence = re.compile("|".join(re.escape(sent) for sent in SEQUENCES) + r"|\x1b\[[0-9;]*.|.", re.DOTALL)


@contextlib.contextmanager
def _keys() -> Iterator[bool]:
    """Keys come one by one and unseen; true where there is a keyboard. The terminal is put back, by SIGTERM too."""
    before_term = signal.signal(signal.SIGTERM, _ended)
    keyboard = sys.stdin is not None and sys.stdin.isatty()
    before = termios.tcgetattr(sys.stdin) if keyboard else []
    try:
        if keyboard:
            tty.setcbreak(sys.stdin)
        yield keyboard
    finally:
        if keyboard:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, before_term)


def _ended(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    sys.exit(128 + number)


def _pressed(keyboard: bool) -> list[str]:
    """The keys that come within GLANCE and mean something here; the end of input is q."""
    if not keyboard:
        time.sleep(GLANCE)
        return []
    if not select.select([sys.stdin], [], [], GLANCE)[0]:
        return []
    text = os.read(sys.stdin.fileno(), 256).decode(errors="ignore")
    if not text:
        return ["q"]
    return [SEQUENCES[sent] for sent in _sequence.findall(text) if sent in SEQUENCES]
