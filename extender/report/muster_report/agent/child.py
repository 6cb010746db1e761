"""The training's process: its start, its end, and how the agent ends as it did."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Mapping
from typing import NoReturn

from muster_report.agent.outputs import Outputs
from muster_report.agent.signals import Signals

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit codes of a shell for a command that can't be started."""
PARENT_DEATH = 1
"""PR_SET_PDEATHSIG."""


class Child:
    """A process of ours. status: as waitpid tells it, None while it runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self._ended = False

    def signal(self, number: int) -> None:
        """Nothing where it has ended."""
        if not self._ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def reap(self) -> None:
        """Take in what has ended: it, and as PID 1 whatever lost its parent."""
        while self.status is None:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            if found.si_pid == self.pid:
                self._ended = True  # before its number can be another's: no signal is sent to that
            _, status = os.waitpid(found.si_pid, 0)
            if found.si_pid == self.pid:
                self.status = status


class Launcher:
    """Starts processes in a group of their own, the terminal's foreground one where the agent is in it."""

    def __init__(
        self, command: list[str], outputs: Outputs, signals: Signals, dies_with_us: bool = False
    ) -> None:
        """dies_with_us: the kernel ends the process when the agent's main thread has ended."""
        self._command, self._outputs, self._mask = command, outputs, signals.mask
        self._libc = ctypes.CDLL(None) if dies_with_us else None
        self.foreground = False
        with contextlib.suppress(OSError):  # no terminal, or not the one that controls us
            self.foreground = os.tcgetpgrp(0) == os.getpgrp()

    def launch(self, environment: Mapping[str, str] | None = None, command: list[str] | None = None) -> Child:
        """A new process; where there can be none the agent ends as a shell would."""
        command, ours = command or self._command, os.getpid()

        def prepare() -> None:  # few calls, and none that takes a lock: other threads of ours may hold it
            os.setpgid(0, 0)
            if self._libc is not None:
                self._libc.prctl(PARENT_DEATH, signal.SIGKILL)
                if os.getppid() != ours:
                    os._exit(1)
            if self.foreground:
                os.tcsetpgrp(0, os.getpid())
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

        theirs = self._outputs.theirs
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=theirs[1],
                stderr=theirs[2],
                preexec_fn=prepare,
                close_fds=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = getattr(error, "strerror", None) or error
            say(f"{command[0]}: {why}")
            os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE)
        process.returncode = 0  # reaped by Child, with all others
        return Child(process.pid)

    def take_terminal(self) -> None:
        """Be the foreground group again."""
        if self.foreground:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(0, os.getpgrp())


def say(text: str) -> None:
    """A sentence for who reads the training's log."""
    with contextlib.suppress(OSError):
        os.write(2, f"muster agent: {text}\n".encode())


def hold_standard_descriptors() -> None:
    """Where one of 0, 1, 2 is closed, nothing of ours may get its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def end_as(status: int) -> NoReturn:
    """End as the process did: with its exit code, or by the same signal."""
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
