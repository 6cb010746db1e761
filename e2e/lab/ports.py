"""Ports on loopback for labs side by side.

Between picking a port and a daemon's bind another program could take it, so three things are done: ports lie
below the range the kernel hands out for outgoing connections, a lab's ports are recorded under one lock
before anybody else picks, and only ports that nobody is bound to now are picked."""

from __future__ import annotations

import fcntl
import json
import socket
from collections.abc import Sequence
from pathlib import Path

from e2e.lab import places
from e2e.lab.errors import LabError

FIRST, LAST = 21000, 29999  # Linux hands out 32768 and up by default


def reserve(folder: Path, names: Sequence[str]) -> dict[str, int]:
    """A free port for each name, recorded in the lab's folder (given back when the folder is removed).

    Asking again adds what is missing and keeps the rest. LabError when the range is full."""
    places.labs().mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with open(places.labs() / ".ports.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ours = _recorded(folder / "ports.json")
        known = [*places.labs().glob("*/ports.json"), places.beside_kind() / "ports.json"]
        taken = {port for file in known for port in _recorded(file).values()}
        candidates = (port for port in range(FIRST, LAST + 1) if port not in taken and _free(port))
        for name in names:
            if name not in ours:
                port = next(candidates, None)
                if port is None:
                    raise LabError(f"no free port between {FIRST} and {LAST} on loopback")
                ours[name] = port
        (folder / "ports.json").write_text(json.dumps(ours, indent=1))
    return ours


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody takes connections there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(3)
        return probe.connect_ex((host, port)) == 0


def _recorded(file: Path) -> dict[str, int]:
    try:
        ports: dict[str, int] = json.loads(file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return ports


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is as good as free
        try:
            probe.bind(("0.0.0.0", port))  # any address: muster's service port is bound on all
        except OSError:
            return False
    return True
