"""A JSON text that a user wrote: its values, and on which lines its jobs stand, which the parser does not tell."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.sim.traces.source import UnreadableError

BETWEEN = " \t\r\n,:"
DIGITS = 300
"""Of a whole number. A longer one is left as it is written, for the check of its field to refuse: Python reads no
more than 4300 of them, and a float has no more than 308."""
ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which JSON can name and no file can hold."""


def parsed(path: Path, text: str) -> Any:
    """The values of a text. Raises UnreadableError with line and reason, where a key stands twice, too."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise UnreadableError(path, error.lineno, f"is not JSON: {error.msg}") from error
    except ValueError as error:
        raise UnreadableError(path, 1, str(error)) from error


def broken(plain: Mapping[str, Any]) -> str:
    """Which key of an object has what no file can hold, and what that is; "" where there is nothing of that kind."""
    for key, value in plain.items():
        found = SURROGATE.search(json.dumps({key: value}, ensure_ascii=False))
        if found:
            return f"{ascii(key)[1:-1]}: \\u{ord(found[0]):04x} is half of a character"
    return ""


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")
    return found


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS else digits


class Lines:
    """Where the jobs of a JSON text stand, found out only when somebody asks, in one pass."""

    def __init__(self, text: str, jobs: int) -> None:
        self.text, self.jobs = text, jobs
        self.found: list[int] | None = None

    def __getitem__(self, number: int) -> int:
        if self.found is None:
            self.found = self._find()
        return self.found[number]

    def _find(self) -> list[int]:
        decoder = json.JSONDecoder(parse_int=_integer)
        place = self._list(decoder)
        lines: list[int] = []
        line, counted = 1, 0
        for _ in range(self.jobs):
            place = self._next(place)
            line += self.text.count("\n", counted, place)
            counted = place
            lines.append(line)
            _, place = decoder.raw_decode(self.text, place)
        return lines

    def _list(self, decoder: json.JSONDecoder) -> int:
        """Behind the bracket that opens the whole text's own "jobs": it was parsed, and had them."""
        place = self.text.index("{") + 1
        while True:
            key, place = decoder.raw_decode(self.text, self._next(place))
            place = self._next(place)
            if key == "jobs":
                return place + 1
            _, place = decoder.raw_decode(self.text, place)

    def _next(self, place: int) -> int:
        """Where the next value begins."""
        while self.text[place] in BETWEEN:
            place += 1
        return place
