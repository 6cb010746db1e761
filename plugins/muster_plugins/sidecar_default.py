"""`sidecar-default`: what the SideCar paper calls Kubernetes's default scheduler.

Source: papers/adaptive-gpu-scheduler-sidecar, V-B and VI-A: "the number of GPUs allocated to each job is randomly
chosen from the optional numbers of GPUs", stays as it is, and jobs that don't fit are skipped ("out-of-order
scheduling": "if a new job that requests 2 GPUs is submitted, the new job is scheduled before the 8-GPU job").

This is not `kube-default` (pods bound one by one): a job of this paper is one container with all its GPUs, so one
pod, which fits on a node or waits. The node is the one with most idle GPUs, as kube-scheduler spreads by default
(ties by name). On a cluster, which leaves no GPU idle that a job may use, a job that waits doesn't start on two nodes
either. The number is drawn from the seed and the job's key, so it is the same whatever else happens; of the numbers
that some node has at all (the paper's nodes have all of them), for a larger one would wait for ever.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from muster.core.reasons.words import plural
from muster.types import Grant, Grants, JobKey, SharingSnapshot
from muster_plugins.reshape import Reshape


@dataclass(frozen=True, slots=True)
class SidecarDefault:
    """draw: whether the number is drawn from the allowed counts; else it is the job's request. seed: of the draw."""

    draw: bool = True
    seed: int = 0
    ONLY_WITH: ClassVar[Mapping[str, str]] = {"seed": "draw"}

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Each job that waits, by submission, gets its number if a node has that many idle GPUs."""
        table = snapshot.table
        scene = Reshape().scene(snapshot)
        replicas = table.have.copy()
        grants: dict[int, Grant] = {}
        why: dict[int, str] = {}
        for standing in scene.jobs:
            if not standing.count:
                request = int(table.request[standing.row])
                possible = tuple(n for n in standing.sizes if n * standing.unit <= table.per_node)
                count = (
                    drawn(possible or standing.sizes, self.seed, standing.job.key) if self.draw else request
                )
                node = min(scene.idle, key=lambda n: (-scene.idle[n], n), default="")
                if not node or scene.idle[node] < count * standing.unit:
                    grants[standing.row] = Grant(max_nodes=1)
                    why[standing.row] = f"no node has {plural(count * standing.unit, 'idle GPU')}"
                    continue
                scene.give(standing, count, node)
            replicas[standing.row] = standing.count
            grants[standing.row] = Grant(max_nodes=1, product=scene.product.get(standing.node, ""))
        return Grants(replicas, grants, why, whole=True)


def drawn(sizes: tuple[int, ...], seed: int, key: JobKey) -> int:
    """One of the allowed counts, each as likely."""
    generator = np.random.default_rng([seed, zlib.crc32(f"{key.namespace}/{key.name}".encode())])
    return int(sizes[int(generator.integers(len(sizes)))])
