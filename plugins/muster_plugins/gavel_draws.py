"""The random numbers of Gavel's simulator: Python's own, kept as how many 32-bit words of a seed have been read.

A policy is a pure function of the snapshot; what it has drawn before stands in the jobs' memory as one number.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


class Draws:
    """From where they were last left: `read` words on."""

    def __init__(self, seed: int, read: int) -> None:
        self.read = read
        self._words = random.Random(seed)
        for _ in range(read):
            self._words.getrandbits(32)

    def below(self, count: int) -> int:
        """0 to count - 1, as `random.Random.randrange`: bits are drawn until they are small enough."""
        bits = count.bit_length()
        while True:
            self.read += 1
            value = self._words.getrandbits(bits)
            if value < count:
                return value

    def shuffled(self, names: Sequence[str]) -> list[str]:
        """In another order, as `random.Random.shuffle`."""
        result = list(names)
        for last in range(len(result) - 1, 0, -1):
            other = self.below(last + 1)
            result[last], result[other] = result[other], result[last]
        return result
