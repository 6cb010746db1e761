"""The steps of GPUs that jobs climb, by class of job."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from muster.types import FloatArray, IntArray


@dataclass(frozen=True)
class Ladders:
    """Steps that jobs climb, by class: jobs of one class have the same counts, speeds and prices.

    count, price: (C, S) int64, replicas on a step and GPUs of the step to the next; speed, gain, loss: (C, S)
    float64, see above; length: (C,) steps of a class. The last step has no next: gain -inf.
    """

    count: IntArray
    price: IntArray
    speed: FloatArray
    gain: FloatArray
    loss: FloatArray
    length: IntArray

    @cached_property
    def lists(
        self,
    ) -> tuple[list[list[float]], list[list[float]], list[list[float]], list[list[int]], list[int]]:
        """Gains, losses, speeds, prices and lengths for Python loops."""
        return (
            *(self.gain.tolist(), self.loss.tolist(), self.speed.tolist()),
            *(self.price.tolist(), self.length.tolist()),
        )
