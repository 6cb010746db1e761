"""Signals on their way to the training, once each."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

UNFORWARDED = {
    getattr(signal, name)
    for name in (
        *("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGTTIN", "SIGTTOU", "SIGPIPE", "SIGXFSZ"),
        *("SIGFPE", "SIGILL", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGTRAP", "SIGSYS"),
    )
}
"""Signals that can't be caught, or that are about this process."""


class Signals:
    """Held back from here on, until `forward` says where to: nothing is delivered before it can be forwarded."""

    def __init__(self) -> None:
        self.wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)  # readable when one came
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # as it was
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)

    def forward(self, deliver: Callable[[int], None]) -> None:
        """Give each signal's number to `deliver`, on the main thread."""
        for number in sorted(signal.valid_signals() - UNFORWARDED):
            # What is ignored, as nohup leaves it, the command ignores, too.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: deliver(number))
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only wakes who waits
        for number in (signal.SIGTTIN, signal.SIGTTOU):
            signal.signal(number, signal.SIG_IGN)  # in the background of our own terminal we write on
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def poke(self) -> None:
        """Wake who waits, from another thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._woken, b"\0")

    def taken(self) -> None:
        """Read what woke us."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 65536)
