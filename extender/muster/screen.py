"""What `muster top` shows, as rich renderables: the cluster's GPUs as a bar, and a line for each job. Pure.

A line is never wrapped: where the terminal is narrow, columns go, the least telling first, and WHY takes what is
left. In a pipe (`listing`) nothing is cut.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from muster import gangs
from muster.core.reasons.words import duration, plural
from muster.gangs import RUNS, Gang
from muster.screen_columns import COLOURS, job_lines

BAR = 30
"""Letters of the bar at most."""
HEAD = 5
"""Lines above the jobs: title, GPUs, jobs, a blank, the columns' names. One below is kept for what is not shown."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """GPUs that nodes offer, and how many nodes; cordoned ones are counted in both."""

    gpus: int
    nodes: int
    cordoned: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read. at: Unix s of the reading; capacity: None where the reader may not list nodes (or has not yet).

    everywhere: whether all namespaces were read. trouble: why the newest reading failed, "" where it did not.
    """

    gangs: Sequence[Gang] = ()
    capacity: Capacity | None = None
    at: float = 0.0
    everywhere: bool = False
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """How it is looked at: one namespace ("" = all), a key of SORTS, the first job shown, s between readings."""

    namespace: str
    sort: str = "state"
    first: int = 0
    interval: float = 2.0
    keys: bool = True


def _end(gang: Gang) -> float:
    end = gangs.seconds(gangs.status(gang).get("expectedEnd"))
    return math.inf if end is None else end


def _ranked(gang: Gang) -> tuple[int, ...]:
    state = gangs.state(gang)
    rank = 0 if state in RUNS else list(COLOURS).index(state) if state in COLOURS else 99
    return (rank,)


SORTS: Mapping[str, Callable[[Gang], tuple[object, ...]]] = {
    "state": _ranked,
    "name": lambda g: (gangs.namespace(g), gangs.job(g)),
    "share": lambda g: (-(found.now if (found := gangs.share(g)) else 0),),
    "gpus": lambda g: (-gangs.number(g, "gpus") if gangs.state(g) in RUNS else 1.0,),
    "speed": lambda g: (-_speed(g),),
    "progress": lambda g: (-(gangs.progress(g) or 0.0),),
    "end": lambda g: (_end(g),),
    "age": lambda g: (str(gangs.part(g, "metadata").get("creationTimestamp", "")),),
}
"""By what jobs can be sorted: most first, end and age by time. Ties by priority, submission and name."""


def _speed(gang: Gang) -> float:
    try:
        return float(gangs.text(gang, "speed").removesuffix("/s"))
    except ValueError:
        return 0.0


def listed(seen: Seen, look: Look) -> list[Gang]:
    """The jobs of the namespace that is looked at, sorted; those that are over come last."""
    key = SORTS[look.sort]
    found = [g for g in seen.gangs if look.namespace in ("", gangs.namespace(g))]
    return sorted(found, key=lambda g: (gangs.state(g) == "Finished", key(g), gangs.order(g)))


# ---- columns ----


# ---- the whole ----


def listing(seen: Seen, look: Look, now: float) -> Group:
    """For `--once` and pipes: two lines on the cluster, then all jobs, uncut."""
    jobs = listed(seen, look)
    if not jobs:
        return Group(_gpus(seen, look, 0), _jobs(jobs, now), Text(_nothing(look)))
    return Group(_gpus(seen, look, 0), _jobs(jobs, now), Text(), *job_lines(jobs, now, not look.namespace, 0))


def picture(seen: Seen, look: Look, now: float, width: int, height: int) -> Group:
    """For a terminal of width x height letters: exactly as high as it is, or less."""
    jobs = listed(seen, look)
    room = max(1, height - HEAD - 1)
    first = clipped(look.first, len(jobs), height)
    shown = jobs[first : first + room]
    lines = [_title(seen, look, now, width), _gpus(seen, look, width), _jobs(jobs, now), Text()]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    if not jobs:
        return Group(*lines, Text(_nothing(look) if seen.at else "reading ..."))
    more = []
    if first:
        more.append(f"{first} above")
    if first + room < len(jobs):
        more.append(f"{len(jobs) - first - room} below")
    foot = [Text(", ".join(more), "dim")] if more else []
    return Group(*lines, *job_lines(shown, now, not look.namespace, width), *foot)


def clipped(first: int, count: int, height: int) -> int:
    """The first job shown, so that a screen of that height has no empty lines while there are jobs."""
    return max(0, min(first, count - max(1, height - HEAD - 1)))


def _title(seen: Seen, look: Look, now: float, width: int) -> Text:
    where = f"namespace {look.namespace}" if look.namespace else "all namespaces"
    title = Text.assemble(("muster top", "bold"), f"  {where}  ", (f"sorted by {look.sort}", "dim"))
    if seen.trouble:
        age = f"this was read {duration(now - seen.at)} ago: " if seen.at else ""
        title.append(f"  {age}{seen.trouble}", "bold red")
        return title
    right = f"{datetime.fromtimestamp(now, UTC):%H:%M:%S}Z, every {look.interval:g}s"
    if look.keys:
        right = f"q quit  s sort  a all namespaces  ↑↓ scroll   {right}"
    pad = width - cell_len(title.plain) - cell_len(right)
    if pad >= 2:
        title.append(" " * pad + right, "dim")
    return title


def _gpus(seen: Seen, look: Look, width: int) -> Text:
    """The cluster's GPUs: granted to the jobs shown, to others, and the rest."""
    mine = others = 0
    for gang in seen.gangs:
        if gangs.state(gang) in RUNS:
            gpus = int(gangs.number(gang, "gpus"))
            if look.namespace in ("", gangs.namespace(gang)):
                mine += gpus
            else:
                others += gpus
    line = Text.assemble(("GPUs  ", "bold"))
    words = f"{mine} granted"
    if look.namespace:
        words += f" in {look.namespace}"
        words += (
            f", {others} to other namespaces" if seen.everywhere else " (you may not read other namespaces)"
        )
    capacity = seen.capacity
    if capacity is None:
        return line.append(f"{words}; you may not read nodes" if seen.at else "")
    rest = max(0, capacity.gpus - mine - others)
    total = max(1, capacity.gpus, mine + others)
    letters = min(BAR, width // 4) if width else 0
    if letters:
        first = min(letters, math.ceil(letters * mine / total))
        second = min(letters - first, round(letters * others / total))
        line.append("█" * first, "green").append("█" * second, "blue")
        line.append("░" * (letters - first - second), "bright_black").append("  ")
    free = "not granted by Muster" if seen.everywhere or not look.namespace else "other"
    line.append(f"{words}, {rest} {free}; {capacity.gpus} on {plural(capacity.nodes, 'node')}")
    if capacity.cordoned:
        line.append(f" ({capacity.cordoned} cordoned)", "yellow")
    return line


def _jobs(jobs: Sequence[Gang], now: float) -> Text:
    """How many are in which state, and how long the first of the queue has waited."""
    states = Counter(gangs.state(gang) for gang in jobs)
    words = [f"{states[state]} {state.lower()}" for state in COLOURS if states[state]]
    if in_place := sum(gangs.in_place(gang) for gang in jobs):
        words.append(f"{in_place} of them in place")
    line = Text.assemble(("Jobs  ", "bold"), ", ".join(words) or "none")
    waiting = [gangs.seconds(gangs.status(g).get("submitted")) for g in jobs if gangs.state(g) == "Waiting"]
    since = [at for at in waiting if at is not None]
    if since:
        line.append(f"; the longest waits {duration(now - min(since))}")
    return line


def _nothing(look: Look) -> str:
    where = f"in namespace {look.namespace} (-A shows all)" if look.namespace else "in any namespace"
    return f"no job of Muster {where}; a job is one whose pods have schedulerName: muster"
