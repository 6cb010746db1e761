"""What Pollux searches: all jobs' places at once (Qiao et al., OSDI'21, section 4.2; artifact, simulator/pollux.py).

A state says how many replicas of each job are on each node. Its worth is the power mean of the jobs' speedups (the
paper's fitness), each less where a job is placed again, by what its restarts have cost it. Second aim, as in the
artifact: the cluster's utility, so that GPUs that bring a job little are not what the search ends with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.types import FloatArray, IntArray

SPAN = 16
"""Nodes that one job may be on, at most (artifact)."""
FLOOR = 1e-3
"""What is added to each speedup, so that a job that waits counts as slow and not as nothing (artifact)."""
BACK, LESS, OFF = 0.1, 0.1, 0.1
"""Chances of a mutation: a job as it is placed now; a job that loses nodes; each of its nodes (artifact)."""


@dataclass(frozen=True, slots=True)
class Placements:
    """What is searched: (P, J, N) replicas of job j on node n; jobs in the order in which they keep what two want.

    base: (J, N) as they are; room: (N,) GPUs that they may use; unit, least, most: (J,) GPUs of a replica, fewest and
    most replicas; speedups: (J, N + 1, K + 1) by nodes and replicas, of a fair share's; kept: (J,) part of it that
    counts where a job is placed again; power: of the mean, below 0.
    """

    base: IntArray
    room: IntArray
    unit: IntArray
    least: IntArray
    most: IntArray
    speedups: FloatArray
    kept: FloatArray
    power: float

    def aims(self, states: IntArray) -> FloatArray:
        """(P, 2) less: mean of speedups; utility = speedup of a replica by its part of the GPUs of nodes in use."""
        nodes, replicas = np.count_nonzero(states, axis=2), states.sum(axis=2)
        speedup = self.speedups[np.arange(len(self.base)), nodes, replicas]
        part = self.unit * len(self.room) / max(1, int(self.room.sum()))  # a node's worth counts 1
        moved = (states != self.base).any(axis=2)
        counted = speedup * part * np.where(moved, self.kept, 1.0)
        mean = ((counted + FLOOR) ** self.power).mean(axis=1) ** (1.0 / self.power)
        used = ((states > 0).any(axis=1) * self.room).sum(axis=1)
        utility = (speedup * self.unit).sum(axis=1) / np.maximum(used, 1)
        return -np.column_stack([mean, utility])

    def crossed(self, one: IntArray, other: IntArray, rng: np.random.Generator) -> IntArray:
        """The first jobs of one, the rest of the other."""
        first = np.arange(len(self.base)) < rng.integers(len(self.base), size=(len(one), 1))
        return np.where(first[..., None], one, other)

    def mutated(self, states: IntArray, rng: np.random.Generator) -> IntArray:
        """1 some jobs as they are placed now, 2 some off some nodes, 3 on each node with room some job more."""
        states = np.where(rng.random(states.shape[:2])[..., None] < BACK, self.base, states)
        off = np.where(rng.random(states.shape[:2]) < LESS, OFF, 0.0)
        states = np.where(rng.random(states.shape) < off[..., None], 0, states)
        free = self.room - (states * self.unit[:, None]).sum(axis=1)
        fits = self.unit[:, None] <= free[:, None]
        one, two = (
            mask / np.maximum(mask.sum(axis=1, keepdims=True), 1) for mask in (fits, fits & (states > 0))
        )
        more = rng.random(states.shape) < one + two - one * two
        most = np.maximum(self.room // self.unit[:, None], states)
        return np.where(more, rng.integers(states, most + 1), states)

    def repaired(self, states: IntArray, rng: np.random.Generator) -> IntArray:
        """1 on each node one job that spans nodes (section 4.2: interference avoidance), 2 no more replicas and nodes
        than a job may have, on nodes drawn at random, 3 no more GPUs than a node has, 4 none below its least."""
        wide = (states > 0) & (np.count_nonzero(states, axis=2, keepdims=True) > 1)
        states = np.where(wide & (wide.cumsum(axis=1) > 1), 0, states)
        shuffled = np.argsort(rng.random(states.shape), axis=2)
        states = np.take_along_axis(states, shuffled, axis=2)
        states = np.diff(np.minimum(states.cumsum(axis=2), self.most[:, None]), axis=2, prepend=0)
        states = np.where((states > 0).cumsum(axis=2) > SPAN, 0, states)
        states = np.take_along_axis(states, np.argsort(shuffled, axis=2), axis=2)
        gpus = np.minimum((states * self.unit[:, None]).cumsum(axis=1), self.room)
        states = np.diff(gpus, axis=1, prepend=0) // self.unit[:, None]
        enough = states.sum(axis=2, keepdims=True) >= self.least[:, None]
        return np.where(enough, states, 0)
