"""Shares that change while a change is still being made: gates that come off, pods that are told to leave, late
answers. Whatever is overtaken, no place is planned twice, and nobody is ended for what another has lost."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from muster.points import Profile
from muster.types import Evict, Grant, Grants, Phase, SharingSnapshot, Ungate
from muster_plugins.optimus import Optimus
from muster_plugins.pack import Pack
from muster_plugins.resize_cost import ResizeCost
from tests.cluster_fake import FakeCluster, Muster
from tests.cluster_late import LateCluster, LateMuster


@dataclass
class Drawn:
    """Grants what was drawn last, by job name, as far as there are GPUs; each job on one node."""

    wanted: dict[str, int]

    def share(self, snapshot: SharingSnapshot) -> Grants:
        table = snapshot.table
        found = np.array([self.wanted[key.name.removeprefix("job-")] for key in table.keys], dtype=np.int64)
        while found.sum() > table.gpus:
            found[np.argmax(found)] //= 2
        return Grants(found, {row: Grant(max_nodes=1) for row in range(len(table))})


def jobs(
    seed: int, names: str, wanted: dict[str, int], resize: str, nodes: int = 2
) -> tuple[LateCluster, LateMuster]:
    cluster = LateCluster(random.Random(seed), nodes=nodes)
    for name in names:
        cluster.now += 1.0  # in this order
        notes = {"min_replicas": "1", "max_replicas": "8", "sizes": "1,2,4,8", "resize": resize}
        cluster.job(name, 8, **notes)
    drawn = Profile(name="drawn", scores=((Pack(), 1.0),), shares=(Drawn(wanted),), conserving=True)
    return cluster, LateMuster(cluster, drawn)


RESIZES = pytest.mark.parametrize("resize", ["restart", "in-place"])


def opening(muster: LateMuster) -> list[Ungate]:
    """The start of one job of eight: the gates that are to come off, once its first pod's has."""
    muster.cluster.rng.random = lambda: 0.9  # type: ignore[method-assign]  # nobody writes labels
    muster.turn()
    while muster.queue:
        muster.hear(muster.cluster.carry_out(muster.queue.pop(0)))
    muster.turn()
    gates = [action for action in muster.queue if isinstance(action, Ungate)]
    assert len(gates) == 7, "the first one carried the start"
    del muster.cluster.rng.random
    return gates


@RESIZES
def test_a_place_whose_gate_is_being_taken_off_is_not_free(resize: str) -> None:
    """The share is halved when three of eight gates were asked to come off and nothing was answered."""
    wanted = {"a": 8}
    cluster, muster = jobs(0, "a", wanted, resize)
    gates = opening(muster)
    unheard = [cluster.carry_out(action) for action in gates[:3]]
    wanted["a"] = 4
    muster.queue = gates[3:]
    muster.turn()
    (job,) = muster.ledger.snapshot(cluster.now).jobs.values()
    going = {action.uid for action in gates}
    assert not [m for m in job.roles[0].members if m.uid in going and m.phase is Phase.GATED]
    for events in unheard:
        muster.hear(events)
    for _ in range(20):
        muster.step(bad=False)
    assert len(cluster.bound("a-")) == 4
    assert sum(1 for pod in cluster.pods.values() if pod.phase is Phase.UNGATED) == 0


@RESIZES
def test_nor_is_it_free_where_all_of_the_job_is_sent_back(resize: str) -> None:
    """Seven gates are off, and their answers late, when another job is to have all: no node is planned twice."""
    wanted = {"a": 8, "b": 0}
    cluster, muster = jobs(0, "ab", wanted, resize, nodes=1)
    unheard = [cluster.carry_out(action) for action in opening(muster)]
    muster.queue.clear()
    wanted.update(a=0, b=8)
    for _ in range(3):
        cluster.now += 0.1
        muster.turn()
        while muster.queue:
            muster.hear(cluster.carry_out(muster.queue.pop(0)))
        cluster.check()
    for events in unheard:
        muster.hear(events)
    for _ in range(20):
        muster.step(bad=False)
    assert (len(cluster.bound("a-")), len(cluster.bound("b-"))) == (0, 8)


@pytest.mark.parametrize(
    ("phase", "resize"),
    [(Phase.SUCCEEDED, "in-place"), (Phase.SUCCEEDED, "restart"), (Phase.FAILED, "in-place")],
)
def test_replicas_that_have_ended_or_crashed_are_no_change_that_was_overtaken(
    phase: Phase, resize: str
) -> None:
    """Seven of eight go on, whatever their sizes are: nobody is ended for the one that is gone."""
    cluster = FakeCluster(nodes=1, gpus=8)
    profile = Profile(scores=((Pack(), 1.0),), shares=(Optimus(), ResizeCost()), conserving=True)
    muster = Muster(cluster, profile)
    notes = {"min_replicas": "1", "max_replicas": "8", "sizes": "1,2,4,8", "remaining_work": "40000"}
    cluster.job("a", 8, **notes, resize=resize)
    muster.settle(30)
    for _ in range(400):
        muster.turn(seconds=1.0)
        cluster.bind()
    running = [pod for pod in cluster.pods.values() if pod.phase is Phase.BOUND]
    assert len(running) == 8
    cluster.sent.clear()
    gone = cluster.update(running[0], phase=phase)
    for turn in range(12):
        muster.turn(seconds=0.3)
        if phase is Phase.FAILED and turn == 4:
            cluster.recreate(gone)
        cluster.bind()
    assert not [action for action in cluster.sent if isinstance(action, Evict)]
    assert sum(pod.phase is Phase.BOUND for pod in cluster.pods.values()) == 7 + (phase is Phase.FAILED)
