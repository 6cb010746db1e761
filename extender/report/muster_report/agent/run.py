"""One command, from its start to its end."""

from __future__ import annotations

import selectors
from typing import Any, NoReturn

from muster_report.agent.child import Launcher, end_as, hold_standard_descriptors
from muster_report.agent.lines import Lines, Tail
from muster_report.agent.outputs import LOOK, Outputs
from muster_report.agent.signals import Signals
from muster_report.report import AT_EXIT, Reporter


class Run:
    """The command runs at once, with what the agent has."""

    def __init__(
        self, command: list[str], reporter: Reporter, sought: Lines | None, watched: Tail | None
    ) -> None:
        """sought: finds reports in the output, None leaves it alone; watched: the file to follow."""
        self._reporter, self._watched = reporter, watched
        hold_standard_descriptors()
        self._selector = selectors.DefaultSelector()
        self._signals = Signals()
        self._selector.register(self._signals.wake, selectors.EVENT_READ)
        self._outputs = Outputs(self._selector, sought, self._tell)
        self._launcher = Launcher(command, self._outputs, self._signals)
        self._child = self._launcher.launch()
        self._outputs.close_theirs()
        self._signals.forward(self._child.signal)

    def to_the_end(self) -> NoReturn:
        """Pass on what comes until the process ends; send the last report, then end as it did."""
        child = self._child
        while child.status is None:
            child.reap()
            for key, _ in self._selector.select(0 if child.status is not None else LOOK):
                if key.data is None:
                    self._signals.taken()
                else:
                    self._outputs.pass_on(key.fd, key.data)
            if self._watched is not None:
                self._tell(self._watched.look())
            self._outputs.resize()
        self._outputs.drain()
        if self._watched is not None:
            for _ in range(2):
                self._tell(self._watched.look())
        self._reporter.flush(AT_EXIT)
        self._launcher.take_terminal()
        end_as(child.status)

    def _tell(self, found: list[dict[str, Any]]) -> None:
        for values in found:
            self._reporter.report(**values)
