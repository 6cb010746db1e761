"""Answers in any order, conflicts, expired watches and lost terms: whatever the order, the end is the same.

The seed is part of a test's name: `pytest -k "bad and 17"` is that day again."""

from __future__ import annotations

import random

import pytest

from muster.points import Profile
from muster.types import GPU, Evict, Phase, PodRecord
from tests.cluster_late import LateCluster, LateMuster
from tests.table_of_states import under_way

GPUS = 32


def of_jobs(cluster: LateCluster) -> dict[str, list[PodRecord]]:
    """Pods that have not ended, by owner's name."""
    found: dict[str, list[PodRecord]] = {}
    for pod in cluster.pods.values():
        if not pod.phase.ended and pod.controller is not None:
            found.setdefault(pod.controller.name, []).append(pod)
    return found


def a_bad_day(seed: int, profile: Profile, priorities: list[int]) -> LateCluster:
    """Jobs come and end on a bad day; then a good one, long enough for every pause."""
    rng = random.Random(seed)
    cluster = LateCluster(rng)
    muster = LateMuster(cluster, profile)
    for number in range(rng.randint(3, 8)):
        cluster.job(
            f"train-{number}", rng.randint(1, 6), rng.choice([1, 2, 4, 8]), priority=rng.choice(priorities)
        )
    for step in range(120):
        if step in (40, 80):  # some end, and others come
            for pods in of_jobs(cluster).values():
                if rng.random() < 0.5 and all(pod.phase is Phase.BOUND and not pod.deleting for pod in pods):
                    for pod in pods:
                        cluster.end(pod.uid)
            cluster.job(
                f"late-{step}", rng.randint(1, 20), rng.choice([1, 2]), priority=rng.choice(priorities)
            )
        muster.step()
    for _ in range(200):
        muster.step(bad=False)
    assert (under_way(muster.ledger), muster.queue, muster.answers) == (set(), [], [])
    return cluster


def whole_or_waiting(cluster: LateCluster) -> None:
    """Every gang is bound whole or behind the gate whole, and none waits that fits into what is free."""
    free = {
        name: node.allocatable[GPU]
        - sum(p.shape.gpus for p in cluster.pods.values() if p.node == name and not p.phase.ended)
        for name, node in cluster.nodes.items()
    }
    for name, pods in of_jobs(cluster).items():
        phases = {pod.phase for pod in pods}
        assert phases in ({Phase.BOUND}, {Phase.GATED}), f"{name}: {sorted(p.phase.name for p in pods)}"
        fits = sum(capacity // pods[0].shape.gpus for capacity in free.values())
        assert phases == {Phase.BOUND} or fits < len(pods), f"{name} waits although there is room: {free}"


@pytest.mark.parametrize("seed", range(30))
def test_after_a_bad_day_every_gang_runs_whole_or_waits_whole_and_no_gpu_idles_for_one(seed: int) -> None:
    cluster = a_bad_day(seed, Profile(), [0])
    whole_or_waiting(cluster)
    assert not [a for a in cluster.sent if isinstance(a, Evict)], "nothing healthy was ended"


@pytest.mark.parametrize("seed", range(30))
def test_after_a_bad_day_with_preemption_gangs_are_whole_and_no_lower_one_keeps_a_higher_one_out(
    seed: int,
) -> None:
    cluster = a_bad_day(seed, Profile(preemption=True), [0, 10])
    whole_or_waiting(cluster)
    jobs = of_jobs(cluster)
    runs = {name: pods for name, pods in jobs.items() if pods[0].phase is Phase.BOUND}
    for name, pods in jobs.items():
        if name not in runs and pods[0].priority == 10:
            lower = sum(len(of) * of[0].shape.gpus for of in runs.values() if of[0].priority == 0)
            higher = sum(len(of) * of[0].shape.gpus for of in runs.values() if of[0].priority == 10)
            assert not lower or higher + len(pods) * pods[0].shape.gpus > GPUS - 8, name
