"""A cgroup of the lab's own: whatever starts in it stays in it, so what a real node leaves behind can be found
and ended, shims and containers too.

    group = Cgroup("muster-mine-real-0")
    group.make(); group.enter() is an argv prefix; group.end()

One tree on cgroup v2; on v1 the same path in every hierarchy (a kubelet wants its root in all of them). Needs
root."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.lab.errors import LabError

PATIENCE = 20.0  # seconds for killed processes to be gone: a loaded machine reaps slowly


@dataclass(frozen=True)
class Cgroup:
    """A cgroup below the root; `name` is a plain folder name. The processes of the node itself are in its
    child `agents`: on v2 processes and children with controllers may not be in one cgroup."""

    name: str

    @property
    def paths(self) -> list[Path]:
        return [root / self.name for root in hierarchies()]

    def make(self) -> None:
        for path in self.paths:
            (path / "agents").mkdir(parents=True, exist_ok=True)

    def enter(self) -> list[str]:
        """An argv prefix: the command after it starts in the cgroup, as the same process."""
        # One hierarchy is enough to be found by; cpuset would refuse processes before it is given cores.
        tree = next((path for path in self.paths if path.parent.name == "pids"), self.paths[0])
        return ["sh", "-c", f'echo $$ > "{tree}/agents/cgroup.procs" && exec "$@"', "enter"]

    def pids(self) -> set[int]:
        """Every process in it and below, by the machine's own numbers."""
        found: set[int] = set()
        for path in self.paths:
            for file in path.rglob("cgroup.procs"):
                with contextlib.suppress(OSError):
                    found |= {int(line) for line in file.read_text().split()}
        return found

    def end(self) -> None:
        """SIGKILL what is in it until nothing is, then remove it. LabError naming what stays."""
        deadline = time.monotonic() + PATIENCE
        while left := self.pids():
            if time.monotonic() > deadline:
                raise LabError(f"cgroup {self.name}: still running after SIGKILL: {_names(left)}")
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for path in self.paths:
            for folder in sorted(_below(path), reverse=True):
                _remove(folder, deadline)


def hierarchies() -> list[Path]:
    """Where cgroups are mounted: each hierarchy of v1, the one of v2, or (hybrid) both."""
    mounted = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted({Path(path) for _, path, kind in mounted if kind in ("cgroup", "cgroup2")})


def _below(path: Path) -> Iterator[Path]:
    """The folder and every folder under it; nothing where there is none."""
    for folder, _, _ in os.walk(path):
        yield Path(folder)


def _remove(folder: Path, deadline: float) -> None:
    """A cgroup stays busy for a moment after its last process."""
    while True:
        try:
            return folder.rmdir()
        except FileNotFoundError:
            return None
        except OSError as busy:
            if time.monotonic() > deadline:
                raise LabError(f"cgroup {folder}: {busy.strerror}") from busy
            time.sleep(0.02)


def _names(pids: set[int]) -> str:
    known = []
    for pid in sorted(pids):
        with contextlib.suppress(OSError):
            known.append(f"{pid} {Path(f'/proc/{pid}/comm').read_text().strip()}")
    return ", ".join(known)
