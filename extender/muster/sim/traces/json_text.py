"""A JSON text as it was written: on which lines its jobs stand, which the parser does not tell."""

from __future__ import annotations

import json

BETWEEN = " \t\r\n,:"


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
        decoder = json.JSONDecoder()
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
