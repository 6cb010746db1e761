"""A plan's way to actions, all or nothing for each job: what raises puts its own job aside
(core.state.quarantine)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from muster.core.culprit import culprit
from muster.core.state.job_state import JobState
from muster.core.state.quarantine import FEW, SPACES, set_aside, stumbled
from muster.core.state.reservation_usage import charge_all
from muster.core.state.state import LedgerState
from muster.types import Action, JobKey

T = TypeVar("T")


@dataclass
class Adoption:
    """Steps of a plan's way to actions, all or nothing for each job: one that raises leaves its job as it was before
    the plan, without an action, and the others go on."""

    state: LedgerState
    now: float

    def __post_init__(self) -> None:
        self.actions: list[Action] = []
        self.failed: set[JobKey] = set()
        self._before: dict[JobKey, Sequence[Mapping[str, Any]]] = {}

    def of(self, key: JobKey, step: Callable[[], Iterable[Action] | None]) -> None:
        """A step of one job."""
        job_state = self.state.entries.get(key)
        if key in self.failed or job_state is None:
            return
        if key not in self._before:
            self._before[key] = job_state.copied()
        try:
            self.actions += list(step() or ())
        except Exception as error:
            self.failed.add(key)
            self.actions = [action for action in self.actions if action.job != key]
            self._restore(job_state, self._before[key])
            set_aside(self.state, key, "adopt", error, self.now)

    def over(self, keys: Iterable[JobKey], step: Callable[[Sequence[JobKey]], T]) -> T | None:
        """What a step over many jobs gives, without those over which it raises; None where that is no job's fault."""
        left, found = list(keys), dict[JobKey, Exception]()
        while True:
            try:
                made = step(left)
                break
            except Exception as error:
                key = culprit(left, step)
                if key is None or len(found) >= FEW * SPACES:
                    stumbled(self.state, "adopt", error)
                    return None
                left.remove(key)
                found[key] = error
        for key, raised in found.items():
            self.failed.add(key)
            set_aside(self.state, key, "adopt", raised, self.now)
        return made

    def _restore(self, job_state: JobState, before: Sequence[Mapping[str, Any]]) -> None:
        state = self.state
        job_state.restored(before)
        try:
            charge_all(state, job_state)
        except Exception as error:
            stumbled(state, "adopt", error)
