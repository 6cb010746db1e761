"""`muster agent -- python train.py`: runs a training and reports what it prints, for code that can't import muster.

What the process is to the outside stays as it was: signals are forwarded once, its exit code or the signal that
ended it is ours, its output passes byte for byte as it comes (a terminal stays a terminal), and as PID 1 of a
container the agent reaps what it inherits. Reports go by muster.report, on a thread of their own: an endpoint that
fails disturbs nothing.

    muster: step=3 loss=0.2 total=100          anywhere in a line of output
    {"muster": {"step": 3, "loss": 0.2}}       a line of JSON, other keys beside it
    --pattern 'step (?P<step>\\d+)'             a regular expression whose named groups are values

The process has a process group of its own (the foreground one, where the agent is in it), so that a signal from the
keyboard reaches it once. When it ends the agent ends, whatever else still holds its output.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import resource
import select
import selectors
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

import click

from muster.report import AT_EXIT, ONCE, STAYS, Reporter

NAMES = (*STAYS, *ONCE)
LONGEST = 8192
"""Bytes of a line that is looked at; what is longer is no report."""
CHUNK = 65536
DRAINED = 64
"""Chunks that are read after the end: more than a pipe holds; others that write on are not waited for."""
LOOK = 0.5
"""Seconds between looks at --file."""
UNFORWARDED = {
    getattr(signal, name)
    for name in (
        *("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGTTIN", "SIGTTOU", "SIGPIPE", "SIGXFSZ"),
        *("SIGFPE", "SIGILL", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGTRAP", "SIGSYS"),
    )
}
"""Signals that can't be caught, or that are about this process."""
NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit codes of a shell for a command that can't be started."""

