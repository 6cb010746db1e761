"""One figure of a paper (or of its authors' code) and how it is measured here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_type_hints

Expect = Literal["within", "at least", "at most", "sign", "inside"]
Basis = Literal["", "paper", "direction", "authors", "own"]
BASES: dict[Basis, tuple[str, str]] = {
    "paper": ("P", "target: the paper prints it, or what it is worked out from"),
    "direction": (
        "D",
        "target: which way the paper's words or its figures without numbers point, and no number",
    ),
    "authors": ("A", "target: the authors' code, data or artifact; the paper does not print it"),
    "own": ("O", "target: our own bound"),
}
"""Where a target comes from: the letter behind it on the page, and what that says. "" only where there is none."""
NOT_CLAIMED = "holds, not claimed"
"""Of a target that lies in a range, or was met with something chosen when the result was known: it is no met one."""
FREE = re.compile(r"\b(free|assumed|drawn)\b")
ONE = "one value, since "
"""What the source of a figure says, with the reason, that has something free behind it and no range over it."""


@dataclass(frozen=True)
class Range:
    """What came out over draws, or over the values that a free constant may have: mean (or headline), least, most."""

    value: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Range:
        """The mean of draws, between their least and their most."""
        return Range(math.fsum(values) / len(values), min(values), max(values))

    @staticmethod
    def first(values: Sequence[float]) -> Range:
        """The first, which is the headline, between the least and the most."""
        return Range(values[0], min(values), max(values))


@dataclass(frozen=True)
class Entry:
    """A target and its measurement.

    target: None = there is none, the result is only shown. tolerance: relative to the target (0.02 = 2 %). why: the
    reason for the tolerance, or why the target is missed. expect: "within" the tolerance of the target, "at
    least" or "at most" the target (less or more the tolerance), "sign" = on the target's side of 0, "inside" = the
    target lies in the range that was measured; a range meets all but the last only with both its ends. quick:
    seconds at most, so that `make test` and CI run it. claimed: that it is reproduced; the run fails where it is
    missed then, and it counts as met only then. source: where the constants behind the result come from (the paper,
    the authors' data, a measurement, free: then it is a range, or the source says why not: ONE). fitted: constants
    behind it were read off the target, or it only gives back its input, so that it can't be called reproduced; that
    they go together is a check of ours. short: claimed like others of its kind and known to fall short, so that
    neither a miss nor a range that meets it in part fails the run; `why` says so. basis: where the target comes from
    (BASES). detail: what the figure counts, a line each, for the results and not for the page.
    """

    name: str
    target: float | None
    unit: str
    tolerance: float
    why: str
    quick: bool
    measure: Callable[[], float | Range]
    expect: Expect = "within"
    claimed: bool = True
    source: str = ""
    fitted: bool = False
    short: bool = False
    basis: Basis = ""
    detail: Callable[[], Sequence[str]] | None = None

    @property
    def ranged(self) -> bool:
        """Whether it measures a Range, by the annotation of what it calls."""
        return get_type_hints(getattr(self.measure, "func", self.measure)).get("return") is Range

    def met(self, measured: float | Range) -> bool:
        """Whether a result meets the target, with both ends of its range."""
        if not isinstance(measured, Range):
            return self._meets(measured)
        if self.expect == "inside":
            return self.target is None or measured.low <= self.target <= measured.high
        return all(self._meets(result) for result in (measured.value, measured.low, measured.high))

    def in_part(self, measured: float | Range) -> bool:
        """Whether a range does not meet the target whole, but its headline does."""
        return isinstance(measured, Range) and not self.met(measured) and self._meets(measured.value)

    def _meets(self, result: float) -> bool:
        if self.target is None:
            return True
        capacity = abs(self.target) * self.tolerance
        match self.expect:
            case "within":
                return abs(result - self.target) <= capacity
            case "at least":
                return result >= self.target - capacity
            case "at most":
                return result <= self.target + capacity
            case "sign":
                return result * self.target > 0
            case "inside":
                return False  # one number is no range


@dataclass(frozen=True)
class Row:
    """What came out of an entry. result: nan where the measurement failed, and `error` says how. low, high: the range
    over draws or free constants, nan where there is none. in_part: met by the headline and not by the whole range.
    detail: as the entry's, told."""

    paper: str
    name: str
    target: float | None
    unit: str
    tolerance: float
    expect: str
    why: str
    claimed: bool
    result: float
    met: bool
    seconds: float
    error: str = ""
    source: str = ""
    low: float = math.nan
    high: float = math.nan
    fitted: bool = False
    in_part: bool = False
    short: bool = False
    basis: Basis = ""
    detail: tuple[str, ...] = ()

    @property
    def reproduced(self) -> bool:
        """Whether it has a target, meets it, is claimed to, and was not fitted to it."""
        return self.met and self.target is not None and self.claimed and not self.fitted

    @property
    def failed(self) -> bool:
        """What makes the run fail: an error, or a claim that does not hold and is not known to fall short."""
        return bool(self.error) or (self.claimed and not self.met and not self.short)

    @property
    def verdict(self) -> str:
        if self.error:
            return "error"
        if self.target is None:
            return "shown"
        if self.failed:
            return "FAILS"
        if not self.met and not self.in_part:
            return "missed"
        if self.fitted:
            return "by construction"
        return "met" if self.reproduced else NOT_CLAIMED
