"""The processes that came of the training, found in /proc: daemons, too, which as PID 1 the agent inherits.

Cgroups can't be asked: in a container they are read-only. What enters the container from outside (`kubectl exec`) has
no parent here and is nobody's descendant.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
HOUSEKEEPER = b"multiprocessing.resource_tracker"
"""Python's own, one for all workers: it has the environment of the first, and no device."""


def descendants(spared: Iterable[int] = ()) -> set[int]:
    """All that descends from this process, zombies left out; `spared` ones with what descends from them, too."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                # After the name, which is in parentheses and may have any character: state, then the parent.
                state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                children.setdefault(int(parent), []).append(int(folder.name))
                if state in "ZX":
                    zombies.add(int(folder.name))
    found: set[int] = set()
    left = [os.getpid()]
    while left:
        below = set(children.get(left.pop(), ())) - set(spared)
        found |= below
        left += below
    return found - zombies


def kill(pids: Iterable[int]) -> None:
    """SIGKILL. Who has ended, or may not be ended by us, stays as it is: the next look tells."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def users(devices: Iterable[str], of: Iterable[int]) -> set[int]:
    """Those of the processes `of` that were started to use one of the devices, by CUDA_VISIBLE_DEVICES."""
    wanted, found = set(devices), set()
    for pid in of:
        with contextlib.suppress(OSError):
            if HOUSEKEEPER in (PROC / str(pid) / "cmdline").read_bytes():
                continue
            for entry in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                name, _, value = entry.partition(b"=")
                if name == b"CUDA_VISIBLE_DEVICES" and wanted & set(
                    value.decode(errors="replace").split(",")
                ):
                    found.add(pid)
    return found
