"""The authors' one run of SpeCon, row by row: does each of its 29 decisions follow from Algorithm 2 or 3?

A row says when a container was decided on, on which node it was, and where it went ("" = it stays). A container's
first row is Algorithm 2's answer, a later one can only be Algorithm 3's: no other was marked as migrated, and only
those that are have a converged duration. Nodes are filled by replay: a container is where its first row found it, and
from a move on where that took it. (The paper's first places, evenly in turn, are not the file's: by their numbers
3 of 26 would be where it found them, and in any order no node gets 12 of 30 containers, as one has there.)

What the file leaves open, and is taken to be anything:
- whether a container had arrived before its first row. One reading more: numbers are the order of arrival (section
  VI-C, "container 1, 2, 3, 4 ... Then, container 5, 6, 7, 8"), so that all numbers below one seen have arrived.
- whether it has ended, after its last row. Until that it is there: who is decided on later runs.
- its category until its first row (a weight of 1, 1.5 or 2). There it asks, so it is CC (1); if it stays, it is never
  looked at again (Algorithm 1, line 3) and remains so. If it moves it is CC by that line, or PC since it "joins a
  worker" (line 2): 1 or 2.
- the numbers up to 30 that have no row (30 mixed jobs come nearest): absent, or on any node, of any category.
- R(w, t): any of the nodes with the least score may be the one that is used least.
Line 15 of Algorithm 1, which asks for two containers that are not CC, is not looked at, nor is anything that would
tie one row to another: each is judged by itself. A row is
- *yes* where every such assignment gives the choice that the file has,
- *no* where none does: the file contradicts the algorithm,
- *undecidable* where some do and some do not.
Algorithm 2's choice is right where the node that it keeps or takes has the least score, and, if that is another
node, the container's own has more (lines 4 to 21). Algorithm 3's target is right where it is in T and the container's
own node is not: T = the nodes without a container, and then bf > 0, or where there is none those with fewer than
bf - 1, bf = floor(containers / nodes) (lines 7 to 31). Its container is right where, besides, no container that was
marked later (D's least d, line 25) still runs on a node that is not in T. When Algorithm 3 is run is not said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal, NamedTuple

from e2e.reproduce._specon_run import Decision

Verdict = Literal["yes", "no", "undecidable"]
NODES = 4
JOBS = 30
"""Containers of the paper's experiment that comes nearest."""
LEAST, MOST = 1.0, 2.0
"""Weights of a converged and of a progressing container (section VI-A)."""


class Place(NamedTuple):
    """A container on a node before a decision: whether it must be there, and the most that it may weigh."""

    job: int
    node: int
    certain: bool
    most: float


class Judged(NamedTuple):
    """A row: which algorithm's it is, whether its target follows, and (Algorithm 3) whether its container does."""

    decision: Decision
    algorithm: int
    target: Verdict
    container: Verdict | None

    def __str__(self) -> str:
        to = "stays" if self.decision.target is None else f"to node {self.decision.target}"
        plain = (
            f"{self.decision.at:.1f} s, container {self.decision.job}, node {self.decision.origin}, {to}: "
        )
        plain += f"Algorithm {self.algorithm}, target {self.target}"
        return plain if self.container is None else f"{plain}, container {self.container}"


def replay(rows: Sequence[Decision], jobs: int = JOBS, *, numbered: bool = False) -> tuple[Judged, ...]:
    """Every row judged. jobs: how many containers there were; numbered: they arrived in the order of numbers."""
    unseen = jobs - len({row.job for row in rows})
    made = []
    for i, row in enumerate(rows):
        places = before(rows, i, numbered=numbered)
        if any(row.job == earlier.job for earlier in rows[:i]):
            made.append(Judged(row, 3, *_third(rows, i, places, unseen)))
        else:
            made.append(Judged(row, 2, _second(row, places, unseen), None))
    return tuple(made)


