"""`specon`: jobs that hardly learn any more make room for those that do (SpeCon, Algorithms 1 to 3).

Every interval a container's gain G = |E(t_m) - E(t_{m-1})| of the normalised evaluation function E is read, and
the container is *progressing* (PC), *watching* (WC) or *converged* (CC). A converged one is sent to the node with
the least weighted number of containers, at most once (Algorithm 2); nodes that fall idle, or far behind the
others, are given one of those back (Algorithm 3). First places are `round-robin`'s.

Misprints, and what is done:
- Algorithm 1, lines 10 to 12 move a watching container from PC to WC once more; the text moves it to CC.
- Lines 7, 10 and 13 are three `if`s in a row, by which a container would go from PC to CC and be sent away in one
  interval; by the text each asks for its category "currently". They exclude each other here.
- Line 15, |PC| + |WC| > 1, is the only place without the worker's index: it is read as printed, over the
  cluster. (Per worker, nothing could ever move in Fig. 5: a worker has two containers there, so at most one that
  is not converged beside the one that asks.) `across=False` reads it per worker.
- Algorithm 3, line 7 stands inside the loop over the containers of a worker and so never sees an empty one.
- Lines 23 to 31 take one container and send it to every worker of T; here each worker gets the next one, as in
  line 14. A container leaves only a worker that still has more than the other then: line 13 would also swap an
  idle worker for another.
- Algorithm 3 has no condition to be run; it is looked at in every cycle, on containers that Algorithm 2 has marked
  (only they have a t_c). "Reallocated at most once" counts both: `most_moves`.
- The scores that section VI-C prints for one decision (63, 88, 92, 72) can't come from eight containers a worker and
  weights of at most 2; Algorithm 2's formula is used.

Choices: t_m are the multiples of the interval, one clock for all. E is normalised by the largest |E| seen of that
job, the only scale that is known while it trains. E is smoothed: what training reports is often the loss of one
minibatch, whose noise alone is above alpha for ever (the paper plots smooth curves of log files and does not say
how they came about). Each report moves E towards it by 1 - exp(-dt / smoothing), dt = s since the report before.
The first gain is of a whole interval, has nothing to be compared with and decides nothing but line 19. At the end of
an interval in which no E was told nothing is read, however many steps were: silence tells no gain. The next gain is
of all intervals since the last reading, in equal parts. Only jobs of one replica move, and of those only who may be
placed again at all (`muster.dev/resize: restart`); a node that has no room is no candidate.

R(w, t), by which nodes with the same score are ranked, is what specon_nodes.py says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from muster.core.sharing.moving import can_change
from muster.memory import Memory, remembers
from muster.types import Job, Move, SharingSnapshot, Snapshot
from muster_plugins.specon_nodes import Board, home

PC, WC, CC = "progressing", "watching", "converged"
SLACK = 1e-6
"""Seconds by which a cycle may come too early: times are sums of floats."""
ROUNDED = 0.001
"""s by which a report's time is another one after a restart (a Gang keeps it to the millisecond)."""


class Seen(NamedTuple):
    """What is remembered of a container: when it was looked at last (at, in s), the value then, the gain before it
    (None: no two readings yet), the normaliser, its category, when it asked to be moved (= t_c; None: not yet) and
    whether that was answered; E as smoothed up to the report of time `heard` (s); the time (s) of the newest report
    that a reading has read, and how many intervals since then told nothing."""

    at: float
    value: float
    gain: float | None = None
    scale: float = 0.0
    category: str = PC
    asked: float | None = None
    settled: bool = False
    smooth: float | None = None
    heard: float = 0.0
    told: float = -1.0
    missed: int = 0

    def as_mapping(self) -> Mapping[str, object]:
        return self._asdict()

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Seen | None:
        """As the plugin's memory has it, None where nothing is kept, or not in this form."""
        try:
            return cls(**plain)
        except TypeError:
            return None


