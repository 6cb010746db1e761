"""How a training is asked to end: the checkpoint's signal, TERM, KILL, within its grace. Pure: times are given."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass
class Stop:
    """began: by the clock that `now` is of; grace: seconds from the first signal to KILL; checkpoint: the signal on
    which the training saves, or None."""

    began: float
    grace: float
    checkpoint: int | None = None
    _asked: bool = False
    _terminated: bool = False

    @property
    def begun(self) -> bool:
        """Whether anything was sent."""
        return self._asked

    def signals(self, now: float, saved: bool) -> list[int]:
        """What to send now. saved: it has said that it may be resized (`boundary`) since it was asked to save.

        TERM comes once it has saved, or at half of the grace: a checkpoint that hangs leaves time to end well.
        """
        due: list[int] = []
        if self.checkpoint is not None and not self._asked:
            due.append(self.checkpoint)
        saving = self.checkpoint is not None and not (self._asked and saved)
        self._asked = True
        if not self._terminated and (not saving or now >= self.began + self.grace / 2):
            self._terminated = True
            due.append(signal.SIGTERM)
        if now >= self.began + self.grace:
            due.append(signal.SIGKILL)
        return due
