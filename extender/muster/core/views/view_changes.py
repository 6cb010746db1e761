"""What changed from one View to the next, as far as the verbs read Views (core.views.extender_rules): the process
that answers them (server/verbs.py) is sent this. A whole View is what changed since the empty one.

`changes` goes by identity where the Ledger keeps what did not change (jobs, nodes, profile), by value where it makes
things again. A View comes in parts, so that who takes them can answer between two; `Copy.view` is all of them or
none. Left out are the plan, plugins at other points than Filter and Score, and what only metrics read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress
from operator import is_not
from typing import Any, NamedTuple

import numpy as np

from muster.core.views.view import View, empty_view
from muster.points import Profile
from muster.types import IntArray, NodeRecord, Nodes, Snapshot

MOST = 25
"""Entries of a mapping in one part: so many jobs are read in a millisecond."""

NOTHING = empty_view(Profile())


class Part(NamedTuple):
    """A part of what changed: of a value the new one; of a mapping the keys that are gone and the entries that are
    new or other; of (N,) and (N, R) columns the rows that differ (`gone`) and what they are now."""

    what: str
    gone: Any
    there: Any


def changes(before: View, after: View) -> Iterator[Part]:
    """The parts that make a Copy of the one View a Copy of the other."""
    known = _values(before)
    for name, there in _values(after).items():
        if there != known[name]:
            yield Part(name, None, there)
    if after.profile is not before.profile:
        yield Part("profile", None, _read(after.profile))
    old, new = before.snapshot, after.snapshot
    if new.nodes is not old.nodes:
        yield from _entries("nodes", _by_name(old.nodes), _by_name(new.nodes))
    yield from _entries("jobs", old.jobs, new.jobs)
    yield from _entries("reservations", before.reservations, after.reservations, equal=True)
    for name, then, now in _columns(before, after):
        yield from _rows(name, then, now)


class Copy:
    """A View as its reader puts it together again from its parts."""

    def __init__(self) -> None:
        snapshot = NOTHING.snapshot
        self._maps: dict[str, dict[Any, Any]] = {"nodes": {}, "jobs": {}, "reservations": {}}
        self._others: dict[str, Any] = {
            **_values(NOTHING),
            "profile": NOTHING.profile,
            **{name: column for name, column, _ in _columns(NOTHING, NOTHING)},
        }
        self._nodes: Nodes | None = snapshot.nodes

    def take(self, part: Part) -> None:
        """One part of the next View."""
        name, gone, there = part
        if name in self._maps:
            for key in gone:
                self._maps[name].pop(key, None)
            self._maps[name].update(there)
            if name == "nodes":
                self._nodes = None
        elif gone is not None:
            column = self._others[name] = self._others[name].copy()
            column[gone] = there
        else:
            self._others[name] = there

    def view(self) -> View:
        """The View whose parts have been taken; what is taken later does not change it."""
        other = self._others
        if self._nodes is None:
            self._nodes = Nodes(tuple(self._maps["nodes"].values()), other["devices"])
        snapshot = Snapshot(
            now=other["now"],
            nodes=self._nodes,
            free=other["snapshot.free"],
            jobs=self._maps["jobs"].copy(),
            ports=other["ports"],
            node_backoffs=other["node_backoffs"],
            ours_on=other["ours_on"],
            shared_at=other["shared_at"],
        )
        return View(
            snapshot,
            NOTHING.plan,
            other["profile"],
            self._maps["reservations"].copy(),
            other["free"],
            other["released"],
            other["observe"],
            other["leading"],
            other["synced"],
            holders=other["holders"],
        )


def _values(view: View) -> dict[str, Any]:
    """What is small, or empty nearly always."""
    snapshot = view.snapshot
    return {
        "now": snapshot.now,
        "devices": snapshot.nodes.devices,
        "ports": snapshot.ports,
        "node_backoffs": snapshot.node_backoffs,
        "shared_at": snapshot.shared_at,
        "released": view.released,
        "holders": view.holders,
        "observe": view.observe,
        "leading": view.leading,
        "synced": view.synced,
    }


def _columns(before: View, after: View) -> tuple[tuple[str, IntArray, IntArray], ...]:
    return (
        ("free", before.free, after.free),
        ("snapshot.free", before.snapshot.free, after.snapshot.free),
        ("ours_on", before.snapshot.ours_on, after.snapshot.ours_on),
    )


def _read(profile: Profile) -> Profile:
    """What the verbs read of a profile."""
    return Profile(profile.name, filters=profile.filters, scores=profile.scores, placement=profile.placement)


def _by_name(nodes: Nodes) -> Mapping[str, NodeRecord]:
    return dict(zip(nodes.names, nodes.records, strict=True))


def _entries(
    name: str, before: Mapping[Any, Any], after: Mapping[Any, Any], *, equal: bool = False
) -> Iterator[Part]:
    """The parts of a mapping. equal: whether an entry that is made again may be what it was."""
    known = before.get  # no loop of Python's over what did not change: there are 10,000 jobs in each cycle
    there = list(compress(after.items(), map(is_not, map(known, after), after.values())))
    if len(before) + sum([key not in before for key, _ in there]) > len(after):
        yield Part(name, tuple([key for key in before if key not in after]), {})
    if equal:
        there = [(key, entry) for key, entry in there if known(key) != entry]
    for first in range(0, len(there), MOST):
        yield Part(name, (), dict(there[first : first + MOST]))


def _rows(name: str, before: IntArray, after: IntArray) -> Iterator[Part]:
    """The part of a column, whole where it has another size."""
    if before.shape != after.shape:
        yield Part(name, None, after)
        return
    differs = before != after
    rows = np.flatnonzero(differs.any(axis=1) if differs.ndim > 1 else differs)
    if len(rows):
        yield Part(name, rows, after[rows])
