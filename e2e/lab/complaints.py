"""What a process' log says that it should not: a traceback, an error of Muster's, a Go program that breaks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

MUSTER = re.compile(r"^\S+ \S+ (ERROR|CRITICAL) ")
"""Muster's lines: date, time, level, logger, text (muster.cli). Warnings are no complaint: an API that is away
is one."""
ANYBODY = ("Traceback (most recent call last)", "panic: ", "fatal error: ")
MOST = 5
"""Complaints of a log that are told: the first ones say why."""
AFTER = 40
"""Lines of a traceback that are told with it, at the most."""


def found(name: str, log: Iterable[bytes], expected: Sequence[re.Pattern[str]] = ()) -> list[str]:
    """A sentence for each complaint of a process' log that is not expected, the first ones, each with the lines that
    belong to it."""
    told: list[str] = []
    for first, *rest in _entries(log):
        if first.startswith(ANYBODY) or (name.startswith("muster") and MUSTER.match(first)):
            said = "\n    ".join((f"{name} complains: {first}", *rest[:AFTER]))
            if not any(pattern.search(said) for pattern in expected):
                told.append(said)
    return told[:MOST]


def _entries(log: Iterable[bytes]) -> Iterator[list[str]]:
    """Lines with those that belong to them: of a traceback, or indented. A traceback after an error is the
    error's."""
    entry: list[str] = []
    open_ended = False
    for raw in log:
        line = raw.decode(errors="replace").rstrip("\n")
        error = bool(MUSTER.match(line))
        belongs = open_ended and not re.match(r"^\d{4}-\d\d-\d\d |^--- |^[IWEF]\d{4} |^\{", line)
        if belongs and entry:
            entry.append(line)
            continue
        if entry:
            yield entry
        entry, open_ended = [line], error or line.startswith(ANYBODY)
    if entry:
        yield entry
