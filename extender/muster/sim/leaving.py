"""Replicas on their way off their nodes: for so long as that takes (`--release`) their GPUs are nobody's.

As on a cluster: who is told to leave trains no more, the pod that replaces it waits behind the gate at once, and what
takes the GPU over starts when it is free. The planner sees such replicas as ending, those of a job that is done too.
Of two jobs on one GPU neither leaves late: the other goes on there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from muster.sim.pairs import Pairs
from muster.sim.running_job import Spot, Training, ending
from muster.sim.sim_nodes import Place, Site
from muster.types import Job, JobKey, Reservation

DONE = "its training is done"


@dataclass(frozen=True, slots=True)
class Leaver:
    """One replica. number: in the order in which they were told; until: when its GPUs are free (s)."""

    number: int
    training: Training
    uid: str
    spot: Spot
    until: float


class Leaving:
    """Those of one simulation. seconds: from the word to leave until the GPUs are free; 0 = at once, then nothing is
    ever in here; each replica's own, where `spread` (a part of it) and `seed` say how they are drawn. rest: seconds
    by which the others of a job that is done leave later than its first, all at once; 0: each on its own. shown: jobs
    as the scheduler last saw them; those that are done stay there until their last replica has gone, unless `silent`
    (the stock scheduler's jobs are its pods)."""

    def __init__(
        self,
        site: Site,
        pairs: Pairs,
        seconds: float,
        shown: dict[JobKey, Job],
        *,
        silent: bool = False,
        spread: float = 0.0,
        seed: int = 0,
        rest: float = 0.0,
    ) -> None:
        self.site, self.pairs, self.seconds, self.shown, self.silent = site, pairs, seconds, shown, silent
        self.by_number: dict[int, Leaver] = {}
        self._told: list[Leaver] = []  # their places are still to be charged
        self._number = 0
        self._spread, self._rest, self._rng = spread, rest, random.Random(seed)

    def tell_all(self, training: Training, now: float) -> None:
        """A job's work is done: its first replica leaves, and its owner ends the others, all at once."""
        first = self._own() if self._rest else None
        for place, uid in enumerate(training.placed):
            self.tell(training, uid, now, None if first is None else first + self._rest * (place > 0))

    def tell(self, training: Training, uid: str, now: float, own: float | None = None) -> None:
        """A replica is to leave the place where it is planned. Its capacity is its job's until `charge`. own: seconds
        until that place is free, else they are drawn."""
        rides = self.pairs.rides
        if not self.seconds or training in rides or training in rides.values():
            return
        self._number += 1
        name, spot = f"{uid}~{self._number}", training.placed[uid]
        training.leaving[name] = spot
        self._told.append(
            Leaver(self._number, training, name, spot, now + (self._own() if own is None else own))
        )

    def _own(self) -> float:
        return self.seconds * (1.0 + self._spread * self._rng.uniform(-1.0, 1.0))

    def charge(self) -> list[Leaver]:
        """Takes what those use that were told to leave since the last call, and gives them."""
        told, self._told = self._told, []
        for leaver in told:
            self.site.charge([self._place(leaver)])
            self.by_number[leaver.number] = leaver
        return told

    def done(self, training: Training) -> list[Leaver]:
        """A job's work is done, its replicas were told, and its capacity is given back."""
        job = self.shown.pop(training.key, None)
        if training.leaving and job is not None and not self.silent:
            self.shown[training.key] = replace(job, over=DONE, started=False, reservations=(), grant=None)
            self._show(training)
        return self.charge()

    def hold(self, training: Training, reservations: Sequence[Reservation]) -> None:
        """Keeps these places for a job that starts again once the others are free, in the place of what it had."""
        for sign in (-1, 1):
            self.site.charge(
                [(self.site.nodes.index[r.node], training.shapes[r.role], 1) for r in training.holds], sign
            )
            training.holds = tuple(reservations)

    def gone(self, number: int) -> Training:
        """A replica has left: its job shows one less."""
        leaver = self.by_number.pop(number)
        training = leaver.training
        self.site.charge([self._place(leaver)], -1)
        del training.leaving[leaver.uid]
        training.roles_shown = None
        if training.key in self.shown and training.job is None:
            self._show(training)
        return training

    def _place(self, leaver: Leaver) -> Place:
        role, node = leaver.spot
        return self.site.nodes.index[node], leaver.training.shapes[role], 1

    def _show(self, training: Training) -> None:
        """A job that is done, with what is still on nodes of it."""
        if not training.leaving:
            del self.shown[training.key]
            return
        job, created = self.shown[training.key], training.submission.submitted
        roles = tuple(
            replace(role, min=0, members=ending(training.leaving, role.name, role.shape, created))
            for role in job.roles
        )
        self.shown[training.key] = replace(job, roles=roles)
