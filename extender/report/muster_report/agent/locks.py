"""A lock for each device of the node, held by the agent and by the training that inherits it.

Where two jobs share a device, the second one has a lock of its own: each keeps out who comes after it.

A frozen agent can't end its training when its lease runs out. Whoever gets the device next waits for the lock, which
the kernel gives back when the last process that holds it has ended. Only processes that keep what they inherit hold
it: Python's subprocess closes it in what it starts, not in what it forks.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from urllib.parse import quote

from muster_report.agent.standing import Device


class Locks:
    """folder: of the node (a hostPath), the same for all pods; None: without locks."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self.held: dict[str, int] = {}  # open file by device

    def take(self, devices: Iterable[Device]) -> str | None:
        """Lock these. Why the first that can't be is not, to be tried again; None: all are ours."""
        for device in devices:
            if self._folder is None or device.id in self.held:
                continue
            try:
                taken = self._take(device)
            except OSError as error:
                return f"device {device.id}: its lock can't be had: {error}; tried again"
            if not taken:
                return f"device {device.id}: another training still holds its lock; waiting for its end"
        return None

    def keep(self, devices: Iterable[str]) -> None:
        """Give back all others: whoever inherited one gives it back with us."""
        for device in set(self.held) - set(devices):
            file = self.held.pop(device)
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def _take(self, device: Device) -> bool:
        name = quote(device.id, safe="") + (".second" if device.second else "")
        path = os.path.join(self._folder or "", f"{name}.lock")
        # Whoever made it, anybody may lock it: a lock needs no right to write. Without O_CREAT where it is there:
        # Linux refuses that for another user's file in a folder like /tmp (fs.protected_regular).
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        os.set_inheritable(file, True)
        self.held[device.id] = file
        return True
