"""`muster replay`: a dumped snapshot through a profile; the plan as a table, beside the plan that was in the dump."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from muster import profiles
from muster.core.cycle import cycle
from muster.core.placement.cycle_state import StumbledError
from muster.core.reasons.words import plural
from muster.core.snapshot_codec import dump, load
from muster.core.views.view import View
from muster.errors import UsageError
from muster.points import Profile
from muster.sim import arguments
from muster.sim.traces.source import read_bytes
from muster.types import Job, JobKey, Plan, Snapshot, State

WIDTH = 130
HOW = "`muster replay --help` says how to take one"
NODES = 4
"""Nodes of a placement that are named; the others are counted."""


def replay(source: str, profile: str | None, as_json: bool, everything: bool) -> str:
    """The text for stdout. Raises UsageError where the dump can't be read."""
    plain = _read(source)
    snapshot, name = load(plain)
    found = arguments.profile(profile) if profile else _own(plain, name)
    plan = _planned(snapshot, found)
    after = json.loads(json.dumps(dump(View(snapshot, plan, found))["plan"]))
    changes = _changes(plain.get("plan") or {}, after)
    if as_json:
        told = {"profile": found.name, "dump_profile": name, "plan": after, "differences": changes}
        return json.dumps(told, indent=2) + "\n"
    return _text(snapshot, plan, found, name, changes, everything)


def _own(plain: Mapping[str, Any], name: str) -> Profile:
    """The profile that was in force, with its parameters and settings."""
    try:
        return profiles.rebuilt(plain["recipe"], name)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise UsageError(f"the snapshot's profile can't be read: {type(error).__name__}: {error}") from error


def _planned(snapshot: Snapshot, profile: Profile) -> Plan:
    try:
        return cycle(snapshot, profile)
    except StumbledError as error:
        raise UsageError(f"the snapshot can't be planned with profile {profile.name}: {error}") from error


def _changes(before: Any, after: Mapping[str, Any]) -> list[dict[str, str]]:
    """The differences to the dump's own plan, as far as it is one."""
    try:
        return differences(before, after)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(f"the snapshot's plan can't be read: {type(error).__name__}: {error}") from error


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, str]]:
    """What each of two dumped plans says of a job where they don't agree: its place in the queue, nodes, reason."""
    ranks = [
        {_key(key): place for place, key in enumerate(plan.get("order") or (), 1)} for plan in (before, after)
    ]
    places = [
        {
            _key(key): _nodes(reservations)
            for key, reservations in _pairs(plan.get("reservations", plan.get("holds")))
            if reservations
        }
        for plan in (before, after)
    ]
    reasons = [
        {_key(key): str(status[1]) for key, status in _pairs(plan.get("statuses"))}
        for plan in (before, after)
    ]
    ended = [_leaving(plan) for plan in (before, after)]
    found = [
        {"job": job, "what": what, "dump": str(old.get(job, "-")), "replay": str(new.get(job, "-"))}
        for what, (old, new) in (
            ("position", ranks),
            ("nodes", places),
            ("reason", reasons),
            ("leaves", ended),
        )
        for job in {*old, *new}
        if old.get(job) != new.get(job)
    ]
    return sorted(found, key=lambda one: (one["job"], one["what"]))


def _read(source: str) -> Mapping[str, Any]:
    raw = read_bytes(Path(source)) if source != "-" else sys.stdin.buffer.read()
    if not raw.strip():
        raise UsageError(f"{source}: is empty: was the answer refused? {HOW}")
    try:
        plain = json.loads(raw)
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, a number of 5000 digits
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"{source}{line}: is no snapshot: {error}") from error
    if not isinstance(plain, dict):
        raise UsageError(f"{source}: is no snapshot: must be an object")
    if "version" not in plain:
        refusal = plain.get("message" if plain.get("kind") == "Status" else "error")
        found = (
            f"an answer that says: {refusal}"
            if isinstance(refusal, str) and refusal
            else f"an object of {', '.join(sorted(plain)[:5])}"
        )
        raise UsageError(f"{source}: is no snapshot but {found}. {HOW}")
    return plain


# ---- words ----


