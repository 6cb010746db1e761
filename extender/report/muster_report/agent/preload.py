"""The agent's side of `--preload`: one process with the imports done, from which each training is forked."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster_report.agent.child import Child, Launcher, say
from muster_report.agent.trainer import LIMIT

PROGRAM = Path(__file__).with_name("preloaded.py")
PATIENCE = 10.0
"""Seconds for a fork of a process that has much memory."""
LOOK = 0.1
PLAIN, WITH_VALUE = ("-u", "-B", "-E", "-I", "-O", "-OO", "-P", "-q", "-s", "-S", "-v"), ("-W", "-X")
"""Options of Python that may stand before the script."""


def split(command: Sequence[str]) -> tuple[list[str], bool, str, list[str]] | None:
    """A command that runs Python, as interpreter and options, whether a module, which, its arguments; else None."""
    if not os.path.basename(command[0]).startswith("python"):
        return None
    at = 1
    while at < len(command) and command[at] in (*PLAIN, *WITH_VALUE):
        at += 2 if command[at] in WITH_VALUE else 1
    left = list(command[at:])
    if left[:1] == ["-m"] and len(left) > 1:
        return list(command[:at]), True, left[1], left[2:]
    if left and not left[0].startswith("-"):
        return list(command[:at]), False, left[0], left[1:]
    return None


class Preloaded:
    """pids: of the process, while there is one; no descendant of ours that a training left."""

    def __init__(self, command: Sequence[str], modules: Sequence[str], launcher: Launcher) -> None:
        found = split(command)
        assert found is not None  # the command line was checked
        interpreter, module, target, arguments = found
        self._launcher = launcher
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.set_inheritable(True)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "MUSTER_PRELOAD_FD": str(theirs.fileno())}
        kind = "-m" if module else "--"
        self.pids: tuple[int, ...] = ()
        process = launcher.launch(environment, [*interpreter, str(PROGRAM), kind, target, *arguments])
        self.pids = (process.pid,)
        theirs.close()
        folder = os.getcwd() if module else os.path.dirname(os.path.abspath(target))
        self._socket.send(json.dumps({"modules": list(modules), "path": folder}).encode())

    def wait(self, given_up: Callable[[], bool]) -> None:
        """Until the imports are done, or can't be: then trainings start as without."""
        while self.pids and not given_up():
            answer = self._answer(LOOK)
            if answer is not None:
                if "ready" not in answer:
                    self._gone(answer.get("refused", "the process that imports has ended"))
                return

    def launch(self, told: Mapping[str, str], files: Sequence[int]) -> Child | None:
        """A training with these files and this of its environment set; None where there is nothing to fork."""
        if not self.pids:
            return None
        go, begin = os.pipe()
        try:
            asked = {
                "set": {name: told[name] for name in ("CUDA_VISIBLE_DEVICES", LIMIT) if name in told},
                "agent": os.getpid(),
                "foreground": self._launcher.foreground,
            }
            with contextlib.suppress(OSError):
                socket.send_fds(self._socket, [json.dumps(asked).encode()], [*files, go])
                if "pid" in (answer := self._answer(PATIENCE) or {}):
                    child = Child(int(answer["pid"]))
                    os.write(begin, b"\n")
                    return child
            self._gone("the process that had imported them has ended")
            return None
        finally:
            os.close(go)
            os.close(begin)

    def _answer(self, patience: float) -> dict[str, Any] | None:
        """{} where nobody is there any more, None where nothing came."""
        if not select.select([self._socket], [], [], patience)[0]:
            return None
        found = self._socket.recv(65536)
        answer: dict[str, Any] = json.loads(found) if found else {}
        return answer

    def _gone(self, why: str) -> None:
        say(f"--preload: {why}; the training starts without it")
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.pids = ()