def before(rows: Sequence[Decision], index: int, *, numbered: bool) -> list[Place]:
    """Where each container of the file is, or may be, when a row is decided."""
    arrived = max(row.job for row in rows[: index + 1]) if numbered else 0
    found = []
    for job in dict.fromkeys(row.job for row in rows):
        own = [i for i, row in enumerate(rows) if row.job == job]
        past = [rows[i] for i in own if i < index]
        again = any(i >= index for i in own)  # who has a row to come runs, if it has arrived
        if not past:
            certain, node, most = job <= arrived or own[0] == index, rows[own[0]].origin, MOST
        else:
            certain, node, most = again, past[-1].target or past[-1].origin, MOST if past[-1].moved else LEAST
        found.append(Place(job, node, certain, LEAST if own[0] == index else most))
    return found


def _second(row: Decision, places: Sequence[Place], unseen: int) -> Verdict:
    """Algorithm 2. The least and the most of a node's score do not hang on another node's, but for the unseen."""
    nodes = range(1, NODES + 1)
    low = {n: sum(LEAST for p in places if p.node == n and p.certain) for n in nodes}
    high = {n: sum(p.most for p in places if p.node == n) for n in nodes}
    to = row.target or row.origin
    spare = MOST * unseen

    def may_be_below(one: int, other: int, *, level: bool) -> bool:
        return low[one] < high[other] + spare or (level and low[one] == high[other] + spare)

    against = may_be_below(row.origin, to, level=True) if row.moved else False
    against = against or any(may_be_below(n, to, level=False) for n in nodes if n != to)
    # for it: `to` as light as it can be, others as heavy, the unseen spread over those that fall short
    lacking = [low[to] - high[n] for n in nodes if n != to and n != row.origin]
    below = 0.5 if row.moved else 0.0  # a score is a multiple of a half: less by that at least
    if row.moved:
        lacking.append(low[to] + below - high[row.origin])
    needed = sum(-int(-lack // MOST) for lack in lacking if lack > 0.0)
    return _verdict(needed <= unseen, against)


def _verdict(some: bool, others: bool) -> Verdict:
    """some: an assignment gives the file's choice; others: one gives another."""
    return "undecidable" if some and others else "yes" if some else "no"


def _third(
    rows: Sequence[Decision], index: int, places: Sequence[Place], unseen: int
) -> tuple[Verdict, Verdict]:
    """Algorithm 3: its target, and its container beside that."""
    row = rows[index]
    assert row.target is not None, "who stays is not decided on again"
    target = {_taken(counts, row) is not None for counts in _counts(places, unseen)}
    marked = {r.job: i for i, r in reversed(list(enumerate(rows[:index])))}  # by the row that marked it
    later = {job for job, i in marked.items() if i > marked[row.job]}
    some = False
    for taking in {t for counts in _counts(places, unseen) if (t := _taken(counts, row)) is not None}:
        left = [p for p in places if p.job not in later or p.node in taking or p.certain]
        if not any(p.certain and p.job in later and p.node not in taking for p in left):
            some = some or any(_taken(counts, row) == taking for counts in _counts(left, unseen))
    others = not all(target) or any(p.job in later and p.node != row.target for p in places)
    return _verdict(True in target, False in target), _verdict(some, others)


def _taken(counts: Sequence[int], row: Decision) -> frozenset[int] | None:
    """T by how many containers each node has, None where the row's move is not from outside it into it."""
    even = sum(counts) // NODES
    idle = [n for n, count in enumerate(counts, 1) if not count]
    found = frozenset(idle if even else ()) if idle else frozenset(
        n for n, count in enumerate(counts, 1) if count < even - 1
    )  # fmt: skip
    return found if row.target in found and row.origin not in found else None


def _counts(places: Sequence[Place], unseen: int) -> Iterator[tuple[int, ...]]:
    """How many containers the nodes may have."""
    nodes = range(1, NODES + 1)
    low = [sum(p.node == n and p.certain for p in places) for n in nodes]
    high = [sum(p.node == n for p in places) for n in nodes]
    for counts in product(*(range(a, b + unseen + 1) for a, b in zip(low, high, strict=True))):
        if sum(max(0, count - b) for count, b in zip(counts, high, strict=True)) <= unseen:
            yield counts