def _text(
    snapshot: Snapshot,
    plan: Plan,
    profile: Profile,
    name: str,
    changes: Sequence[Mapping[str, str]],
    everything: bool,
) -> str:
    out = Console(
        file=io.StringIO(), width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False
    )
    waiting = {key: place for place, key in enumerate(plan.order, 1)}
    other = f" (the dump's own is {name})" if name != profile.name else ""
    out.print(
        f"{plural(len(snapshot.jobs), 'job')}, {plural(len(snapshot.nodes), 'node')}, "
        f"{len(waiting)} waiting; profile {profile.name}{other}, order {profile.order}"
    )
    table = Table(box=None, pad_edge=False)
    for column in ("#", "JOB", "STATE", "REPLICAS", "NODES", "WHY"):
        table.add_column(column, justify="right" if column == "#" else "left", overflow="fold")
    shown = 0
    ordered = [*plan.order, *sorted(key for key in snapshot.jobs if key not in waiting)]
    for key in ordered:
        job, status = snapshot.jobs[key], plan.statuses.get(key)
        quiet = status is not None and status.state is State.RUNNING and not _changed(plan, key)
        if quiet and not everything:
            continue
        shown += 1
        place = str(plan.positions.get(key, ""))
        state = str(status.state) if status else "-"
        table.add_row(place, str(key), state, _replicas(job, plan), _where(job, plan), _why(plan, key))
    out.print()
    out.print(table)
    if shown < len(ordered):
        rest = len(ordered) - shown
        words = "1 job that runs as before" if rest == 1 else f"{rest} jobs that run as before"
        out.print(f"and {words} (--all lists {'it' if rest == 1 else 'them'})")
    for complaint in plan.plugin_errors:
        out.print(f"complaint: {complaint}")
    out.print()
    if not changes:
        out.print("The plan is the one in the dump.")
    else:
        out.print(f"Differs from the plan in the dump in {plural(len(changes), 'point')}:")
        differing = Table(box=None, pad_edge=False)
        for column in ("JOB", "WHAT", "DUMP", "REPLAY"):
            differing.add_column(column, overflow="fold")
        for one in changes:
            differing.add_row(one["job"], one["what"], one["dump"], one["replay"])
        out.print(differing)
    stream = out.file
    assert isinstance(stream, io.StringIO)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _changed(plan: Plan, key: JobKey) -> bool:
    moves = {shrink.job for shrink in plan.shrinks} | {undo.job for undo in plan.unpins}
    return key in moves or key in plan.back or key in plan.preempted or bool(plan.reservations.get(key))


def _replicas(job: Job, plan: Plan) -> str:
    """What runs, what is to come, what is to leave."""
    bound = sum(role.bound for role in job.roles)
    most = sum(role.max for role in job.roles)
    come = len(plan.reservations.get(job.key, ())) + len(plan.later.get(job.key, ()))
    leave = sum(1 for shrink in plan.shrinks if shrink.job == job.key)
    change = (f" +{come}" if come else "") + (f" -{leave}" if leave else "")
    return f"{bound}{change} of {most}"


def _where(job: Job, plan: Plan) -> str:
    """Planned nodes of what is not bound, else those it runs on."""
    planned = [
        reservation.node
        for reservation in (*plan.reservations.get(job.key, ()), *plan.later.get(job.key, ()))
    ]
    nodes = planned or [m.node for role in job.roles for m in role.members if m.phase.on_node]
    return _named(sorted(nodes))


def _why(plan: Plan, key: JobKey) -> str:
    for table in (plan.preempted, plan.back):
        if key in table:
            return table[key]
    causes = dict.fromkeys(shrink.cause for shrink in plan.shrinks if shrink.job == key)
    status = plan.statuses.get(key)
    words = [*causes, *((status.message, status.detail) if status else ())]
    return "; ".join(word for word in words if word)


def _named(nodes: Sequence[str]) -> str:
    """node-1 x3, node-2 and 4 more nodes."""
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node] = counts.get(node, 0) + 1
    words = [f"{node} x{count}" if count > 1 else node for node, count in list(counts.items())[:NODES]]
    more = len(counts) - NODES
    return ", ".join(words) + (f" and {plural(more, 'more node')}" if more > 0 else "")


# ---- dumped plans ----


def _key(plain: Sequence[str]) -> str:
    return f"{plain[0]}/{plain[1]}"


def _pairs(plain: Any) -> list[tuple[Sequence[str], Any]]:
    return [(key, value) for key, value in plain or ()]


def _nodes(reservations: Sequence[Mapping[str, str]]) -> str:
    return _named(sorted(str(reservation.get("node", "")) for reservation in reservations))


def _leaving(plan: Mapping[str, Any]) -> dict[str, str]:
    """Which jobs lose replicas, or go back whole."""
    found: dict[str, str] = {}
    for shrink in plan.get("shrinks") or ():
        job = _key(shrink["job"])
        found[job] = ", ".join(filter(None, (found.get(job), shrink["pod"])))
    for table in ("preempted", "back"):
        found.update({_key(key): f"whole ({table})" for key, _ in _pairs(plan.get(table))})
    return found
