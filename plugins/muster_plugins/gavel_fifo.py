"""Gavel's FIFO baseline (Narayanan et al., OSDI'20, §6; its artifact's policies/fifo.py): a GPU product for good.

Jobs in order of submission are given one product each, which they keep until they are done, while there is room;
the first that finds none ends the round of giving. The rounds are in gavel.py, and a job never runs on another.

The paper's baseline draws the product at random among those with room for the job (`pick="random"`). What the
artifact runs, and what its figures are of (`pick="published"`, the default), is something else by a slip: a loop
variable of the same name is left behind by the search for room, so the job gets the *last* product by name that has
any GPU left (v100 of k80, p100, v100), whether it fits there or not; too many jobs then share that product's time. (A
product that has too few GPUs altogether is passed over, where the artifact's clusters have none: the job would wait
for ever.) The draw only decides which product is struck off the list when the chosen one is exactly full.

Who comes after a job that has ended: for each in turn the head of the queue, if its GPUs are left once those of the
jobs before it are counted; only then what is free is given. So that this is known, the jobs' memory holds the list of
all that were given a product (a line a job, the same in each).

Deviation: none known; average completion on its max_min_fairness.trace within 0.1 % (rounds are of whole 360 s here).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.types import FloatArray
from muster_plugins.gavel import Asking, Gavel
from muster_plugins.gavel_draws import Draws
from muster_plugins.gavel_facts import Kept


@dataclass(frozen=True)
class GavelFifo(Gavel):
    """First come, first served, one product a job. pick: "published" or "random", see above."""

    perf: bool = False
    pick: str = "published"

    granted_only: ClassVar[bool] = True
    agnostic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Gavel.__post_init__(self)
        if self.pick not in ("published", "random"):
            raise ValueError(f"pick must be published or random; found {self.pick!r}")

    def allocate(self, asking: Asking) -> tuple[FloatArray, Sequence[Kept]]:
        """(J, P) one or nothing; told next time: who was given what, and how many random words have been read."""
        market, names = asking.market, asking.products
        need = market.gpus.astype(np.int64).tolist()
        whole = dict(zip(names, market.capacity.astype(np.int64).tolist(), strict=True))
        left = dict(whole)
        row_of = {str(job.key): row for row, job in enumerate(asking.jobs)}
        last: Kept = max((m for m in asking.before if m), key=lambda m: m["at"], default={})
        given = {row_of[name]: product for name, product, _ in last.get("placed", ()) if name in row_of}
        queue = [row for row in range(len(need)) if row not in given]

        def give(row: int, product: str) -> bool:
            if market.speed[row, names.index(product)] <= 0.0:
                return False
            given[row] = product
            left[product] -= need[row]
            return True

        # 1 jobs that go on count, in order; one that has ended is followed by the head of the queue
        for name, product, gpus in last.get("placed", ()):
            if name in row_of:
                left[product] -= gpus
            elif queue and need[queue[0]] <= left[product] and give(queue[0], product):
                queue.pop(0)
        # 2 what is free, until somebody finds no room
        draw = Draws(asking.seed, int(last.get("read", 0)))
        capacity = [name for name in names if left[name] > 0]
        for row in queue:
            fitting = [name for name in capacity if left[name] >= need[row]]
            if not fitting:
                break
            drawn = fitting[draw.below(len(fitting))]
            large = [name for name in capacity if whole[name] >= need[row]]
            chosen = large[-1] if self.pick == "published" else drawn
            if give(row, chosen) and left[chosen] == 0:
                capacity.remove(drawn)
        shares = np.array([[float(given.get(row) == name) for name in names] for row in range(len(need))])
        placed = [[str(asking.jobs[row].key), given[row], need[row]] for row in sorted(given)]
        return shares, [{"placed": placed, "read": draw.read}] * len(need)
