"""SpeCon's nodes: the score S of Algorithm 2, the resource consumption R(w, t), and moves as they are made up.

R(w, t), the resource consumption by which nodes with the same score are ranked (Algorithm 2, lines 17 to 21; under
"Scheduling on slow moving jobs": "their resource usages"). Of which resources the paper does not say: section VI-A
calls training more sensitive to CPU than to memory and network, and figures 10 and 11 show CPU.

Where a cluster serves metrics.k8s.io and each of those nodes was measured, R is the largest of three shares of what
the node can allocate: cpu in use and memory in use, by all that runs there, pods of others and daemons too; and GPUs
*requested*, for their use is in no metrics.k8s.io, and a GPU that is requested is nobody else's. Of equal ones the
second largest share decides, then the third, then the node's name. A container that is moved takes its use with it at
once, as it was measured, or what it requests where it was not. Measures are up to a minute old (a metrics server's
window, and the time between two looks).

Elsewhere, and in simulations, where no use is known, R is the largest share *requested* of cpu, memory and GPUs, ties
by the node's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from muster.core.sharing.moving import on_shared_gpus
from muster.types import GPU, BoolArray, FloatArray, IntArray, Job, Move, Phase, Shape, Snapshot

CPU, MEMORY = "cpu", "memory"


def home(job: Job) -> str:
    """The node of a job of one replica, "" of any other."""
    on = [m.node for role in job.roles for m in role.members if m.phase is Phase.BOUND]
    return on[0] if len(on) == 1 and len(job.roles) == 1 else ""


class Board:
    """The nodes while moves are made up: counts and scores follow each move at once.

    weight: w of a job by its category. count: (N,) containers, those that are on their way to a node among them;
    score: (N,) S of Algorithm 2; row: node of each job that could move. use: (N, 2) cpu and memory in use, in the
    nodes' units; measured: (N,) whether that is known.
    """

    def __init__(self, snapshot: Snapshot, weight: Callable[[Job], float]) -> None:
        nodes = snapshot.nodes
        self.nodes, self.weight = nodes, weight
        self.open: BoolArray = nodes.open
        self.free: IntArray = snapshot.free.copy()
        self.count: IntArray = np.zeros(len(nodes), dtype=np.int64)
        self.score = np.zeros(len(nodes), dtype=np.float64)
        self.row: dict[object, int] = {}
        self.moved: set[object] = set()
        self.on_shared_gpus = on_shared_gpus(snapshot)
        told = snapshot.use
        self.of_pods: Mapping[tuple[str, str], tuple[int, int]] = {} if told is None else told.pods
        self.use: IntArray = np.zeros((len(nodes), 2), dtype=np.int64)
        self.measured: BoolArray = np.zeros(len(nodes), dtype=np.bool_)
        for name, used in {} if told is None else told.nodes.items():
            if name in nodes.index:
                self.use[nodes.index[name]], self.measured[nodes.index[name]] = used, True
        for key, job in snapshot.jobs.items():
            on = {m.node for role in job.roles for m in role.members if m.phase is Phase.BOUND}
            on |= {held.node for held in job.reservations}
            for row in (nodes.index[name] for name in on if name in nodes.index):
                self.count[row] += 1
                self.score[row] += self.weight(job)
                if home(job):
                    self.row[key] = row

    def name(self, row: int) -> str:
        return self.nodes.names[row]

    def fits(self, shape: Shape) -> BoolArray:
        """(N,) nodes in use that have room for one more of a shape."""
        result: BoolArray = self.open.copy()
        for resource, amount in shape.requests:
            column = self.nodes.resource_index.get(resource)
            if column is None:  # no node has it any more, though pods with it run on
                return np.zeros_like(result)
            result &= self.free[:, column] >= amount
        return result

    def _shares(self, used: IntArray, names: Sequence[str]) -> FloatArray:
        """(N, K) shares in use of the resources named, of which (N, K) is used; 0 where a node has none."""
        total = self.nodes.total[:, [self.nodes.resource_index[name] for name in names]]
        return np.where(total > 0, used / np.maximum(total, 1), 0.0)

    def _requested(self, names: Sequence[str]) -> FloatArray:
        columns = [self.nodes.resource_index[name] for name in names]
        return self._shares(self.nodes.total[:, columns] - self.free[:, columns], names)

    def consumption(self, candidates: Sequence[int]) -> tuple[list[tuple[float, ...]], bool]:
        """R(w, t) of these nodes, to be compared, and whether it is by use (all of them were measured)."""
        gpus = [GPU] if GPU in self.nodes.resource_index else []
        if not self.measured[candidates].all():
            requested = self._requested([CPU, MEMORY, *gpus])[candidates]
            return [(most,) for most in requested.max(axis=1).tolist()], False
        shares = np.hstack([self._shares(self.use, (CPU, MEMORY)), self._requested(gpus)])[candidates]
        return [tuple(sorted(row, reverse=True)) for row in shares.tolist()], True

    def lightest(self, here: int, shape: Shape) -> tuple[int, str] | None:
        """Lines 2 to 21: the node with the least score and why it, None where the container's own is among them."""
        fits = self.fits(shape)
        fits[here] = True
        least = self.score[fits].min()
        candidates = [int(row) for row in np.flatnonzero(fits & (self.score == least))]
        if here in candidates:
            return None
        if len(candidates) == 1:
            return candidates[0], f"{self.name(candidates[0])} has the least score"
        consumption, measured = self.consumption(candidates)
        _, to = min(zip(consumption, candidates, strict=True))
        how = "is used least" if measured else "has the least requested"
        return to, f"of {len(candidates)} nodes with the least score {self.name(to)} {how}"

    def _used_by(self, job: Job, shape: Shape) -> tuple[int, int]:
        """cpu and memory of its only replica: as measured, else as requested."""
        pods = [member.pod for role in job.roles for member in role.on]
        requested = dict(shape.requests)
        asked = requested.get(CPU, 0), requested.get(MEMORY, 0)
        return self.of_pods.get((job.key.namespace, pods[0]), asked) if pods else asked

    def move(self, job: Job, to: int, why: str) -> Move:
        here, shape = self.row[job.key], job.roles[0].shape
        for row, sign in ((here, 1), (to, -1)):
            self.count[row] -= sign
            self.score[row] -= sign * self.weight(job)
            for resource, amount in shape.requests:
                self.free[row, self.nodes.resource_index[resource]] += sign * amount
            self.use[row] -= sign * np.array(self._used_by(job, shape))
        self.row[job.key] = to
        self.moved.add(job.key)
        return Move(job.key, job.roles[0].name, (self.name(to),), why=why)
