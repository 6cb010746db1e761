"""What Pollux searches: all jobs' places at once (Qiao et al., OSDI'21, section 4.2; artifact, simulator/pollux.py).

A state says how many replicas of each job are on each node. Its worth is the power mean of the jobs' speedups (the
paper's fitness), each less where a job is placed again, by what its restarts have cost it. Second aim, as in the
artifact: the cluster's utility, so that GPUs that bring a job little are not what the search ends with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.types import BoolArray, FloatArray, IntArray

SPAN = 16
"""Nodes that one job may be on, at most (artifact); more where its least replicas, or those it has, need more."""
FLOOR = 1e-3
"""What is added to each speedup, so that a job that waits counts as slow and not as nothing (artifact)."""
BACK, LESS, OFF = 0.1, 0.1, 0.1
"""Chances of a mutation: a job as it is placed now; a job that loses nodes; each of its nodes (artifact)."""


@dataclass(frozen=True, slots=True)
class Placements:
    """What is searched: (P, J, N) replicas of job j on node n; jobs in the order in which they keep what two want.

    base: (J, N) as they are; room: (N,) GPUs that they may use; unit: (J,) GPUs of a replica; most, span: (J,) most
    replicas and nodes; allowed: (J, K + 1) by a number of replicas the most that the job may have of them (0 = none);
    speedups: (J, 3, K + 1) by nodes (none, one, several) and replicas, of a fair share's; kept: (J,) part of it that
    counts where a job is placed again; power: of the mean, below 0.
    """

    base: IntArray
    room: IntArray
    unit: IntArray
    most: IntArray
    span: IntArray
    allowed: IntArray
    speedups: FloatArray
    kept: FloatArray
    power: float

    def starts(self) -> IntArray:
        """(S, J, N) states that a search begins with: how jobs are placed; and, where a job waits that starts with
        several replicas, which chance alone seldom places: those, in order, on what is free, and on what is free once
        the others have their least, which get back what those leave."""
        least = np.where(self.allowed > 0, self.allowed, np.iinfo(np.int64).max).min(axis=1)
        gangs = np.flatnonzero((self.base.sum(axis=1) == 0) & (least > 1) & (least <= self.most))
        if not gangs.size:
            return self.base[None]
        beside = self.base.copy()
        self._add(beside, gangs, least)
        order = np.argsort(-self.base, axis=1, kind="stable")
        lean = np.take_along_axis(self.base, order, axis=1).cumsum(axis=1)
        lean = np.diff(np.minimum(lean, least[:, None]), axis=1, prepend=0)
        lean = np.take_along_axis(lean, np.argsort(order, axis=1), axis=1)
        taken = np.flatnonzero(self._add(lean, gangs, least))
        for job in np.flatnonzero(self.base.any(axis=1)):
            free = np.maximum((self.room - self.unit @ lean) // self.unit[job], 0)
            free[taken] = 0  # a gang that spans nodes is on them
            if not lean[job, taken].any():
                lean[job] = np.minimum(self.base[job], lean[job] + free)
        return np.stack([self.base, beside, lean])

    def _add(self, state: IntArray, gangs: IntArray, least: IntArray) -> BoolArray:
        """The gangs in the state, while they fit: on the node that they fill best, else on those with most room.
        (N,) whether a gang is there that spans nodes."""
        wide = (state > 0) & (np.count_nonzero(state, axis=1, keepdims=True) > 1)
        shut, ours = wide.any(axis=0), np.zeros(state.shape[1], dtype=bool)
        for job in gangs:
            fits = np.maximum((self.room - self.unit @ state) // self.unit[job], 0)
            on = np.flatnonzero(fits >= least[job])
            if on.size:
                state[job, on[fits[on].argmin()]] = least[job]
                continue
            on = np.argsort(np.where(shut, 0, -fits), kind="stable")[: self.span[job]]
            here = np.diff(np.minimum(np.where(shut, 0, fits)[on].cumsum(), least[job]), prepend=0)
            if here.sum() == least[job]:
                state[job, on] = here
                shut |= state[job] > 0
                ours |= state[job] > 0
        return ours

    def aims(self, states: IntArray) -> FloatArray:
        """(P, 2) less: mean of speedups; utility = speedup of a replica by its part of the GPUs of nodes in use."""
        nodes, replicas = np.count_nonzero(states, axis=2), states.sum(axis=2)
        speedup = self.speedups[np.arange(len(self.base)), np.minimum(nodes, 2), replicas]
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
        than a job may have, on nodes drawn at random, 3 no more GPUs than a node has, 4 numbers that it may have."""
        wide = (states > 0) & (np.count_nonzero(states, axis=2, keepdims=True) > 1)
        states = np.where(wide & (wide.cumsum(axis=1) > 1), 0, states)
        shuffled = np.argsort(rng.random(states.shape), axis=2)
        states = np.take_along_axis(states, shuffled, axis=2)
        states = np.diff(np.minimum(states.cumsum(axis=2), self.most[:, None]), axis=2, prepend=0)
        states = np.where((states > 0).cumsum(axis=2) > self.span[:, None], 0, states)
        states = np.take_along_axis(states, np.argsort(shuffled, axis=2), axis=2)
        gpus = np.minimum((states * self.unit[:, None]).cumsum(axis=1), self.room)
        states = np.diff(gpus, axis=1, prepend=0) // self.unit[:, None]
        counts = states.sum(axis=2)
        goal = self.allowed[np.arange(len(self.base)), counts]
        if (goal == counts).all():
            return states
        return np.asarray(np.diff(np.minimum(states.cumsum(axis=2), goal[..., None]), axis=2, prepend=0))
