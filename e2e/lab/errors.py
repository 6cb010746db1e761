"""What can go wrong with a lab, by whose fault it is.

LabError
├── BadRequestError    what was asked for cannot be (another shape under this name, an unknown process): exit
2 └── NotReadyError      a part did not come up in time; carries the tail of its log: exit 1
"""

from __future__ import annotations

import sys


class LabError(Exception):
    """A sentence for the person at the terminal."""

    exit_code = 1


class BadRequestError(LabError):
    exit_code = 2


class NotReadyError(LabError):
    pass


def only_on_linux(module: str) -> None:
    """Ends a command elsewhere, before it downloads anything."""
    if not sys.platform.startswith("linux"):
        sys.exit(f"python -m {module}: needs Linux (or WSL2), found {sys.platform}")
