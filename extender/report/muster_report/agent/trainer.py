"""The agent's end of muster.devices(): a training that changes its devices without a restart.

One message each way is one JSON object on a Unix socket that the process inherits (MUSTER_DEVICES_FD):

    training   {"using": ["GPU-a"], "order": 3}            first of all, and after each change
    agent      {"devices": ["GPU-a", "GPU-b"], "order": 4}   with the locks of the new devices, as open files
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Sequence

NAME = "MUSTER_DEVICES_FD"
PIPES, MEMORY, LIMIT = "CUDA_MPS_PIPE_DIRECTORY", "MUSTER_GPU_MEMORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
"""NVIDIA's MPS: where its daemon is met; MiB that the training says that it needs of a GPU; the limit made of it."""
LONGEST = 65536


class Trainer:
    """One process' socket. order: number of the order that it last said to have followed, None before it spoke."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._theirs.set_inheritable(True)
        self.order: int | None = None

    def fileno(self) -> int:
        return self._ours.fileno()

    @property
    def theirs(self) -> int:
        """The file that the process is to inherit."""
        return self._theirs.fileno()

    def started(self) -> None:
        """The process has its end."""
        self._theirs.close()

    def tell(self, order: int, devices: Sequence[str], locks: Sequence[int]) -> bool:
        """Whether the process was told; it isn't where it reads nothing any more."""
        body = json.dumps({"devices": list(devices), "order": order}).encode()
        with contextlib.suppress(OSError):
            if locks:
                socket.send_fds(self._ours, [body], list(locks))
            else:
                self._ours.send(body)
            return True
        return False

    def listen(self) -> bool:
        """Take in what it said. False where it says nothing any more."""
        while True:
            try:
                found = self._ours.recv(LONGEST)
            except BlockingIOError:
                return True
            except OSError:
                found = b""
            if not found:
                self.order = None
                return False
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self.order = int(json.loads(found)["order"])

    def close(self) -> None:
        self._ours.close()


def environment(trainer: Trainer, devices: Sequence[str]) -> dict[str, str]:
    """What a training is started with."""
    told = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(devices), NAME: str(trainer.theirs)}
    memory = told.get(MEMORY, "")
    if PIPES in told and memory.isdigit():
        # Ordinals are those that the training sees, and it sees these devices only.
        told.setdefault(LIMIT, ",".join(f"{at}={memory}M" for at in range(len(devices))))
    return told
