"""A trace as text, and its rows: what every format shares. `.gz` is known by its first bytes, not by its name.

Two kinds of trouble: a file that can't be read as a trace at all is an UnreadableError with line and reason (exit 2);
a single bad line of a good trace is a `Problem`: line, reason, and that the job was left out.
"""

from __future__ import annotations

import csv
import io
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from muster.core.bounds import REPLICAS, WORK, Bound, shown
from muster.errors import UsageError
from muster.sim.submission import Submission
from muster.sim.workload import Problem

GZIP = b"\x1f\x8b"
LEFT_OUT = "left out"


class UnreadableError(UsageError):
    """A file that is no trace (or no models): path, line, reason."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}" if line else f"{path}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user gave beside the trace.

    path: the trace's. models: file or folder of models, None = to be looked for beside the trace. draw: seed with
    which models are drawn for jobs that name none, None = they stay linear. cluster: only jobs of this virtual
    cluster, "" = all. gpus: what the simulated cluster has; a job that asks for more is left out (0 = any).
    """

    path: Path
    models: Path | None = None
    draw: int | None = None
    cluster: str = ""
    gpus: int = 0


Row = tuple[int, Sequence[str]]
"""Line number (from 1) and fields."""


def read_bytes(path: Path) -> bytes:
    """The whole file, unpacked where it is gzip. Raises UnreadableError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UnreadableError(path, 0, f"can't be read: {error.strerror or error}") from error
    return _unpacked(path, raw) if raw.startswith(GZIP) else raw


def read_text(path: Path) -> str:
    """The same as text. Raises UnreadableError with the line that is not UTF-8."""
    raw = read_bytes(path)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UnreadableError(path, line, f"is not UTF-8 text (byte {raw[error.start]:#04x})") from error


def _unpacked(path: Path, raw: bytes) -> bytes:
    """Every member of a gzip file; a file that was cut off is told with the line at which it ends."""
    parts: list[bytes] = []
    while raw:
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(raw))
        except zlib.error as error:
            line = sum(part.count(b"\n") for part in parts) + 1
            raise UnreadableError(path, line, f"broken gzip data: {error}") from error
        if not member.eof:
            line = sum(part.count(b"\n") for part in parts) + 1
            raise UnreadableError(path, line, "the gzip data ends in the middle: the file was cut off")
        raw = member.unused_data
        if not raw.startswith(GZIP):  # padding, as tapes and some servers append it
            break
    return b"".join(parts)


def table(text: str, delimiter: str = ",") -> Iterator[Row]:
    """Rows that are not empty, with their line numbers."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    for row in lines:
        if row:
            yield lines.line_num, row


def columns(path: Path, header: Row, needed: Sequence[str]) -> list[int]:
    """Where the needed columns are. Raises UnreadableError naming the one that is missing."""
    line, names = header
    stripped = [name.strip() for name in names]
    for name in needed:
        if name not in stripped:
            raise UnreadableError(path, line, f"column {name} is missing; found: {', '.join(stripped)}")
    return [stripped.index(name) for name in needed]


def collect(
    asked: Asked, rows: Iterable[Row], width: int, build: Callable[[Sequence[str]], Submission]
) -> tuple[list[Submission], list[Problem]]:
    """Every row through `build`; one that it refuses (ValueError) or that is too short becomes a Problem.

    Jobs come back by submission, ties in the trace's order. Raises UnreadableError where no line is a job.
    """
    submissions: list[Submission] = []
    problems: list[Problem] = []
    path, most = asked.path, asked.gpus or 1 << 62
    line = 0
    try:
        for line, row in rows:
            try:
                if len(row) < width:
                    raise ValueError(f"{len(row)} fields, {width} are needed")
                job = build(row)
                if job.request > most or job.roles:
                    fits(job, most)
                submissions.append(job)
            except ValueError as error:
                problems.append(Problem(line, str(error), LEFT_OUT))
    except csv.Error as error:
        raise UnreadableError(path, line + 1, str(error)) from error
    return tidy(path, submissions, problems)


def tidy(
    path: Path, submissions: list[Submission], problems: list[Problem]
) -> tuple[list[Submission], list[Problem]]:
    """By submission, each name once. Raises UnreadableError where there is no job."""
    if not submissions:
        if problems:
            raise UnreadableError(
                path, problems[0].line, f"{problems[0].what} (and no other line is a job that can be run)"
            )
        raise UnreadableError(path, 1, "there is no job in it")
    if len({s.name for s in submissions}) < len(submissions):
        submissions = _renamed(submissions, problems)
    submissions.sort(key=lambda s: s.submitted)
    return submissions, problems


def _renamed(submissions: list[Submission], problems: list[Problem]) -> list[Submission]:
    """The second job of a name gets a number behind it: results are told apart by name."""
    taken = {s.name for s in submissions}
    seen: Counter[str] = Counter()
    result = []
    for job in submissions:
        seen[job.name] += 1
        if seen[job.name] > 1:
            number = seen[job.name]
            while f"{job.name}-{number}" in taken:
                number += 1
            new = f"{job.name}-{number}"
            taken.add(new)
            problems.append(Problem(0, f"the job name {job.name!r} is used twice", f"called {new!r}"))
            job = replace(job, name=new)
        result.append(job)
    return result


# ---- fields ----


def number(text: str, column: str) -> float:
    """A finite number. ValueError names the column."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(
            f"{column} is missing" if not text.strip() else _not(text, column, "a number")
        ) from None
    if not math.isfinite(value):
        raise ValueError(_not(text, column, "a finite number"))
    return value


def moment(text: str, column: str) -> float:
    """A time since the trace's start (s): 0 or more."""
    value = number(text, column)
    if value < 0:
        raise ValueError(_not(text, column, "0 or more"))
    return within(value, text, column)


def amount(text: str, column: str) -> float:
    """A work: above 0."""
    value = number(text, column)
    if value <= 0:
        raise ValueError(_not(text, column, "above 0"))
    return value


def duration(text: str, column: str) -> float:
    """Seconds that a job takes: above 0."""
    return within(amount(text, column), text, column)


def within(seconds: float, text: str, column: str) -> float:
    """The seconds that a text comes to. ValueError where they are more than any training takes."""
    if seconds > WORK.most:
        raise ValueError(_not(text, column, f"at most {WORK.most:g} s"))
    return seconds


def whole(text: str, column: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        plain = number(text, column)
        value = int(plain)
        if value != plain:
            raise ValueError(_not(text, column, "a whole number")) from None
        return value


def count(text: str, column: str, most: Bound = REPLICAS) -> int:
    """A whole number from 1 on, of replicas where no other bound is given."""
    value = whole(text, column)
    if value < 1:
        raise ValueError(_not(text, column, "1 or more"))
    if value > most.most:
        raise ValueError(_not(text, column, str(most)))
    return value


def fits(job: Submission, gpus: int) -> None:
    """ValueError where the job asks for more GPUs than there are: no profile could ever run it as asked."""
    asks = sum(role.min * role.gpus for role in job.roles) if job.roles else job.request
    if asks > gpus:
        raise ValueError(f"asks for {asks} GPUs, the cluster has {gpus}")


def known(name: str, models: Sequence[str]) -> str:
    """The name of a model that there is."""
    if name not in models:
        some = ", ".join(sorted(models)[:12])
        raise ValueError(f"model {name!r} is not known; the models are: {some}")
    return name


def _not(text: str, column: str, allowed: str) -> str:
    return f"{column} must be {allowed}; found {shown(text.strip())}"
