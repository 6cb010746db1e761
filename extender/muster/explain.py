"""What `muster explain JOB` prints: one job's Gang object in words, read with the caller's own rights.

The place in the queue is worked out here, from the Gangs that were read: it counts the waiting jobs that the
caller may see, and says so. What the cluster-wide queue looks like only /v1/jobs knows.
"""

from __future__ import annotations

import difflib
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.core.reasons import duration, plural
from muster.errors import MusterError

WIDTH = 110
"""Columns of the output, whatever the terminal: the same text in a pipe."""
SHOWN = 20
"""Replicas of the placement that are listed; a gang may have 1,000."""

NAMED = 3
"""Jobs that are named as holders of GPUs; the others are counted."""
OWN_FAULT = ("NeverFits", "Invalid")
"""Codes of jobs that wait for nobody."""

Gang = Mapping[str, Any]


class NoSuchJobError(MusterError):
    """No Gang of that name that the caller may read; the message suggests close ones."""


def render(gangs: Sequence[Gang], namespace: str, name: str, now: float) -> str:
    """The text for one job, ending in a newline.

    gangs: objects as the API lists them. name: the job's, or its Gang's. now: Unix seconds, for ages.
    Raises NoSuchJobError.
    """
    gang = _find(gangs, namespace, name)
    status = _part(gang, "status")
    out = Console(
        file=io.StringIO(), width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False
    )
    state = status.get("state") or "Unknown"
    age = _ago(status.get("since"), now)
    out.print(_line("Job", f"{namespace}/{_job(gang)}"))
    out.print(_line("State", f"{state} for {age}" if age else state))
    code = status.get("code")
    reason = status.get("reason") or "muster has not written a reason yet"
    out.print(_line("Reason", f"{reason} ({code})" if code and code != "Ok" else reason))
    if state == "Waiting":
        out.print(_line("Position", _position(gangs, gang)))
        holders = _holders(gangs)
        if holders and code not in OWN_FAULT:
            out.print(_line("Held by", holders))
        out.print(_line("Expected", "see eta in GET /v1/jobs; a Gang does not tell how long jobs run"))
    for label, field in (("Submitted", "submitted"), ("Started", "started"), ("Ended", "ended")):
        if status.get(field):
            out.print(_line(label, f"{status[field]} ({_ago(status[field], now)} ago)"))
    out.print(_line("Priority", str(status.get("priority", 0))))
    gpus = status.get("gpus")
    if gpus is not None:
        asked = "asked for" if state in ("Waiting", "Incomplete", "Invalid") else "granted"
        out.print(_line("GPUs", f"{gpus} {asked}"))
    owner = _part(gang, "spec").get("owner") or {}
    if owner.get("kind"):
        out.print(_line("Owner", f"{owner['kind']} {owner.get('name', '')}"))
    _print_roles(out, status)
    _print_placement(out, status)
    stream = out.file
    assert isinstance(stream, io.StringIO)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _print_roles(out: Console, status: Mapping[str, Any]) -> None:
    roles = status.get("roles") or {}
    if not roles:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("ROLE")
    for column in ("MIN", "MAX", "GRANTED", "BOUND"):
        table.add_column(column, justify="right")
    for role in sorted(roles):
        table.add_row(role, *(str(roles[role].get(c, 0)) for c in ("min", "max", "granted", "bound")))
    out.print()
    out.print(table)


def _print_placement(out: Console, status: Mapping[str, Any]) -> None:
    placement = status.get("placement") or []
    if not placement:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("REPLICA", "ROLE", "NODE"):
        table.add_column(column)
    for spot in placement[:SHOWN]:
        table.add_row(spot.get("pod") or "(not created yet)", spot.get("role", ""), spot.get("node", ""))
    out.print()
    if status.get("mode") == "scored":
        out.print("Planned placement; kube-scheduler picks the nodes:")
    out.print(table)
    if len(placement) > SHOWN:
        out.print(f"and {plural(len(placement) - SHOWN, 'more replica')}")


