"""What `coach` remembers of a job: the epochs that it has done, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.core.progress.fits import Surface, fit_convergence, fit_surface
from muster.policylib.remembered import number
from muster.types import Job


@dataclass(frozen=True, slots=True)
class Epochs:
    """done: epochs, mini-epochs included. last: the number of the last one. step: iterations at its end. spent:
    replica-seconds used. points: (workers, servers, mean epochs/s, epochs). losses: (epochs done, loss). target: the
    loss at which training stops, None where nobody said.
    """

    done: int
    last: float
    step: float
    spent: float
    points: tuple[tuple[int, int, float, int], ...]
    losses: tuple[tuple[float, float], ...]
    target: float | None

    @classmethod
    def read(cls, plain: Mapping[str, object]) -> Epochs:
        """As the plugin's memory has them."""
        target = plain.get("target")
        return cls(
            done=int(number(plain.get("epochs"))),
            last=number(plain.get("epoch")),
            step=number(plain.get("step")),
            spent=number(plain.get("spent")),
            points=tuple((int(w), int(p), e, int(n)) for w, p, e, n in _rows(plain, "points")),
            losses=tuple((k, loss) for k, loss in _rows(plain, "losses")),
            target=float(target) if isinstance(target, int | float) else None,
        )

    def surface(self) -> Surface | None:
        """epochs/s by workers and servers; None while there are too few points."""
        points = self.points
        return fit_surface([x[0] for x in points], [x[1] for x in points], [x[2] for x in points])

    def left(self) -> float:
        """Epochs until the loss is at the target by its curve, at least one; one where nothing can be said."""
        if self.target is None:
            return 1.0
        curve = None
        if len(self.losses) >= 3:
            curve = fit_convergence([k for k, _ in self.losses], [loss for _, loss in self.losses])
        end = curve.step_at(self.target) if curve else math.inf
        return max(1.0, end - self.losses[-1][0]) if math.isfinite(end) else 1.0

    def part_of_epoch(self, job: Job, step: float) -> float:
        """How much of an epoch the one that ends at `step` was (a mini-epoch is a part)."""
        length = job.report.steps_per_epoch if job.report else 0.0
        return (step - self.step) / length if length > 0.0 else 0.0


def _rows(plain: Mapping[str, object], name: str) -> list[list[float]]:
    found = plain.get(name, ())
    return [list(row) for row in found] if isinstance(found, Sequence) else []
