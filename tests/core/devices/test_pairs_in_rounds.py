"""Two jobs in place on one GPU, by a policy that is asked once a round: who is to move there is not forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from muster.types import GPU_MEMORY, Grant, Grants, SharingSnapshot
from tests.cluster_fake import SlowEnds
from tests.core.devices.circle import Circle


@dataclass(frozen=True)
class PairsLater:
    """A GPU for each of the first two jobs, and from then on b beside a and d beside c."""

    at: float

    def share(self, snapshot: SharingSnapshot) -> Grants:
        keys = {key.name: key for key in snapshot.table.keys}
        if snapshot.now < self.at:
            first = np.array([row < 2 for row in range(len(keys))], dtype=np.int64)
            return Grants(first, whole=True)
        row = snapshot.table.row
        details = {row[keys[f"job-{b}"]]: Grant(beside=keys[f"job-{a}"]) for a, b in ("ab", "cd")}
        return Grants(np.ones(len(keys), dtype=np.int64), details, whole=True)


@pytest.mark.parametrize("ends", [0, 3])
def test_who_leaves_its_gpu_to_share_another_one_does_so_before_the_next_round(ends: int) -> None:
    """ends: s that its pod takes to."""
    circle, length = Circle(gpus=1, nodes=2), 1000.0
    if ends:
        circle.cluster = SlowEnds(nodes=2, gpus=1)
    for name, found in circle.cluster.nodes.items():
        circle.cluster.nodes[name] = replace(found, labels={**found.labels, GPU_MEMORY: "40960"})
    begins = (circle.cluster.now // length + 1) * length
    circle.cluster.now = begins - 30.0
    circle.profile = replace(circle.profile, shares=(PairsLater(begins),), round=length)
    circle.restart()
    for name in "abcd":
        circle.train(name, "1", **{"gpu-memory": "10Gi"})
    circle.seconds(20)
    assert [circle.using(name) for name in "abcd"] == [1, 1, 0, 0]
    circle.seconds(int(begins - circle.cluster.now) + ends)
    if isinstance(circle.cluster, SlowEnds):
        circle.cluster.over()
    circle.seconds(100)  # more than a lease
    assert [circle.using(name) for name in "abcd"] == [1, 1, 1, 1]
    jobs = circle.ledger.snapshot(circle.cluster.now).jobs
    beside = {key.name: job.grant.beside.name for key, job in jobs.items() if job.grant and job.grant.beside}
    assert beside == {"job-b": "job-a", "job-d": "job-c"}
