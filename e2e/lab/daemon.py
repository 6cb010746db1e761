"""One process of a lab: started in a session of its own, found again by pid and start time, ended by nothing
else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from e2e.lab.errors import LabError

SECOND = 1.0


@dataclass(frozen=True)
class Daemon:
    """What is needed to start a process again and to know it from a stranger that got its pid.

    `born` is the start time in clock ticks since boot (field 22 of /proc/PID/stat): a pid alone is re-used.
    """

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]  # added to the environment; kept for a restart
    pid: int
    born: int

    @property
    def alive(self) -> bool:
        return _born(self.pid) == self.born

    @property
    def paused(self) -> bool:
        return self.alive and _stat(self.pid)[0] in "Tt"

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal if this very process is still there; False otherwise. A pidfd pins it between look
        and kill. It stands still and goes on with its children, as a container does."""
        if number in (signal.SIGSTOP, signal.SIGCONT):
            for child in self.children:
                child.signal(number)
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive:
                return False
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    @property
    def children(self) -> list[Daemon]:
        """Muster's process that answers the verbs."""
        found: list[Daemon] = []
        ours = self.alive and self.name.startswith("muster")
        for task in Path(f"/proc/{self.pid}/task").glob("*/children") if ours else ():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pids = [int(pid) for pid in task.read_text().split()]
                found += [Daemon(f"a child of {self.name}", (), (), pid, _born(pid)) for pid in pids]
        return found

    def wait_paused(self, seconds: float = 5.0) -> None:
        """Until it stands still, as it was told to."""
        deadline = time.monotonic() + seconds
        while self.alive and not self.paused and time.monotonic() < deadline:
            time.sleep(0.002)

    def wait_gone(self, seconds: float) -> bool:
        """True once the process has ended (zombies count as ended and are reaped where they are ours)."""
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


def start(
    folder: Path,
    name: str,
    argv: Sequence[str | Path],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Daemon:
    """Start a process that outlives us and holds none of our pipes; its output goes to logs/NAME.log."""
    added = dict(env or {})
    log = log_path(folder, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = tuple(str(part) for part in argv)
    with open(log, "ab") as output:
        output.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%S%z')} {' '.join(command)}\n".encode())
        output.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | added,
            cwd=cwd or folder,
            start_new_session=True,
        )
    born = _born(process.pid, zombies=True)
    # Popen's destructor warns about a child that still runs; ours is meant to, and alive() reaps it.
    process.returncode = 0
    daemon = Daemon(name, command, tuple(sorted(added.items())), process.pid, born)
    _record_path(folder, name).parent.mkdir(parents=True, exist_ok=True)
    half_done = _record_path(folder, name).with_suffix(".new")
    half_done.write_text(json.dumps(asdict(daemon)))
    half_done.rename(_record_path(folder, name))
    return daemon


def recorded(folder: Path) -> dict[str, Daemon]:
    """Every process that was started for this lab and not forgotten, by name, in the order of starting."""
    files = sorted((folder / "processes").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return {daemon.name: daemon for daemon in map(_read, files)}


def log_path(folder: Path, name: str) -> Path:
    return folder / "logs" / f"{name}.log"


def log_tail(folder: Path, name: str, lines: int = 20) -> str:
    """The last lines of a process' log, indented; a sentence where there is none."""
    try:
        with open(log_path(folder, name), "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 64_000))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return f"    (no log of {name})"
    said = text.splitlines()
    # A Go program that breaks says why first, and then prints every goroutine.
    broke = max(
        (at for at, line in enumerate(said) if line.startswith(("panic:", "fatal error:"))), default=None
    )
    shown = said[-lines:] if broke is None else said[broke : broke + lines]
    return "\n".join(f"    {line}" for line in shown)


def end(
    daemons: Sequence[Daemon], number: signal.Signals = signal.SIGKILL, seconds: float = 20 * SECOND
) -> None:
    """Signal all of them, then wait for all, and for what they have started themselves: that has to end with them,
    unsignalled. LabError naming those that are still there."""
    daemons = [*daemons]
    children = [child for daemon in daemons for child in daemon.children]
    for daemon in daemons:
        daemon.signal(number)
        daemon.signal(signal.SIGCONT)  # a paused process would not see a SIGTERM
    left = [daemon.name for daemon in [*daemons, *children] if not daemon.wait_gone(seconds)]
    if left:
        raise LabError(f"still running {seconds:.0f} s after {number.name}: {', '.join(left)}")


def _record_path(folder: Path, name: str) -> Path:
    return folder / "processes" / f"{name}.json"


def _read(path: Path) -> Daemon:
    record = json.loads(path.read_text())
    return Daemon(
        name=record["name"],
        argv=tuple(record["argv"]),
        env=tuple((key, value) for key, value in record["env"]),
        pid=record["pid"],
        born=record["born"],
    )


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on (the state); the second may contain blanks, so split after
    it."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def _born(pid: int, zombies: bool = False) -> int:
    """Start time of a living process, -1 if there is none. A zombie of ours is reaped on the way. One of whose
    threads some still end lives: they hold its ports."""
    try:
        fields = _stat(pid)
        if fields[0] in "ZX" and not zombies and len(os.listdir(f"/proc/{pid}/task")) < 2:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            return -1
        return int(fields[19])
    except (FileNotFoundError, ProcessLookupError):
        return -1