@dataclass(frozen=True, slots=True)
class SpeCon:
    """alpha: threshold of the gain (of normalised E) in an interval. interval: s. w_pc > w_wc > w_cc: weights of a
    container in its node's score. most_moves: how often one container may be moved, by both algorithms together.
    rebalance: whether Algorithm 3 runs. across: whether line 15 counts the whole cluster (as printed) or the
    container's own node. smoothing: time constant (s) with which reported values are averaged, 0 = as they are.
    """

    READS_USE: ClassVar[bool] = True
    NEEDS_REPORTS: ClassVar[Mapping[str, str]] = {"": "profile specon-default"}

    alpha: float = 0.01
    interval: float = 30.0
    w_pc: float = 2.0
    w_wc: float = 1.5
    w_cc: float = 1.0
    most_moves: int = 1
    rebalance: bool = True
    across: bool = True
    smoothing: float = 120.0
    memory: Memory[Seen | None] = remembers(Seen.read)

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """Algorithm 1, for one container at t_m; None in between."""
        report, last = job.report, self.memory.of(job)
        if report is None or report.loss is None or not job.running:
            return None
        at = report.loss_at or report.at
        if last is None:
            seen = Seen(
                snapshot.now, report.loss, scale=abs(report.loss), smooth=report.loss, heard=at, told=at
            )
            return seen.as_mapping()
        if last.asked is not None:  # line 3: migrated = True, it is watched no more
            return last._replace(settled=True).as_mapping()
        value = self.smoothed(last, report.loss, at)
        intervals = self._tick(snapshot.now) - self._tick(last.at)
        if not intervals:
            heard = self.smoothing > 0.0 and at > last.heard
            return last._replace(smooth=value, heard=at).as_mapping() if heard else None
        began = last.gain is None and snapshot.now - last.at < 0.99 * self.interval  # within this interval
        if at <= last.told + ROUNDED:  # of this interval nothing is known: silence is no gain of 0
            return last._replace(at=snapshot.now, missed=last.missed + (not began) * intervals).as_mapping()
        scale = max(last.scale, abs(value))
        seen = Seen(snapshot.now, value, scale=scale, smooth=value, heard=at, told=at)
        if began:
            return seen.as_mapping()
        gain = abs(value - last.value) / scale / (last.missed + intervals) if scale > 0.0 else 0.0
        category, asks = self.judged(last.category, gain, last.gain)
        asked = snapshot.now if asks and self._others(job, snapshot) else None
        return seen._replace(gain=gain, category=category, asked=asked).as_mapping()

    def smoothed(self, last: Seen, loss: float, at: float) -> float:
        """E with the newest report, whose time is `at`; a report counts once."""
        if self.smoothing <= 0.0:
            return loss
        before = last.value if last.smooth is None else last.smooth
        return before - math.expm1(-max(0.0, at - last.heard) / self.smoothing) * (loss - before)

    def _tick(self, time: float) -> int:
        """Which interval a time belongs to: all containers are read at its start, t_m."""
        return math.floor((time + SLACK) / self.interval)

    def judged(self, category: str, gain: float, before: float | None) -> tuple[str, bool]:
        """Lines 6 to 22: the new category, and whether the container asks to be moved (line 16)."""
        if gain < self.alpha and before is not None and gain < before:
            if category == PC:
                return WC, False
            return CC, category == CC
        if gain > self.alpha:
            return PC, False
        return category, False

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """The next t_m, while there is anything to be read."""
        watched = [self.memory.of(job) for job in snapshot.jobs.values()]
        if all(last is not None and last.asked is not None for last in watched):
            return None
        return (self._tick(snapshot.now) + 1) * self.interval

    def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]:
        """Algorithm 2 for every container that has just asked, in the order of keys, then Algorithm 3."""
        board = Board(snapshot, self._weight)
        result = []
        for key, job in sorted(snapshot.jobs.items()):
            last = self.memory.of(job)
            if last is not None and last.asked is not None and not last.settled and self._movable(job, board):
                found = board.lightest(board.row[key], job.roles[0].shape)
                if found is not None:
                    to, words = found
                    why = f"its gain has stayed below {self.alpha:g}; {words}"
                    result.append(board.move(job, to, why))
        if self.rebalance:
            result += self._rebalanced(snapshot, board)
        return result

    def _rebalanced(self, snapshot: Snapshot, board: Board) -> list[Move]:
        """Algorithm 3. D: marked containers by how long ago they were marked, the latest first."""
        marked = []
        for key, job in snapshot.jobs.items():
            last = self.memory.of(job)
            if last is None or last.asked is None or key in board.moved:
                continue
            if self._movable(job, board):
                marked.append((-last.asked, key, job))
        marked.sort(key=lambda m: m[:2])
        even = int(board.count[board.open].sum()) // max(1, int(board.open.sum()))  # bf, line 9
        rows = [int(row) for row in np.flatnonzero(board.open)]
        idle = [row for row in rows if not board.count[row]]
        least = even if idle else even - 1  # lines 12 and 21
        taking = [row for row in idle or rows if board.count[row] < least]  # T
        marked = [one for one in marked if board.row[one[1]] not in taking]  # line 23
        result = []
        for row in taking:
            for position, (_, key, job) in enumerate(marked):
                if board.count[board.row[key]] > board.count[row] + 1 and board.fits(job.roles[0].shape)[row]:
                    words = f"{board.name(row)} has {board.count[row]} of {even} jobs that would be even"
                    result.append(board.move(job, row, words))
                    del marked[position]
                    break
        return result

    def _weight(self, job: Job) -> float:
        last = self.memory.of(job)
        return {PC: self.w_pc, WC: self.w_wc, CC: self.w_cc}[PC if last is None else last.category]

    def _others(self, job: Job, snapshot: Snapshot) -> bool:
        """Line 15: more than one container that still makes progress (a new one is progressing, line 2)."""
        here = home(job)
        count = 0
        for other in snapshot.jobs.values():
            if (other.running or other.reservations) and (self.across or here in (home(other), "")):
                last = self.memory.of(other)
                count += last is None or last.category != CC
        return count > 1

    def _movable(self, job: Job, board: Board) -> bool:
        return (
            job.key in board.row
            and job.facts.moves < self.most_moves
            and can_change(job, board.on_shared_gpus)
        )
