"""What `muster explain JOB [--story]` prints: one job's Gang object in words, read with the caller's own rights.

All of it stands in that one Gang, its place in the whole queue too.
"""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster import gangs
from muster.core.bounds import calendar
from muster.core.reasons.shares import percent
from muster.core.reasons.words import duration, plural
from muster.errors import MusterError
from muster.gangs import Gang
from muster.types import BEHIND

WIDTH = 110
"""Columns of the output, whatever the terminal: the same text in a pipe."""
SHOWN = 20
"""Replicas of the placement that are listed; a gang may have 1,000."""
CHANGES = 8
"""Changes of the share that are listed, the newest."""


class NoSuchJobError(MusterError):
    """No Gang of that name that the caller may read; the message suggests close ones."""


def render(found: Sequence[Gang], namespace: str, name: str, now: float) -> str:
    """The text for one job, ending in a newline.

    found: Gang objects as the API lists them. name: the job's, or its Gang's. now: Unix seconds, for ages.
    Raises NoSuchJobError.
    """
    gang = _find(found, namespace, name)
    out = _console()
    for label, text in [
        ("Job", f"{namespace}/{gangs.job(gang)}"),
        *_standing(gang, now),
        *_share(gang, now),
        *_course(gang, now),
    ]:
        out.print(_line(label, text))
    _print_speeds(out, gang)
    _print_roles(out, gang)
    _print_placement(out, gang)
    return _printed(out)


def story(found: Sequence[Gang], namespace: str, name: str, now: float) -> str:
    """How one job came to its state: its last transitions, oldest first. Arguments and errors as `render`'s."""
    gang = _find(found, namespace, name)
    out = _console()
    for label, text in [("Job", f"{namespace}/{gangs.job(gang)}"), *_state(gang, now)]:
        out.print(_line(label, text))
    out.print()
    steps = gangs.story(gang)
    if steps:
        table = Table(box=None, pad_edge=False)
        for column in ("TIME", "AGO", "EVENT", "STATE"):
            table.add_column(column, no_wrap=True)
        table.add_column("CAUSE", overflow="fold")
        for step in steps:
            at = float(step["at"])
            when = calendar(at)
            table.add_row(
                "" if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ"),
                duration(now - at),
                *(Text(str(step.get(field) or "")) for field in ("event", "state", "cause")),
            )
        out.print(table)
    else:
        out.print("muster has not written its story yet")
    return _printed(out)


def _console() -> Console:
    return Console(
        file=io.StringIO(), width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False
    )


def _printed(out: Console) -> str:
    stream = out.file
    assert isinstance(stream, io.StringIO)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


Lines = list[tuple[str, str]]


def _standing(gang: Gang, now: float) -> Lines:
    """State, reason and message; of a waiting job its turn."""
    return [*_state(gang, now), *(_turn(gang, now) if gangs.state(gang) == "Waiting" else ())]


def _turn(gang: Gang, now: float) -> Lines:
    """Place in the queue, what fits of what it needs, who has it, and when it may start."""
    position, expected = int(gangs.number(gang, "position")), gangs.text(gang, "expected")
    lines: Lines = []
    if position:
        lines.append(("Position", f"{position} in the queue"))
    elif expected == BEHIND:
        lines.append(("Position", f"{BEHIND} of the queue"))
    lines += [
        (label, gangs.text(gang, field))
        for label, field in (("Free", "fits"), ("Blocker", "blocker"))
        if gangs.text(gang, field)
    ]
    if when := gangs.start(gang, now):
        lines.append(("Expected", f"{_second(gangs.text(gang, 'expectedStart'))} ({when}), {expected}"))
    elif expected and expected != BEHIND:
        lines.append(("Expected", expected))
    elif position:
        lines.append(("Expected", "not known yet: the queue is played forward every few seconds"))
    return lines


def _state(gang: Gang, now: float) -> Lines:
    state, reason = gangs.state(gang), gangs.reason(gang)
    age = gangs.ago(gangs.status(gang).get("since"), now)
    return [
        ("State", f"{state} for {age}" if age else state),
        *([("Reason", reason)] if reason and reason != "Ok" else []),
        ("Message", gangs.message(gang) or "muster has not written one yet"),
    ]


def _share(gang: Gang, now: float) -> Lines:
    """How many replicas it is granted, why, and what changing that costs."""
    lines: Lines = []
    share = gangs.share(gang)
    if share is not None and share.min == share.max:
        lines.append(("Share", f"{share.now} of {plural(share.max, _unit(gang))}: its size is fixed"))
    elif share is not None:
        lines.append(("Share", f"{plural(share.now, _unit(gang))}; it may have {share.min} to {share.max}"))
    for label, field in (("Why", "shareReason"), ("Blocked", "keeps")):
        if gangs.text(gang, field):
            lines.append((label, gangs.text(gang, field)))
    resizes, cost = int(gangs.number(gang, "resizes")), gangs.number(gang, "resizeCost")
    if resizes or cost:
        each = (
            f"; one costs it {_seconds(cost)}, as measured" if cost else "; what one costs was not measured"
        )
        lines.append(("Resizes", f"{resizes}{each}"))
    changes = gangs.shares(gang)[-CHANGES:]
    if len(changes) > 1:
        counts = " -> ".join(str(count) for _, count in changes)
        lines.append(("Changes", f"{counts} replicas, the last {duration(now - changes[-1][0])} ago"))
    return lines


