"""Progress for a person: stderr only, each line with the seconds since the command began."""

from __future__ import annotations

import sys
import time

_began = time.monotonic()


def say(sentence: str) -> None:
    print(f"[{time.monotonic() - _began:6.1f}s] {sentence}", file=sys.stderr, flush=True)
