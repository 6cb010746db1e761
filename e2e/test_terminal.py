"""`muster top` on a real terminal: a pseudo-terminal whose letters pyte draws. The API server answers by hand.

What it shows of a real cluster is in test_words; what it draws at which size in tests/test_top."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

from tests.api_fake import Server, serving
from tests.gangs import a_busy_cluster, gang, stamp

DRAWING = 2026 << 5
"""In pyte's set of modes while a picture is being drawn (synchronized output)."""


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def kubeconfig(server: Server, tmp_path: Path) -> str:
    return server.kubeconfig(tmp_path)


class Terminal:
    """`muster top` on a pseudo-terminal, and the screen that its letters make: whole pictures, never half of one."""

    def __init__(self, *arguments: str, width: int = 100, height: int = 12) -> None:
        self.master, slave = pty.openpty()
        self._size(width, height)
        self.before = termios.tcgetattr(self.master)
        self.screen = pyte.Screen(width, height)
        self.stream = pyte.ByteStream(self.screen)
        self.letters = b""
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "muster.cli", "top", *arguments]
        interrupt = signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # ignored where a shell put us behind
        try:
            self.process = subprocess.Popen(
                command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
            )
        finally:
            signal.signal(signal.SIGINT, interrupt)
        os.close(slave)

    def _size(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def resize(self, width: int, height: int) -> None:
        self._size(width, height)
        self.screen.resize(height, width)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait(self, until: Callable[[list[str]], object], within: float = 180.0) -> list[str]:
        """A picture's lines once they are so; AssertionError with the last screen where they never are."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            self._read(0.05)
            if DRAWING in self.screen.mode:
                continue
            lines = [line.rstrip() for line in self.screen.display]
            if until(lines):
                return lines
        raise AssertionError("never so; the screen at the end:\n" + "\n".join(self.screen.display))

    def _read(self, patience: float) -> bool:
        """Whether letters came within so many seconds; they are drawn."""
        if not select.select([self.master], [], [], patience)[0]:
            return False
        try:
            sent = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            return False
        self.letters += sent
        self.stream.feed(sent)
        return bool(sent)

    def ended(self) -> int:
        """The exit code, once it has ended and its last letters are read."""
        while self.process.poll() is None:
            self._read(0.05)
        while self._read(0.0):
            pass
        return self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(kubeconfig: str) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*arguments: str, **size: int) -> Terminal:
        made.append(Terminal("--kubeconfig", kubeconfig, *arguments, **size))
        return made[-1]

    yield start
    for one in made:
        one.close()


def rows(lines: list[str]) -> list[str]:
    """The jobs shown, from top to bottom."""
    return [line.split()[0] for line in lines if line.startswith("job-")]


def test_on_a_terminal_it_follows_the_cluster_keys_and_size_and_leaves_the_terminal_as_it_was(
    terminal: Callable[..., Terminal], server: Server
) -> None:
    shown = terminal("--interval", "0.2")
    lines = shown.wait(lambda lines: len(rows(lines)) == 5)
    assert lines[0].startswith("muster top  namespace team  sorted by state")
    assert rows(lines) == ["job-bert", "job-resnet", "job-rigid", "job-next", "job-over"]
    # what changes in the cluster
    server.answers["/apis/muster.dev/v1alpha1/gangs"] = {
        "items": [gang("job-new", gpus=3, share="3/1/3", expectedEnd=stamp(0))]
    }
    shown.wait(lambda lines: rows(lines) == ["job-new"] and "3 granted in team" in lines[1])
    server.answers["/apis/muster.dev/v1alpha1/gangs"] = 500
    shown.wait(lambda lines: "ago: 500 no" in lines[0] and rows(lines) == ["job-new"])
    server.answers["/apis/muster.dev/v1alpha1/gangs"] = {"items": a_busy_cluster()}
    shown.wait(lambda lines: len(rows(lines)) == 5)
    # keys
    shown.press("s")
    shown.wait(lambda lines: "sorted by name" in lines[0] and rows(lines)[1] == "job-next")
    shown.press("xx\x1b[Z")  # means nothing
    shown.press("a")
    lines = shown.wait(lambda lines: "all namespaces" in lines[0])
    assert lines[4].split()[:3] == ["NAMESPACE", "NAME", "STATE"]
    shown.press("a")
    shown.wait(lambda lines: "namespace team" in lines[0])
    # a smaller terminal, and scrolling in it
    shown.resize(60, 8)
    lines = shown.wait(lambda lines: lines[-1] == "3 below" and len(rows(lines)) == 2)
    assert lines[4].split() == ["NAME", "STATE", "SHARE", "GPUS", "WHY"]
    shown.press("\x1b[B\x1b[B")
    shown.wait(lambda lines: lines[-1] == "2 above, 1 below")
    shown.press("G")
    shown.wait(lambda lines: lines[-1] == "3 above")
    shown.press("q")
    assert shown.ended() == 0
    assert b"\x1b[?1049l" in shown.letters[-64:]
    assert termios.tcgetattr(shown.master)[3] == shown.before[3]  # echo and lines again


@pytest.mark.parametrize(("end", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_ended_by_a_signal_it_gives_the_terminal_back(
    terminal: Callable[..., Terminal], end: signal.Signals, code: int
) -> None:
    shown = terminal()
    shown.wait(lambda lines: len(rows(lines)) == 5)
    shown.process.send_signal(end)
    assert shown.ended() == code
    assert b"\x1b[?1049l" in shown.letters
    assert termios.tcgetattr(shown.master)[3] == shown.before[3]


def test_what_is_wrong_with_the_credentials_is_said_before_the_screen_is_taken(
    terminal: Callable[..., Terminal], server: Server
) -> None:
    server.answers.clear()
    shown = terminal("-A")
    assert shown.ended() == 1
    assert b"muster: GET /apis/muster.dev/v1alpha1/gangs" in shown.letters
    assert b"\x1b[?1049h" not in shown.letters