_PLAIN = re.compile(rb"(?:^|\s)muster:((?:\s+[a-z_]+=\S+)+)")
_PAIR = re.compile(rb"([a-z_]+)=([^\s,;\x1b]+)")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="REGEX",
    help=f"Searched in each line of output; its named groups are values: {', '.join(NAMES)}. May be repeated.",
)
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False),
    help="Follow this file for reports, and leave the output alone (unless --pattern is given, too). A line is "
    '"step=3 loss=0.2" or JSON. It need not exist yet, and may be written anew.',
)
@click.option("--quiet", is_flag=True, help="Don't say on stderr, once, why reports are not accepted.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def agent(patterns: tuple[str, ...], file: str | None, quiet: bool, command: tuple[str, ...]) -> None:
    """Run COMMAND and report its progress to Muster.

    \b
    muster agent -- python train.py
    muster agent --pattern 'epoch (?P<epoch>\\d+), loss (?P<loss>[0-9.]+)' -- ./train.sh
    muster agent --file /tmp/progress -- torchrun train.py

    Reports are lines of its output such as "muster: step=3 loss=0.2 total=100", or JSON:
    {"muster": {"step": 3}}. Signals, exit code and output are the command's, untouched; nothing that goes wrong
    with reports disturbs it. Where they go is set by the pod's annotation muster.dev/report: "true".
    """
    for text in patterns:
        _checked(text)
    reporter = Reporter((lambda _: None) if quiet else None)
    sought = Lines([re.compile(text.encode()) for text in patterns])
    watched = Tail(file, Lines([], bare=True)) if file else None
    run = Run(list(command), reporter, sought if patterns or not file else None, watched)
    run.end(run.wait())


def _checked(text: str) -> None:
    try:
        groups = re.compile(text.encode()).groupindex
    except re.error as error:
        raise click.BadParameter(
            f"{text!r} is no regular expression: {error}", param_hint="--pattern"
        ) from error
    unknown = sorted(set(groups) - set(NAMES))
    if unknown or not groups:
        found = f"found {', '.join(unknown)}" if unknown else f"found none in {text!r}"
        raise click.BadParameter(
            f"expected named groups (?P<step>...) out of {', '.join(NAMES)}; {found}", param_hint="--pattern"
        )


# ---- from text to values ----


class Lines:
    """Finds reports in a stream of bytes. bare: every line is meant as one, without the word `muster`."""

    def __init__(self, patterns: Sequence[re.Pattern[bytes]], bare: bool = False) -> None:
        self._patterns, self._bare = patterns, bare
        self._rest = b""

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Reports in the lines that this chunk completes, oldest first. A carriage return ends a line, too."""
        data = self._rest + chunk
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[end:][: LONGEST + 1]  # of a longer one only that it is longer
        if not self._patterns and not self._bare and data.find(b"muster", 0, end) < 0:
            return []
        return [found for line in data[:end].splitlines() if (found := self.read(line))]

    def last(self) -> list[dict[str, Any]]:
        """The report in what came after the last line's end."""
        line, self._rest = self._rest, b""
        found = self.read(line)
        return [found] if found else []

    def read(self, line: bytes) -> dict[str, Any]:
        """The values of one line, {} for none."""
        if len(line) > LONGEST:
            return {}
        values: dict[str, Any] = {}
        if line.lstrip().startswith(b"{"):
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(line)
                told = found.get("muster", found if self._bare else None)
                if isinstance(told, Mapping):
                    values = {str(name): value for name, value in told.items()}
        elif self._bare:
            values = _pairs(line)
        elif b"muster:" in line and (match := _PLAIN.search(line)):
            values = _pairs(match[1])
        for pattern in self._patterns:
            if match := pattern.search(line):
                values |= {name: text.decode(errors="replace") for name, text in match.groupdict(b"").items()}
        return {name: _value(name, values[name]) for name in NAMES if values.get(name) not in (None, "")}


def _pairs(text: bytes) -> dict[str, Any]:
    return {name.decode(): value.decode(errors="replace") for name, value in _PAIR.findall(text)}


def _value(name: str, value: Any) -> Any:
    """As Reporter takes it: a number from text ("1,024" is 1024); for a boundary whether it is one."""
    if name == "boundary":
        return value is True or str(value).lower() in ("true", "1", "yes")
    if not isinstance(value, str):
        return value
    try:
        return float(value.replace(",", "") if _THOUSANDS.fullmatch(value) else value)
    except ValueError:
        return math.nan  # Reporter says what it leaves out


class Tail:
    """Follows a file that grows, is cut off, or is written again."""

    def __init__(self, path: str, lines: Lines) -> None:
        self._path, self._lines = path, lines
        self._inode, self._offset, self._changed = 0, 0, 0
        self._head = b""
        self._open_line = False

    def look(self) -> list[dict[str, Any]]:
        """Reports that came since the last look. A last line without its end counts at the second look."""
        try:
            with open(self._path, "rb") as file:
                found = os.fstat(file.fileno())
                head = file.read(64)
                anew = found.st_ino != self._inode or found.st_size < self._offset
                anew = anew or not head.startswith(self._head)  # written anew in its place, and longer
                still = found.st_size == self._offset and found.st_mtime_ns == self._changed
                if not anew and still:
                    taken, self._open_line = (self._lines.last() if self._open_line else []), False
                    return taken
                if anew or found.st_size == self._offset:
                    self._offset = 0
                    self._lines.last()
                self._inode, self._changed, self._head = found.st_ino, found.st_mtime_ns, head
                self._offset = max(self._offset, found.st_size - CHUNK)  # the newest is what counts
                file.seek(self._offset)
                chunk = file.read(CHUNK)
        except OSError:
            return []
        self._offset += len(chunk)
        self._open_line = not chunk.endswith(b"\n")
        return self._lines.feed(chunk)


# ---- the process ----


class Run:
    """One command, from its start to its end."""

    def __init__(
        self, command: list[str], reporter: Reporter, sought: Lines | None, watched: Tail | None
    ) -> None:
        """sought: finds reports in the output, None leaves it alone; watched: the file to follow."""
        self._reporter, self._sought, self._watched = reporter, sought, watched
        self._selector = selectors.DefaultSelector()
        self._terminals: list[int] = []
        self._ended = False
        self._status: int | None = None
        self._foreground = False
        for number in (0, 1, 2):
            try:
                os.fstat(number)
            except OSError:  # closed: nothing of ours may get this number
                os.open(os.devnull, os.O_RDWR)
        wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(wake, selectors.EVENT_READ)
        # Nothing is delivered before it can be forwarded.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._child = self._start(command, before)
        for number in sorted(signal.valid_signals() - UNFORWARDED):
            if (
                signal.getsignal(number) is not signal.SIG_IGN
            ):  # as nohup leaves it: the command ignores it, too
                signal.signal(number, self._forward)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only wakes the loop
        for number in (signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)  # in the background of our own terminal we write on
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait(self) -> int:
        """Pass on what comes until the process ends; its wait status."""
        while self._status is None:
            self._reap()
            for key, _ in self._selector.select(0 if self._status is not None else LOOK):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(key.fd, CHUNK)
                else:
                    self._pass_on(key.fd, key.data)
            if self._watched is not None:
                self._tell(self._watched.look())
            for terminal in self._terminals:
                _same_size(terminal)
        self._drain()
        return self._status

    def end(self, status: int) -> NoReturn:
        """Send the last report, then end as the process did: with its exit code, or by the same signal."""
        if self._watched is not None:
            for _ in range(2):
                self._tell(self._watched.look())
        self._reporter.flush(AT_EXIT)
        if self._foreground:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(0, os.getpgrp())
        if os.WIFEXITED(status):
            os._exit(os.WEXITSTATUS(status))
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core is the process', not ours
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            os.kill(os.getpid(), number)
        os._exit(128 + number)  # PID 1 is not ended so; this is how a container's runtime says it

    # ---- start ----

    def _start(self, command: list[str], mask: set[int | signal.Signals]) -> int:
        ours: dict[int, int | None] = {1: None, 2: None}
        if self._sought is not None:
            ours |= self._outputs()
        with contextlib.suppress(OSError):  # no terminal, or not the one that controls us
            self._foreground = os.tcgetpgrp(0) == os.getpgrp()

        def prepare() -> None:  # no thread runs yet
            if self._foreground:
                os.tcsetpgrp(0, os.getpid())
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        try:
            child = subprocess.Popen(
                command, stdout=ours[1], stderr=ours[2], process_group=0, preexec_fn=prepare, close_fds=False
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = getattr(error, "strerror", None) or error
            with contextlib.suppress(OSError):
                os.write(2, f"muster agent: {command[0]}: {why}\n".encode())
            os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE)
        for theirs in {ours[1], ours[2]} - {None}:
            os.close(theirs)  # type: ignore[arg-type]
        child.returncode = 0  # reaped below, with all others
        return child.pid

    def _outputs(self) -> dict[int, int]:
        """What the process gets as stdout and stderr: one pipe for both where they are the same file for us."""
        ours: dict[int, int] = {}
        for number in (1, 2):
            if number == 2 and os.path.sameopenfile(1, 2):
                ours[2] = ours[1]
                continue
            if os.isatty(number):
                read, ours[number] = os.openpty()
                tty.setraw(ours[number])  # bytes are handed on as they are
                _same_size(read)
                self._terminals.append(read)
            else:
                read, ours[number] = os.pipe()
            self._selector.register(read, selectors.EVENT_READ, number)
        return ours

    # ---- while it runs ----

    def _forward(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self._ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, number)

    def _reap(self) -> None:
        """Children that ended: ours, and as PID 1 whatever lost its parent."""
        while self._status is None:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            if found.si_pid == self._child:
                self._ended = True  # before its number can be another's: no signal is sent to that
            _, status = os.waitpid(found.si_pid, 0)
            if found.si_pid == self._child:
                self._status = status

    def _pass_on(self, source: int, target: int) -> bool:
        """One read's worth of output, and the reports in it. False where nothing more comes."""
        try:
            chunk = os.read(source, CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that the process has closed
            chunk = b""
        if not chunk or not _write(target, chunk):
            self._selector.unregister(source)
            os.close(source)  # nobody reads us: the process is told as it would be without us
            return False
        if self._sought is not None:
            self._tell(self._sought.feed(chunk))
        return True

    def _drain(self) -> None:
        """What the process wrote before it ended."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                os.set_blocking(key.fd, False)
                for _ in range(DRAINED):
                    if not self._pass_on(key.fd, key.data):
                        break
        if self._sought is not None:
            self._tell(self._sought.last())

    def _tell(self, found: list[dict[str, Any]]) -> None:
        for values in found:
            self._reporter.report(**values)


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
    """As large as the one that we write to, at most LOOK seconds later (only its foreground group is told)."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))


if __name__ == "__main__":
    sys.exit(agent())
