"""Docker: the engine that is there, else Debian's (docker.io), started by hand for this user's caches only: a
socket, a folder and a pid of its own, and the machine's firewall as it was. Containers of it reach each other
and this machine; to the outside they get by `--network host` only."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from e2e.lab import places
from e2e.lab.build import only_one
from e2e.lab.errors import LabError
from e2e.lab.say import say

ALL_CAPABILITIES_UP_TO = 40  # CAP_CHECKPOINT_RESTORE
RUNTIME = Path(__file__).with_name("runc-fewer-caps")
PACKAGES = "apt-get install --no-install-recommends docker.io debootstrap iptables"
STARTS_WITHIN = 60.0  # seconds; a second, where nothing else is going on


def folder() -> Path:
    """Where the engine that is started by hand keeps images: in the cache, which CI keeps."""
    return places.cache() / "kind"


def why_not() -> str:
    """What is missing for Docker to run here, "" for nothing."""
    if not shutil.which("docker"):
        return f"there is no docker: {PACKAGES}"
    if _answers(os.environ):
        return ""
    if os.geteuid() != 0:
        return "docker does not answer, and only root can start an engine"
    if not shutil.which("dockerd"):
        return f"docker does not answer, and there is no engine to start: {PACKAGES}"
    return ""


@functools.cache
def environment() -> dict[str, str]:
    """The environment in which `docker` and `kind` find the engine; it is started where none answers.

    LabError with the reason where it can't be."""
    if problem := why_not():
        raise LabError(f"kind needs Docker: {problem}")
    if _answers(os.environ):
        return dict(os.environ)
    own = os.environ | {"DOCKER_HOST": f"unix://{_socket()}"}
    with only_one(folder() / "dockerd"):
        if not _answers(own):
            _start(own)
    return own


def docker(*arguments: str, stdin: bytes | None = None, within: float = 1800.0) -> str:
    """What docker says on stdout. LabError with its words where it fails, or takes longer than so many seconds."""
    own = environment() | {"DOCKER_BUILDKIT": "0"}  # Debian's engine has no buildx beside it
    try:
        done = subprocess.run(
            ["docker", *arguments],
            input=stdin or b"",
            capture_output=True,
            check=False,
            env=own,
            timeout=within,
        )
    except subprocess.TimeoutExpired as late:
        raise LabError(f"docker {arguments[0]}: not done after {within:.0f} s") from late
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise LabError(f"docker {' '.join(arguments)[:120]}: {said[-2000:]}")
    return done.stdout.decode()


def has_image(name: str) -> bool:
    try:
        docker("image", "inspect", name)
    except LabError:
        return False
    return True


def pulled(name: str, within: float = 600.0) -> bool:
    """Whether the image is here now: it was, or its registry gave it."""
    if has_image(name):
        return True
    try:
        docker("pull", "--quiet", name, within=within)
    except LabError as refused:
        say(f"{name} can't be pulled: {str(refused).splitlines()[-1][:160]}")
        return False
    return True


def stop() -> bool:
    """End the engine that was started by hand, by its pid. False where none was."""
    file = folder() / "run" / "dockerd.pid"
    try:
        pid = int(file.read_text())
    except (FileNotFoundError, ValueError):
        return False
    environment.cache_clear()
    try:
        os.kill(pid, 15)
    except ProcessLookupError:
        return False
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    return True


def _socket() -> Path:
    return folder() / "run" / "docker.sock"


def _answers(environment: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(
            ["docker", "version"], capture_output=True, check=False, timeout=20, env=dict(environment)
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _start(own: Mapping[str, str]) -> None:
    run = folder() / "run"
    run.mkdir(parents=True, exist_ok=True)
    command = ["dockerd", "--host", f"unix://{_socket()}", "--data-root", str(folder() / "docker")]
    command += ["--exec-root", str(run / "exec"), "--pidfile", str(run / "dockerd.pid")]
    command += ["--iptables=false", "--ip6tables=false", "--ip-masq=false"]
    if _lacks_capabilities():
        command += ["--add-runtime", f"fewer-caps={RUNTIME}", "--default-runtime", "fewer-caps"]
    say(f"starting Docker's engine, in {folder()}")
    log = run / "dockerd.log"
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + STARTS_WITHIN
    while not _answers(own):
        if process.poll() is not None or time.monotonic() > deadline:
            end = log.read_text(errors="replace")[-1500:]
            raise LabError(f"Docker's engine does not come up. The end of {log}:\n{end}")
        time.sleep(0.3)
    process.returncode = 0  # it is to outlive us: no warning from Popen's destructor


def _lacks_capabilities() -> bool:
    """Whether root itself lacks one: Docker before 23 asks for all of them, and runc is refused."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    every = (1 << (ALL_CAPABILITIES_UP_TO + 1)) - 1
    return found is None or int(found[1], 16) & every != every