def _unit(gang: Gang) -> str:
    """What its share counts: GPUs of a job in place, which has one pod."""
    return "GPU" if gangs.in_place(gang) else "replica"


def _course(gang: Gang, now: float) -> Lines:
    """How far it is, and its dates and sizes."""
    status, state = gangs.status(gang), gangs.state(gang)
    lines = [
        (label, gangs.text(gang, field))
        for label, field in (("Speed", "speed"), ("Progress", "progress"))
        if gangs.text(gang, field)
    ]
    left = gangs.remaining(gang, now)
    if left is not None and not status.get("ended"):
        lines.append(("Remaining", f"{duration(left)} at this share"))
        lines.append(("Ends", f"{_second(status['expectedEnd'])} (if nothing changes)"))
    for label, field in (("Submitted", "submitted"), ("Started", "started"), ("Ended", "ended")):
        if status.get(field):
            lines.append((label, f"{_second(status[field])} ({gangs.ago(status[field], now)} ago)"))
    lines.append(("Priority", str(status.get("priority", 0))))
    if status.get("gpus") is not None:
        lines.append(("GPUs", f"{status['gpus']} {'asked for' if state in gangs.WAITS else 'granted'}"))
    owner = gangs.part(gangs.part(gang, "spec"), "owner")
    if owner.get("kind"):
        lines.append(("Owner", f"{owner['kind']} {owner.get('name', '')}"))
    return lines


def _second(time: object) -> str:
    """A time without the parts of a second, which tell a reader nothing."""
    return re.sub(r"\.\d+", "", str(time))


def _seconds(time: float) -> str:
    return f"{time:.1f}s" if time < 10 else duration(time)


def _print_speeds(out: Console, gang: Gang) -> None:
    """What was measured at each number of replicas: the gain over the row before, and what a replica still gives
    of what it gave in the first row. A star is at what it has now."""
    speeds = gangs.speeds(gang)
    if not speeds:
        return
    share = gangs.share(gang)
    table = Table(box=None, pad_edge=False)
    for column in ("REPLICAS", "SPEED", "GAIN", "A REPLICA"):
        table.add_column(column, justify="right")
    before = 0.0
    least = next(iter(speeds))
    for count, speed in speeds.items():
        mark = "*" if share is not None and count == share.now else ""
        gain = ""
        if before > 0.0:
            gain = (
                f"+{percent(speed / before - 1.0)}"
                if speed >= before
                else f"-{round(100 - 100 * speed / before)} %"
            )
        each = speed / count / (speeds[least] / least) if speeds[least] > 0.0 and count and least else 0.0
        table.add_row(f"{mark}{count}", f"{speed:.3g}/s", gain, f"{100 * each:.0f} %" if each else "")
        before = speed
    out.print()
    out.print(table)


def _print_roles(out: Console, gang: Gang) -> None:
    roles = gangs.part(gangs.status(gang), "roles")
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


def _print_placement(out: Console, gang: Gang) -> None:
    placement = gangs.status(gang).get("placement") or []
    if not placement:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("REPLICA", "ROLE", "NODE"):
        table.add_column(column)
    for spot in placement[:SHOWN]:
        table.add_row(spot.get("pod") or "(not created yet)", spot.get("role", ""), spot.get("node", ""))
    out.print()
    if gangs.text(gang, "mode") == "scored":
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


# ---- finding ----


def _find(found: Sequence[Gang], namespace: str, name: str) -> Gang:
    """The newest Gang of the job; by the job's name first, then the object's, then its owner's alone."""
    here = [g for g in found if gangs.namespace(g) == namespace]
    for named in (gangs.job, gangs.name, gangs.owner_name):
        same = [g for g in here if named(g) == name]
        if same:
            return max(same, key=lambda g: str(gangs.part(g, "metadata").get("creationTimestamp", "")))
    raise NoSuchJobError(_not_found(found, here, namespace, name))


def _not_found(found: Sequence[Gang], here: Sequence[Gang], namespace: str, name: str) -> str:
    text = f"no job {name!r} in namespace {namespace}"
    elsewhere = {gangs.namespace(g) for g in found if gangs.job(g) == name} - {namespace}
    if elsewhere:
        return f"{text}; there is one in: {', '.join(sorted(elsewhere))} (use -n)"
    names = sorted({gangs.job(g) for g in here})
    inside = [n for n in names if name in n or n in name]
    close = list(dict.fromkeys([*difflib.get_close_matches(name, names), *inside]))[:3]
    if close:
        return f"{text}; did you mean: {', '.join(close)}?"
    if names:
        return f"{text}; {plural(len(names), 'job')} there, see: kubectl get gangs -n {namespace}"
    return f"{text}; it has no jobs of Muster (does the pod have schedulerName: muster?)"
