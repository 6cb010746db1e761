"""The columns of `muster top`: what a cell of each says of a gang, and which stay where a terminal is narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from muster import gangs
from muster.core.reasons.words import duration
from muster.gangs import RUNS, Gang
from muster.types import BEHIND, NEVER

RECENT = 60.0
"""Seconds for which an arrow shows that a share changed."""

LEAST_WHY, PART_WHY = 50, 0.45
"""Letters that WHY has at least, or the part of a narrow terminal; before it has fewer another column goes."""

GAP = 2

COLOURS = {
    "Running": "green",
    "Resizing": "yellow",
    "Starting": "yellow",
    "Waiting": "cyan",
    "Incomplete": "magenta",
    "Invalid": "red",
    "Suspended": "dim",
    "Finished": "dim",
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: what it says of a job. place: the lower, the longer it stays when the terminal is narrow; waits:
    it is left out where no job waits."""

    name: str
    cell: Callable[[Gang, float], Text]
    place: int
    right: bool = False
    waits: bool = False


def _state_cell(gang: Gang, now: float) -> Text:  # noqa: ARG001
    state = gangs.state(gang)
    return Text(state, COLOURS.get(state, ""))


def _share_cell(gang: Gang, now: float) -> Text:
    share = gangs.share(gang)
    if share is None:
        return Text(gangs.text(gang, "replicas"))
    cell = Text(str(share))
    changes = gangs.shares(gang)[-2:]
    if len(changes) == 2 and now - changes[1][0] < RECENT and gangs.state(gang) in RUNS:
        up = changes[1][1] > changes[0][1]
        cell.append(" ▲" if up else " ▼", "bold green" if up else "bold yellow")
    return cell


def _gpus_cell(gang: Gang, now: float) -> Text:  # noqa: ARG001
    gpus = gangs.text(gang, "gpus")
    return Text(gpus) if gangs.state(gang) in RUNS else Text(f"({gpus})" if gpus else "", "dim")


def _progress_cell(gang: Gang, now: float) -> Text:  # noqa: ARG001
    part = gangs.progress(gang)
    if part is None:
        return Text("")
    full = round(8 * min(1.0, max(0.0, part)))
    return Text.assemble(
        ("━" * full, "green"), ("━" * (8 - full), "bright_black"), f" {gangs.text(gang, 'progress'):>4}"
    )


def _left_cell(gang: Gang, now: float) -> Text:
    left = gangs.remaining(gang, now)
    return Text("" if left is None or gangs.state(gang) not in RUNS else duration(left))


def _end_cell(gang: Gang, now: float) -> Text:  # noqa: ARG001
    return Text(gangs.text(gang, "end") if gangs.state(gang) in RUNS else "")


def _age_cell(gang: Gang, now: float) -> Text:
    return Text(gangs.ago(gangs.part(gang, "metadata").get("creationTimestamp"), now))


def _position_cell(gang: Gang, now: float) -> Text:  # noqa: ARG001
    return Text(gangs.text(gang, "position"))


def _start_cell(gang: Gang, now: float) -> Text:
    return Text("never" if gangs.text(gang, "expected") == NEVER else gangs.start(gang, now))


def _turn(gang: Gang, now: float) -> Iterator[str]:
    """What it waits for, what is free of that, who has the rest, and when it may start and how sure that is."""
    told = (gangs.message(gang), gangs.text(gang, "fits"), gangs.text(gang, "blocker"))
    yield from filter(None, told)
    start, expected = gangs.start(gang, now), gangs.text(gang, "expected")
    if start:
        yield f"expected start {start}, {expected}"
    elif expected and expected != BEHIND:  # which the message says
        yield f"expected start {expected}"


def _why_cell(gang: Gang, now: float) -> Text:
    """Of a job that runs why it has its share, of one in place which GPUs they are, of others what it waits for."""
    if gangs.state(gang) == "Waiting":
        return Text("; ".join(_turn(gang, now)))
    runs = gangs.state(gang) in RUNS
    found = (runs and gangs.text(gang, "shareReason")) or gangs.message(gang)
    if gangs.in_place(gang) and found != gangs.message(gang):
        found = f"{gangs.message(gang)}; {found}"
    keeps = gangs.text(gang, "keeps") if runs else ""
    return Text(found if not keeps or keeps in found else f"{found}; can't resize: {keeps}")


def _plain(read: Callable[[Gang], str]) -> Callable[[Gang, float], Text]:
    return lambda gang, now: Text(read(gang))  # noqa: ARG005


COLUMNS = (
    _Column("NAMESPACE", _plain(gangs.namespace), 4),
    _Column("NAME", _plain(gangs.job), 0),
    _Column("STATE", _state_cell, 1),
    _Column("SHARE", _share_cell, 0),
    _Column("GPUS", _gpus_cell, 2, right=True),
    _Column("POS", _position_cell, 3, right=True, waits=True),
    _Column("START", _start_cell, 5, right=True, waits=True),
    _Column("SPEED", _plain(lambda g: gangs.text(g, "speed")), 6, right=True),
    _Column("PROGRESS", _progress_cell, 7),
    _Column("LEFT", _left_cell, 8, right=True),
    _Column("END", _end_cell, 11, right=True),
    _Column("AGE", _age_cell, 10, right=True),
    _Column("RESIZES", _plain(lambda g: gangs.text(g, "resizes")), 9, right=True),
)

WHY = _Column("WHY", _why_cell, 0)


def job_lines(jobs: Sequence[Gang], now: float, everywhere: bool, width: int) -> list[Text]:
    """The columns' names, and a line for each job. width: letters that a line may have; 0 = any."""
    waits = any(gangs.state(gang) == "Waiting" for gang in jobs)
    columns = [
        column
        for column in COLUMNS
        if (everywhere or column.name != "NAMESPACE") and (waits or not column.waits)
    ]
    cells = {column.name: [column.cell(gang, now) for gang in jobs] for column in columns}
    widths = {name: max([len(name), *(cell.cell_len for cell in found)]) for name, found in cells.items()}
    if width:
        widths["NAME"] = min(widths["NAME"], max(8, width // 3))
    while width:
        last = max(columns, key=lambda column: column.place)
        rest = width - sum(widths[c.name] + GAP for c in columns)
        if not last.place or rest >= min(LEAST_WHY, PART_WHY * width):
            break
        columns.remove(last)
    head = [Text(column.name, "bold") for column in columns]
    lines = [_line(columns, widths, head, Text(WHY.name, "bold"), width)]
    for row, gang in enumerate(jobs):
        line = _line(columns, widths, [cells[c.name][row] for c in columns], WHY.cell(gang, now), width)
        if gangs.state(gang) == "Finished":
            line.stylize("dim")
        lines.append(line)
    return lines


def _line(
    columns: Sequence[_Column], widths: Mapping[str, int], cells: Sequence[Text], why: Text, width: int
) -> Text:
    line = Text(no_wrap=True)
    for column, cell in zip(columns, cells, strict=True):
        cell.truncate(widths[column.name], overflow="ellipsis")
        cell.align("right" if column.right else "left", widths[column.name])
        line.append_text(cell).append(" " * GAP)
    line.append_text(why)
    if width:
        line.truncate(width, overflow="ellipsis")
    return line
