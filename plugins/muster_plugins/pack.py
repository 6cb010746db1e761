"""Score `pack`: few nodes for a job, full nodes for the cluster (the default).

A set of replicas that one node can take goes to the fullest node that takes it (best fit), so that whole
nodes stay free for large jobs. A set that needs several nodes goes first where most of it fits, so that it
spans the fewest. Nodes on which the job stands already come before all others: it grows there first.

"Full" is the used share of the resource that a replica is greedy for: its GPUs if it asks for any, else the
resource of which it asks the largest share of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.points import Candidates
from muster.types import FloatArray, Job, Nodes, Role, Shape, Snapshot


@dataclass(frozen=True, slots=True)
class Pack:
    """No parameters."""

    def score(self, job: Job, role: Role, candidates: Candidates, snapshot: Snapshot) -> FloatArray:  # noqa: ARG002
        """(N,) 0 to 100; 0 where no replica fits.

        Where some node takes all that is left: 50 for an empty one to 100 for a full one, 0 for those that
        don't. Where none does: by the replicas that fit, and among equals by fullness. Where the job stands already,
        these are halved, and its own nodes that take any have 50 more.
        """
        fits, own = candidates.fits, candidates.own > 0
        used = _used(candidates, greedy_for(role.shape, candidates.nodes))
        most = int(fits.max(initial=0))
        if most >= candidates.count:
            scores: FloatArray = (fits >= candidates.count) * (50.0 + 50.0 * used)
        else:
            scores = (fits > 0) * (fits + 0.5 * used) * (100.0 / (most + 1.0))
        if own.any():
            scores = 0.5 * scores + 50.0 * (own & (scores > 0.0))
        return scores


def greedy_for(shape: Shape, nodes: Nodes) -> int:
    """The column of the shape's dominant resource (ties: the first by name), -1 where it asks for nothing."""
    best, column = 0.0, -1
    for resource, amount in shape.requests:
        found = nodes.resource_index.get(resource)
        if found is None or amount <= 0:
            continue
        if nodes.devices.has(resource):
            return found
        share = amount / max(1, int(nodes.total[:, found].sum()))
        if share > best:
            best, column = share, found
    return column


def _used(candidates: Candidates, column: int) -> FloatArray:
    """(N,) used share of a column, from 0 to 1; 0 without a column and on nodes that have none of it."""
    if column < 0:
        return np.zeros(len(candidates.nodes), dtype=np.float64)
    total = candidates.nodes.total[:, column]
    left = np.clip(candidates.free[:, column], 0, total)
    share: FloatArray = 1.0 - left / np.maximum(total, 1)
    share[total == 0] = 0.0
    return share
