"""The training's output on its way: byte for byte as it comes, looked at in passing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import selectors
import termios
import threading
import tty
from collections.abc import Callable
from typing import Any

from muster_report.agent.lines import CHUNK, Lines

DRAINED = 64
"""Chunks that are read after the end: more than a pipe holds; others that write on are not waited for."""
LOOK = 0.5
"""Seconds between looks at the size of our terminal."""

Tell = Callable[[list[dict[str, Any]]], None]


class Outputs:
    """Pipes, or terminals where we write on one, between the process' stdout and stderr and ours."""

    def __init__(self, selector: selectors.BaseSelector, sought: Lines | None, tell: Tell) -> None:
        """sought: finds reports in the output, which `tell` is given; None: the output is ours, untouched."""
        self._selector, self._tell = selector, tell
        self._terminals: list[int] = []
        self._sources: dict[int, Lines] = {}  # what is read, each with what was found in it
        self.theirs: dict[int, int | None] = {1: None, 2: None}
        if sought is not None:
            self._open(sought)

    def _open(self, sought: Lines) -> None:
        """What the process gets as stdout and stderr: one pipe for both where they are the same file for us."""
        for number in (1, 2):
            if number == 2 and os.path.sameopenfile(1, 2):
                self.theirs[2] = self.theirs[1]
                continue
            if os.isatty(number):
                read, theirs = os.openpty()
                tty.setraw(theirs)  # bytes are handed on as they are
                _same_size(read)
                self._terminals.append(read)
            else:
                read, theirs = os.pipe()
            self.theirs[number] = theirs
            self._sources[read] = sought.alike()
            self._selector.register(read, selectors.EVENT_READ, number)

    def close_theirs(self) -> None:
        """Leave the process' ends to it: no other process will have them."""
        for theirs in set(self.theirs.values()):
            if theirs is not None:
                os.close(theirs)

    def pass_on(self, source: int, target: int) -> bool:
        """One read's worth of output, and the reports in it. False where nothing more comes."""
        try:
            chunk = os.read(source, CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that the process has closed
            chunk = b""
        if not chunk or not _write(target, chunk):
            self._tell(self._sources.pop(source).last())
            self._selector.unregister(source)
            os.close(source)  # nobody reads us: the process is told as it would be without us
            return False
        self._tell(self._sources[source].feed(chunk))
        return True

    def copied(self) -> Callable[[], None]:
        """Pass it on by a thread of its own, until the function that comes back is called: it waits for the rest."""
        wake, over = os.pipe()
        self._selector.register(wake, selectors.EVENT_READ)

        def copy() -> None:
            while True:
                for key, _ in self._selector.select(LOOK):
                    if key.data is None:
                        self.drain()
                        return
                    self.pass_on(key.fd, key.data)
                self.resize()

        thread = threading.Thread(target=copy, name="muster-output", daemon=True)
        thread.start()

        def finish() -> None:
            os.close(over)
            thread.join()

        return finish

    def drain(self) -> None:
        """What the process wrote before it ended."""
        for key in list(self._selector.get_map().values()):
            if key.fd in self._sources:
                os.set_blocking(key.fd, False)
                for _ in range(DRAINED):
                    if not self.pass_on(key.fd, key.data):
                        break
        for lines in self._sources.values():
            self._tell(lines.last())

    def resize(self) -> None:
        """Terminals as large as the one that we write to (only its foreground group is told)."""
        for terminal in self._terminals:
            _same_size(terminal)


def _write(target: int, chunk: bytes) -> bool:
    """All of it, however long that takes; False where nobody reads any more."""
    left = memoryview(chunk)
    while left:
        try:
            left = left[os.write(target, left) :]
        except BlockingIOError:  # somebody set it so
            select.select([], [target], [])
        except OSError:
            return False
    return True


def _same_size(terminal: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))
