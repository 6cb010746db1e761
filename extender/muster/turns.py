"""The queue played forward beside the planner: when the first of it may start, and who has what they need.

It takes a second or two where thousands of nodes are full, so it has a thread of its own, which rests for REST times
as long as it took: what it finds goes to the Ledger as TurnsSeen, and from there to the Gangs
(core.actions.queue_turns).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from muster.cluster.watch import Sink
from muster.core.views.job_status import turns
from muster.core.views.view import Board
from muster.threads import STALLED, beat, supervised
from muster.types import JobKey, Plan, Turn, TurnsSeen

log = logging.getLogger(__name__)

EVERY = 5.0
"""Seconds between two looks."""
REST = 20.0
"""A look that took t seconds is followed by a rest of REST times t: it has Python's lock meanwhile."""


class Turns:
    """The thread. `busy`: whether starts wait to be sent, which comes first."""

    def __init__(self, board: Board, sink: Sink, busy: Callable[[], bool]) -> None:
        self._board, self._sink, self._busy = board, sink, busy
        self._plan: Plan | None = None
        self._told: Mapping[JobKey, Turn] = {}
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin."""
        supervised("turns", self._run, within=5 * STALLED)

    def stop(self) -> None:
        """End soon."""
        self._stop.set()

    def _run(self) -> None:
        rest = EVERY
        while not self._stop.wait(min(rest, 4 * STALLED)):
            beat()
            began = time.monotonic()
            self.look()
            rest = max(EVERY, REST * (time.monotonic() - began))

    def look(self) -> None:
        """Once, where there is a new plan of ours."""
        view = self._board.view
        if not view.leading or view.observe or view.plan is self._plan or self._busy():
            return
        self._plan = view.plan
        try:
            found = turns(view)
        except Exception:  # of a job: what it is told of its turn is not worth more than a line
            log.exception("the queue could not be played forward")
            return
        if found != self._told:
            self._told = found
            self._sink([TurnsSeen(found)])
