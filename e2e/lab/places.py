"""Where a lab keeps things: never in the checkout. Programs in the cache, labs in the state folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent


def _base(variable: str, fallback: str) -> Path:
    """An XDG base folder; the specification says to ignore a relative one."""
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback


def cache() -> Path:
    """Built binaries, shared by every lab and checkout of this user."""
    return _base("XDG_CACHE_HOME", ".cache") / "muster"


def labs() -> Path:
    """One folder a lab."""
    return _base("XDG_STATE_HOME", ".local/state") / "muster" / "labs"


def beside_kind() -> Path:
    """What runs beside the kind cluster as processes of this machine."""
    return labs().parent / "kind" / "lab"


def lab_folder(name: str) -> Path:
    """The folder of one lab. ValueError on a name that is no single, plain folder name."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,50}", name):
        raise ValueError(
            f"lab name {name!r}: lower-case letters, digits and dashes, 51 at most, e.g. NAME=mine"
        )
    return labs() / name
