"""A program that is run to its end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.lab.errors import LabError


def output(
    command: Sequence[str], what: str, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Its stdout. LabError, which begins with `what`, with what it said, where it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=cwd, env=env
    )
    if done.returncode != 0:
        raise LabError(f"{what}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
