"""Change a training's devices without restarting it. One file of the standard library, as report.py is.

    import muster_report as muster

    def change(devices):            # ("GPU-a", "GPU-b"): end the workers of all others, and wait for them
        workers.keep(devices)

    for devices in muster.devices(change):       # once a step; the devices to use from now on
        train_one_step(workers)

A process that has opened a device keeps a context on it. So there is a worker process for each device under one
trainer that opens none, and when `change` returns, the workers of the devices that are gone have ended: that is what
Muster is told, and what the device's next user relies on. Start them with CUDA_VISIBLE_DEVICES set to their device;
the agent then looks itself that they are gone.

Without `change` the body of the loop does it, and Muster hears of it one step later. A training that never calls
this is restarted instead, as is one that doesn't answer within the agent's --grace. Where no `muster agent --devices`
runs it, the devices of CUDA_VISIBLE_DEVICES come back for ever. For one process of the training, and one thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Change = Callable[[tuple[str, ...]], object]

NAME = "MUSTER_DEVICES_FD"
LONGEST, LOCKS = 65536, 128

_told: socket.socket | None = None
_locks: list[int] = []


def devices(change: Change | None = None) -> Iterator[tuple[str, ...]]:
    """The devices to use, each time that it is asked. change: called with them where they are others than before."""
    now = tuple(one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one)
    agent = _agent()
    followed: int | None = 0  # what is not told yet; 0: what the process was started for
    while True:
        if agent is not None:
            if followed is not None:
                _say(agent, now, followed)
                followed = None
            found, order = _news(agent, now)
            if found != now:
                now = found
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(now)  # of the workers that are started next
                if change is not None:
                    change(now)
            if change is None:
                followed = order  # once the loop's body has been through
            elif order is not None:
                _say(agent, now, order)
        yield now


def _agent() -> socket.socket | None:
    """The socket to the agent, of the one process that inherited it."""
    global _told
    if _told is None and (number := os.environ.pop(NAME, "")):
        with contextlib.suppress(OSError, ValueError):
            found = socket.socket(fileno=int(number))
            if found.type != socket.SOCK_SEQPACKET:  # a number that is something else's by now
                found.detach()
                return None
            found.setblocking(False)
            found.set_inheritable(False)
            _told = found
    return _told


def _news(agent: socket.socket, now: tuple[str, ...]) -> tuple[tuple[str, ...], int | None]:
    """The newest that the agent said, and its number: None for nothing new."""
    order = None
    while True:
        try:
            body, files, _, _ = socket.recv_fds(agent, LONGEST, LOCKS)
        except OSError:  # nothing there
            return now, order
        if not body:  # the agent has ended, and we are about to
            return now, order
        _locks.extend(files)  # held until this process ends
        for file in files:
            os.set_inheritable(file, True)  # and by the workers that it forks
        found = json.loads(body)
        now, order = tuple(found["devices"]), int(found["order"])


def _say(agent: socket.socket, now: tuple[str, ...], order: int) -> None:
    with contextlib.suppress(OSError):
        agent.send(json.dumps({"using": now, "order": order}).encode())


class _Callable(ModuleType):
    """This module, callable: `muster_report.devices()` finds a module of that name in the package."""

    def __call__(self, *positional: Any, **named: Any) -> Iterator[tuple[str, ...]]:
        return devices(*positional, **named)


sys.modules[__name__].__class__ = _Callable
