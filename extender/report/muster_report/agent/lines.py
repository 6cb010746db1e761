"""From text to values: reports in what a training prints, or in a file that it writes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from muster_report.report import ONCE, STAYS

NAMES = (*STAYS, *ONCE)
LONGEST = 8192
"""Bytes of a line that is looked at; what is longer is no report."""
CHUNK = 65536

_PLAIN = re.compile(rb"(?:^|\s)muster:((?:\s+[a-z_]+=\S+)+)")
_PAIR = re.compile(rb"([a-z_]+)=([^\s,;\x1b]+)")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")


class Lines:
    """Finds reports in a stream of bytes. bare: every line is meant as one, without the word `muster`."""

    def __init__(self, patterns: Sequence[re.Pattern[bytes]], bare: bool = False) -> None:
        self._patterns, self._bare = patterns, bare
        self._rest = b""

    def alike(self) -> Lines:
        """For another stream: a line of the one is no end of a line of the other."""
        return Lines(self._patterns, self._bare)

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Reports in the lines that this chunk completes, oldest first. A carriage return ends a line, too."""
        data = self._rest + chunk
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[end:][: LONGEST + 1]  # of a longer one only that it is longer
        if not self._patterns and not self._bare and data.find(b"muster", 0, end) < 0:
            return []
        return [found for line in data[:end].splitlines() if (found := self.read(line))]

    def last(self) -> list[dict[str, Any]]:
        """The report in what came after the last line's end."""
        line, self._rest = self._rest, b""
        found = self.read(line)
        return [found] if found else []

    def read(self, line: bytes) -> dict[str, Any]:
        """The values of one line, {} for none."""
        if len(line) > LONGEST:
            return {}
        values: dict[str, Any] = {}
        if line.lstrip().startswith(b"{"):
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(line)
                told = found.get("muster", found if self._bare else None)
                if isinstance(told, Mapping):
                    values = {str(name): value for name, value in told.items()}
        elif self._bare:
            values = _pairs(line)
        elif b"muster:" in line and (match := _PLAIN.search(line)):
            values = _pairs(match[1])
        for pattern in self._patterns:
            if match := pattern.search(line):
                values |= {name: text.decode(errors="replace") for name, text in match.groupdict(b"").items()}
        return {name: _value(name, values[name]) for name in NAMES if values.get(name) not in (None, "")}


def _pairs(text: bytes) -> dict[str, Any]:
    return {name.decode(): value.decode(errors="replace") for name, value in _PAIR.findall(text)}


def _value(name: str, value: Any) -> Any:
    """As Reporter takes it: a number from text ("1,024" is 1024); for a boundary whether it is one."""
    if name == "boundary":
        return value is True or str(value).lower() in ("true", "1", "yes")
    if not isinstance(value, str):
        return value
    try:
        return float(value.replace(",", "") if _THOUSANDS.fullmatch(value) else value)
    except ValueError:
        return math.nan  # Reporter says what it leaves out


class Tail:
    """Follows a file that grows, is cut off, or is written again."""

    def __init__(self, path: str, lines: Lines) -> None:
        self._path, self._lines = path, lines
        self._inode, self._offset, self._changed = 0, 0, 0
        self._head = b""
        self._open_line = False

    def look(self) -> list[dict[str, Any]]:
        """Reports that came since the last look. A last line without its end counts at the second look."""
        try:
            with open(self._path, "rb") as file:
                found = os.fstat(file.fileno())
                head = file.read(64)
                rewritten = found.st_ino != self._inode or found.st_size < self._offset
                rewritten = rewritten or not head.startswith(
                    self._head
                )  # written again in its place, and longer
                still = found.st_size == self._offset and found.st_mtime_ns == self._changed
                if not rewritten and still:
                    taken, self._open_line = (self._lines.last() if self._open_line else []), False
                    return taken
                if rewritten or found.st_size == self._offset:
                    self._offset = 0
                    self._lines.last()
                self._inode, self._changed, self._head = found.st_ino, found.st_mtime_ns, head
                self._offset = max(self._offset, found.st_size - CHUNK)  # the newest is what counts
                file.seek(self._offset)
                chunk = file.read(CHUNK)
        except OSError:
            return []
        self._offset += len(chunk)
        self._open_line = not chunk.endswith(b"\n")
        return self._lines.feed(chunk)
