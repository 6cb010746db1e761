"""Real operators beside the kind cluster, as beside a lab: processes of this machine, which find the API server where
kind publishes it. It calls their webhooks at this machine's address on the node's network."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.kind.engine import docker
from e2e.lab import build, daemon, operators, ports
from e2e.lab.daemon import Daemon
from e2e.lab.errors import BadRequestError, LabError, NotReadyError
from e2e.lab.operators import Operators
from e2e.lab.say import say

NETWORK = "kind"
PATIENCE = 120.0


class Beside:
    """The operators of one shape. folder: KindLab's, with an administrator's kubeconfig and the authority."""

    def __init__(self, folder: Path, server: str, wanted: Sequence[str]) -> None:
        self.folder = folder
        self.wanted = tuple(wanted)
        programs = build.find_all(operators.binaries(wanted).values()) if wanted else {}
        numbers = ports.reserve(folder, operators.port_names(wanted)) if wanted else {}
        host = address() if wanted else ""
        self._operators = Operators(folder, self.wanted, server, numbers, programs, host)

    @property
    def names(self) -> tuple[str, ...]:
        return self._operators.names

    def up(self) -> None:
        """CRDs, webhooks and processes, all ready."""
        note(self.folder, self.wanted)
        self._operators.install()
        for name in self.names:
            self.start(name, wait=False)
        for name in self.names:
            self.wait_ready(name)

    def down(self) -> None:
        """All of it away again. Who stands still goes on first: it has to let go of its objects."""
        for name in self.names:
            if not self.alive(name):
                self.start(name)
            self.resume(name)
        self._operators.remove()
        daemon.end([one for one in map(self._daemon, self.names) if one is not None])
        note(self.folder, ())

    def alive(self, name: str) -> bool:
        found = self._daemon(name)
        return found is not None and found.alive

    def state(self, name: str) -> str:
        found = self._daemon(name)
        return "ended" if found is None or not found.alive else "paused" if found.paused else "running"

    def pid(self, name: str) -> int | None:
        found = self._daemon(name)
        return found.pid if found is not None and found.alive else None

    def log(self, name: str) -> Path:
        return daemon.log_path(self.folder, name)

    def start(self, name: str, env: Mapping[str, str] | None = None, wait: bool = True) -> None:
        if self.alive(name):
            raise BadRequestError(f"{name} beside kind runs already")
        added = self._operators.environment(name) | dict(env or {})
        daemon.start(self.folder, name, self._operators.command(name), added)
        if wait:
            self.wait_ready(name)

    def stop(self, name: str, sig: signal.Signals) -> None:
        found = self._daemon(name)
        if found is not None:
            daemon.end([found], sig, 30.0)

    def pause(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)
        deadline = time.monotonic() + 5.0
        while self.state(name) == "running" and time.monotonic() < deadline:
            time.sleep(0.002)

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def ready(self, name: str) -> bool:
        return self._operators.ready(name)

    def wait_ready(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.ready(name):
            if not self.alive(name) or time.monotonic() > deadline:
                why = "has ended" if not self.alive(name) else f"is not ready after {PATIENCE:.0f} s"
                end = daemon.log_tail(self.folder, name)
                raise NotReadyError(f"{name} beside kind {why}. The end of {self.log(name)}:\n{end}")
            time.sleep(0.1)

    def revive(self) -> list[str]:
        """As Lab.revive, with its words."""
        mended = []
        for name in self.names:
            if self.state(name) == "paused":
                say(f"{name} was paused: resuming it")
                self.resume(name)
            elif not self.alive(name):
                say(f"{name} was not running: starting it again (its log: {self.log(name)})")
                self.start(name)
            else:
                continue
            mended.append(name)
        return mended

    def _daemon(self, name: str) -> Daemon | None:
        return daemon.recorded(self.folder).get(name)

    def _signal(self, name: str, number: signal.Signals) -> None:
        found = self._daemon(name)
        if found is None or not found.signal(number):
            raise LabError(f"{name} beside kind does not run")


def note(folder: Path, wanted: Sequence[str]) -> None:
    """Which operators the cluster has now, for who comes next should this process be killed."""
    (folder / "operators.txt").write_text(",".join(wanted))


def noted(folder: Path) -> list[str]:
    """Operators that a run which was killed has left behind."""
    try:
        return [one for one in (folder / "operators.txt").read_text().split(",") if one]
    except FileNotFoundError:
        return []


def address() -> str:
    """This machine's address on the node's network, its gateway. LabError where that is another machine's."""
    template = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
    for found in docker("network", "inspect", "--format", template, NETWORK).split():
        if "." in found:  # not IPv6's
            with socket.socket() as probe:
                try:
                    probe.bind((found, 0))
                except OSError as problem:
                    raise LabError(f"kind's node reaches this machine by no address: {found}") from problem
            return found
    raise LabError(f"Docker's network {NETWORK} has no gateway")
