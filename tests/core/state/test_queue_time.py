"""Since when a job is in the queue: nobody keeps a place in it with a job that can't start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.points import Profile
from muster.types import Phase
from tests.cluster_fake import FakeCluster, Muster

PATIENCE = Profile().incomplete
TWO = {"roles": "worker=2"}


def order(muster: Muster) -> list[str]:
    """Names of the waiting jobs, first first."""
    muster.turn()
    return [key.name for key in muster.plan.order]


def told(cluster: FakeCluster) -> list[str]:
    found = [say for say in cluster.said if say.reason in ("IncompleteTooLong", "QueuesFromNow")]
    return [say.reason for say in found if say.pod]


def full(nodes: int = 1) -> tuple[FakeCluster, Muster]:
    """All GPUs are in use, so jobs wait."""
    cluster = FakeCluster(nodes=nodes)
    cluster.job("running", nodes, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    return cluster, muster


def test_a_job_that_was_not_whole_for_too_long_queues_from_when_it_is() -> None:
    cluster, muster = full()
    cluster.bare("sly-0", "sly", 4, **TWO)
    order(muster)
    cluster.now += 10
    cluster.job("patient", 1, gpus=8)
    order(muster)
    cluster.now += PATIENCE
    assert order(muster) == ["job-patient"]
    assert told(cluster) == ["IncompleteTooLong"]
    cluster.bare("sly-1", "sly", 4, **TWO)
    assert order(muster) == ["job-patient", "sly"]
    assert told(cluster) == ["IncompleteTooLong", "QueuesFromNow"]
    assert [say.message for say in cluster.said if say.reason == "QueuesFromNow"][-1] == (
        "the job is whole now, after 10m in which it was not: its place in the queue counts from now"
    )


def test_a_restart_gives_no_place_back() -> None:
    cluster, muster = full()
    cluster.bare("sly-0", "sly", 4, **TWO)
    order(muster)
    cluster.now += 10
    cluster.job("patient", 1, gpus=8)
    order(muster)
    cluster.now += PATIENCE / 2
    muster = Muster(cluster)  # in the middle: the clock goes on
    order(muster)
    cluster.now += PATIENCE / 2
    order(muster)
    cluster.bare("sly-1", "sly", 4, **TWO)
    assert order(muster) == ["job-patient", "sly"]
    assert order(Muster(cluster)) == ["job-patient", "sly"]


def test_a_job_that_is_whole_in_time_keeps_its_place() -> None:
    cluster, muster = full()
    cluster.bare("slow-0", "slow", 4, **TWO)
    order(muster)
    cluster.now += 10
    cluster.job("patient", 1, gpus=8)
    cluster.now += PATIENCE - 20
    order(muster)
    cluster.bare("slow-1", "slow", 4, **TWO)
    assert order(muster) == ["slow", "job-patient"]
    cluster.now += 10 * PATIENCE
    assert order(muster) == ["slow", "job-patient"], "waiting whole costs nothing"


def test_another_gate_is_the_job_s_own_doing_whoever_makes_its_pods() -> None:
    cluster, muster = full()
    held = [cluster.update(pod, phase=Phase.HELD) for pod in cluster.job("held", 1, gpus=8)]
    order(muster)
    cluster.now += 10
    cluster.job("patient", 1, gpus=8)
    order(muster)
    cluster.now += PATIENCE
    order(muster)
    cluster.update(held[0], phase=Phase.GATED)
    assert order(muster) == ["job-patient", "job-held"]


def test_an_owner_that_creates_what_is_missing_costs_its_job_nothing() -> None:
    cluster, muster = full(2)
    pods = cluster.job("late", 2, gpus=8, exist=1)
    order(muster)
    cluster.now += 1
    cluster.job("patient", 2, gpus=8)
    order(muster)
    cluster.now += 2 * PATIENCE
    order(muster)
    owner = pods[0].controller
    assert owner is not None
    cluster.pod(owner, 1, 8)
    assert order(muster) == ["job-late", "job-patient"]
    assert told(cluster) == []


def gang_says(cluster: FakeCluster, name: str, **what: object) -> None:
    """Somebody writes the Gang, and the next leader reads it."""
    key = ("team", name)
    cluster.gangs[key] = replace(cluster.gangs[key], version=cluster.tick(), **what)  # type: ignore[arg-type]


@pytest.mark.parametrize("owned", [True, False])
def test_a_back_dated_gang_is_believed_no_further_than_its_job_can_be_old(owned: bool) -> None:
    cluster, muster = full()
    cluster.now += 10 * PATIENCE
    cluster.job("patient", 1, gpus=8)
    order(muster)
    cluster.now += PATIENCE + 10
    if owned:
        pods = cluster.job("sly", 1, gpus=8)
        owner = pods[0].controller
        assert owner is not None
        cluster.owners[owner.uid] = replace(cluster.owners[owner.uid], created=cluster.now)
    else:
        cluster.bare("sly", "sly", 8)
    order(muster)
    name = "job-sly" if owned else "sly"
    gang_says(cluster, name, submitted=1.0)
    assert order(muster) == ["job-patient", name], "who leads has its own memory"
    assert order(Muster(cluster)) == ["job-patient", name]


def test_the_place_of_a_pod_that_was_replaced_is_kept_by_its_gang() -> None:
    cluster, muster = full()
    pods = cluster.job("old", 1, gpus=8)
    owner = pods[0].controller
    assert owner is not None
    cluster.owners[owner.uid] = replace(cluster.owners[owner.uid], created=cluster.now)
    order(muster)
    cluster.now += 10
    cluster.job("patient", 1, gpus=8)
    order(muster)
    cluster.now += 10
    cluster.delete(pods[0].uid)  # its owner makes another one
    assert order(Muster(cluster)) == ["job-old", "job-patient"]


def test_a_pod_older_than_its_owner_brings_no_place_along() -> None:
    """An owner reference can be written at any time, so a pod that has waited for a week may join a Job of today."""
    cluster, muster = full()
    aged = cluster.bare("aged", "aged", 8)
    cluster.update(aged, labels={})
    cluster.now += 10
    cluster.job("patient", 1, gpus=8)
    order(muster)
    cluster.now += 10
    pods = cluster.job("today", 1, gpus=8)
    owner = pods[0].controller
    assert owner is not None
    cluster.owners[owner.uid] = replace(cluster.owners[owner.uid], size=2, completions=2, created=cluster.now)
    cluster.update(cluster.pods[aged.uid], controller=owner)
    assert order(muster) == ["job-patient", "job-today"]
