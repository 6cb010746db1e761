"""One figure of a paper (or of its authors' code) and how it is measured here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Expect = Literal["within", "at least", "at most", "sign"]


@dataclass(frozen=True)
class Entry:
    """A target and its measurement.

    target: None = there is none, the result is only shown. tolerance: relative to the target (0.02 = 2 %). why: the
    reason for the tolerance, or why the target is missed. expect: "within" the tolerance of the target, "at
    least" or "at most" the target (less or more the tolerance), "sign" = on the target's side of 0. quick: seconds
    at most, so that `make test` and CI run it. claimed: whether the target is claimed as met; one that is not
    is listed as missed and does not make the run fail.
    """

    name: str
    target: float | None
    unit: str
    tolerance: float
    why: str
    quick: bool
    measure: Callable[[], float]
    expect: Expect = "within"
    claimed: bool = True

    def met(self, result: float) -> bool:
        """Whether a result meets the target."""
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


@dataclass(frozen=True)
class Row:
    """What came out of an entry. result: nan where the measurement failed, and `error` says how."""

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

    @property
    def failed(self) -> bool:
        """What makes the run fail: an error, or a claim that does not hold."""
        return bool(self.error) or (self.claimed and not self.met)

    @property
    def verdict(self) -> str:
        if self.error:
            return "error"
        if self.target is None:
            return "shown"
        if self.met:
            return "met" if self.claimed else "met, listed as missed"
        return "FAILS" if self.claimed else "missed"
