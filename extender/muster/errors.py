"""What can go wrong, by whose fault it is.

    MusterError
    ├── UsageError          the caller's: a command line or a request that can't be understood (exit 2, HTTP 400)
    ├── ConfigurationError  the platform team's: names the field, what is allowed, what was found
    ├── InputError          the job owner's: an annotation or an owner that contradicts itself; ends as Invalid
    ├── ClusterError        the API server's or the network's: worth another try
    │   └── NoAnswerError   nothing came back: the network's, or the server is away
    └── InvariantError      ours: tells the story so far

"Does not fit" is none of these: it is a `Status` with a reason (style rule 6).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MusterError(Exception):
    """Every error that Muster raises on purpose."""


class UsageError(MusterError):
    """A command line or request that can't be understood."""


class ConfigurationError(MusterError):
    """A configuration that can't be used; the message names field, expectation and finding."""


class InputError(MusterError):
    """A pod or owner whose annotations can't be used; the message names annotation, expectation, finding."""


class ClusterError(MusterError):
    """The API server refused or did not answer.

    `status` is the HTTP status, 0 where no answer came.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NoAnswerError(ClusterError):
    """No answer came from the API server at `host`, a URL."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


class InvariantError(MusterError):
    """Muster contradicted itself; the message tells the story so far."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'afs-l'?" where something known is like the word, else ""."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
