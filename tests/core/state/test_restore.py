"""What outlives a restart in the Gang, and what is written again when only sizes changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.types import (
    GangRecord,
    OwnerRecord,
    Phase,
    RecordEvent,
    WriteGang,
)
from tests.cluster_fake import FakeCluster, Muster


def gang(cluster: FakeCluster, name: str) -> GangRecord:
    return cluster.gangs[("team", name)]


def refused_once(cluster: FakeCluster, muster: Muster, name: str) -> str:
    """A gang of one whose first pin is refused and undone; the node that was refused."""
    (pod,) = cluster.job(name, 1, gpus=4)
    muster.turn()
    muster.turn()
    where = cluster.pods[pod.uid].pin
    assert where
    cluster.update(cluster.pods[pod.uid], refusal="node(s) didn't match pod anti-affinity rules")
    muster.turn()
    cluster.now += 5
    muster.turn()
    return where


def test_a_node_left_out_after_a_refusal_stays_left_out_across_a_restart() -> None:
    cluster = FakeCluster(nodes=2)
    muster = Muster(cluster)
    where = refused_once(cluster, muster, "train")
    (bar,) = gang(cluster, "job-train").node_backoffs
    assert (bar.role, bar.node, bar.length) == ("worker", where, 5.0)
    after = Muster(cluster)  # the next leader, a second later
    cluster.now += 1
    assert (
        where
        in after.ledger.snapshot(cluster.now).node_backoffs[
            (after.ledger.job_of[next(iter(cluster.pods))], "worker")
        ]
    )
    after.settle()
    (pod,) = cluster.pods.values()
    assert pod.phase is Phase.BOUND
    assert pod.node != where


def test_the_time_for_which_a_node_is_left_out_doubles_across_a_restart_too() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    where = refused_once(cluster, muster, "train")
    (first,) = gang(cluster, "job-train").node_backoffs
    cluster.now = first.until + 1
    after = Muster(cluster)  # the bar has run out, its length is remembered
    after.turn()
    after.turn()
    (pod,) = cluster.pods.values()
    assert pod.pin == where
    cluster.update(pod, refusal="again")
    after.turn()
    cluster.now += 5
    after.turn()
    (second,) = gang(cluster, "job-train").node_backoffs
    assert second.length == 2 * first.length


def test_a_waiting_gang_shows_its_new_size_when_its_owner_was_scaled() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 10
    (pod, *_) = cluster.job("elastic", 4, gpus=4, min_replicas="2")
    owner = pod.controller
    assert owner is not None
    muster.settle()
    assert gang(cluster, "job-elastic").sizes == (("worker", 2, 4),)
    writes = cluster.counts["gang-writes"]
    cluster.now += 10
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=8, completions=8)
    muster.settle()
    assert gang(cluster, "job-elastic").sizes == (("worker", 2, 8),)
    assert cluster.counts["gang-writes"] == writes + 1
    assert [s.reason for s in cluster.said if "elastic" in s.pod] == ["Resources"], (
        "no Event: it waits for the same"
    )


def with_one_that_waits() -> FakeCluster:
    """A node that `holder` fills, and `waits`, whose Gang says so."""
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 10
    cluster.job("waits", 3, gpus=4)
    muster.settle()
    return cluster


def test_a_restart_writes_nothing_for_a_gang_that_waits_as_before() -> None:
    cluster = with_one_that_waits()
    sent = len(cluster.sent)
    cluster.now += 10
    Muster(cluster).settle()
    assert not [a for a in cluster.sent[sent:] if isinstance(a, WriteGang)]


def test_a_gang_of_an_older_version_is_written_again_once_and_nothing_is_said() -> None:
    cluster = with_one_that_waits()
    before = dict(cluster.gangs)
    for name, record in before.items():
        cluster.gangs[name] = replace(record, old=True)
    sent = len(cluster.sent)
    cluster.now += 10
    after = Muster(cluster)
    after.settle()
    cluster.now += 10
    after.settle()
    again = cluster.sent[sent:]
    assert sorted(a.gang for a in again if isinstance(a, WriteGang)) == ["job-holder", "job-waits"]
    assert [a.status["code"] for a in again if isinstance(a, WriteGang)] == [None, None]
    assert not [a for a in again if isinstance(a, RecordEvent)]
    assert {name: replace(g, version="") for name, g in cluster.gangs.items()} == {
        name: replace(g, version="") for name, g in before.items()
    }


@pytest.mark.parametrize("state", ["Running", "Resizing", "", "Nonsense"])
def test_a_gang_that_was_edited_to_pause_what_runs_pauses_nothing(state: str) -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("train", 2, gpus=4)
    Muster(cluster).settle()
    key, found = next(iter(cluster.gangs.items()))
    cluster.gangs[key] = replace(found, state=state, not_before=cluster.now + 600)
    after = Muster(cluster)
    after.settle()
    assert len(cluster.bound("train")) == 2
    assert after.state("job-train") == "Running"
    assert after.ledger.take_faults() == []


def test_the_story_of_a_job_goes_on_after_a_restart() -> None:
    cluster = FakeCluster(nodes=1)
    first = cluster.job("first", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 5
    cluster.job("train", 2, gpus=4)
    muster.settle()
    after = Muster(cluster)
    for pod in first:
        cluster.end(pod.uid)
    after.settle()
    story = gang(cluster, "job-train").story
    assert [(step.event, step.state) for step in story] == [
        ("Queued", "Waiting"),
        ("Placed", "Starting"),
        ("Whole", "Running"),
    ]
    assert [step.at for step in story] == sorted(step.at for step in story)
    assert story[0].cause == "needs 8 GPUs (2 replicas of 4)"