def _line(label: str, text: str) -> Table:
    """A label and its text, wrapped beside it."""
    line = Table.grid(padding=(0, 1))
    line.add_column(width=10)
    line.add_column(overflow="fold")
    line.add_row(Text(f"{label}:"), Text(text))
    return line


# ---- finding and ordering ----


def _find(gangs: Sequence[Gang], namespace: str, name: str) -> Gang:
    """The newest Gang of the job; by the job's name first, then the object's, then its owner's alone."""
    here = [g for g in gangs if _namespace(g) == namespace]
    for named in (_job, _name, _owner_name):
        found = [g for g in here if named(g) == name]
        if found:
            return max(found, key=lambda g: str(_part(g, "metadata").get("creationTimestamp", "")))
    raise NoSuchJobError(_not_found(gangs, here, namespace, name))


def _not_found(gangs: Sequence[Gang], here: Sequence[Gang], namespace: str, name: str) -> str:
    text = f"no job {name!r} in namespace {namespace}"
    elsewhere = sorted({_namespace(g) for g in gangs if _job(g) == name and _namespace(g) != namespace})
    if elsewhere:
        return f"{text}; there is one in: {', '.join(elsewhere)} (use -n)"
    names = sorted({_job(g) for g in here})
    inside = [n for n in names if name in n or n in name]
    close = list(dict.fromkeys([*difflib.get_close_matches(name, names), *inside]))[:3]
    if close:
        return f"{text}; did you mean: {', '.join(close)}?"
    if names:
        return f"{text}; {plural(len(names), 'job')} there, see: kubectl get gangs -n {namespace}"
    return f"{text}; it has no jobs of Muster (does the pod have schedulerName: muster?)"


def _position(gangs: Sequence[Gang], gang: Gang) -> str:
    waiting = sorted((g for g in gangs if _part(g, "status").get("state") == "Waiting"), key=_order)
    place = next(i for i, g in enumerate(waiting, start=1) if g is gang)
    return f"{place} of {plural(len(waiting), 'waiting job')} that you may read"


def _holders(gangs: Sequence[Gang]) -> str:
    """Who has GPUs now, most first, of the jobs that the caller may read; "" where nobody has any."""
    using: list[tuple[int, str]] = []
    for gang in gangs:
        status = _part(gang, "status")
        gpus = int(status.get("gpus") or 0)
        if gpus and status.get("state") in ("Running", "Resizing", "Starting"):
            using.append((gpus, f"{_namespace(gang)}/{_job(gang)}"))
    using.sort(key=lambda one: (-one[0], one[1]))
    words = [f"{name} ({plural(gpus, 'GPU')})" for gpus, name in using[:NAMED]]
    if len(using) > NAMED:
        rest = sum(gpus for gpus, _ in using[NAMED:])
        words.append(f"{plural(len(using) - NAMED, 'more job')} ({plural(rest, 'GPU')})")
    return ", ".join(words)


def _order(gang: Gang) -> tuple[Any, ...]:
    """Priority, submission, then the job's key: the default order of the queue."""
    status, spec = _part(gang, "status"), _part(gang, "spec")
    submitted = _seconds(status.get("submitted"))
    return (
        -int(status.get("priority") or 0),
        float("inf") if submitted is None else submitted,
        _namespace(gang),
        _job(gang),
        str(spec.get("uid", "")),
    )


def _part(gang: Gang, name: str) -> Mapping[str, Any]:
    part = gang.get(name)
    return part if isinstance(part, Mapping) else {}


def _job(gang: Gang) -> str:
    return str(_part(gang, "spec").get("job") or _name(gang))


def _name(gang: Gang) -> str:
    return str(_part(gang, "metadata").get("name", ""))


def _owner_name(gang: Gang) -> str:
    return str((_part(gang, "spec").get("owner") or {}).get("name", ""))


def _namespace(gang: Gang) -> str:
    return str(_part(gang, "metadata").get("namespace", ""))


def _seconds(time: object) -> float | None:
    """Unix seconds of an RFC 3339 time, None where it is none."""
    if not isinstance(time, str):
        return None
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


def _ago(time: object, now: float) -> str:
    seconds = _seconds(time)
    return "" if seconds is None else duration(now - seconds)
