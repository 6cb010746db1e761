"""A process with an /etc of its own, for a program that reads a file there and can't be told another place."""

from __future__ import annotations

import os
from pathlib import Path


def with_etc(folder: Path, command: list[str]) -> list[str]:
    """The command in a mount namespace whose /etc is this folder, and nothing else: root or user namespaces."""
    flags = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    # unshare and sh are replaced by the command: its pid is the one that is recorded.
    return ["unshare", *flags, "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(folder), *command]
