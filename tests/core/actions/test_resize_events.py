"""Who is told of what: a change of size once, on the owner and the Gang; what waits on its first pod, too."""

from __future__ import annotations

from collections import Counter

import pytest

from muster.core.actions.resize_events import EVERY
from muster.points import Profile
from muster.types import Phase, RecordEvent
from muster_plugins.max_min import MaxMin
from muster_plugins.pack import Pack
from tests.cluster_fake import FakeCluster, Muster

MAX_MIN = Profile(name="max-min", scores=((Pack(), 1.0),), shares=(MaxMin(),))


def about(event: RecordEvent) -> str:
    return event.owner.kind if event.owner is not None else "Pod"


def said(cluster: FakeCluster, *reasons: str) -> list[tuple[str, str]]:
    """What was told of these reasons, and on what."""
    return [(about(event), event.message) for event in cluster.said if event.reason in reasons]


def resizes(cluster: FakeCluster) -> list[str]:
    """Changes of size as the Gangs' Events tell them; each was told of the owner, too, and of no pod."""
    found = said(cluster, "Grown", "Shrunk")
    of_gangs = [message for kind, message in found if kind == "Gang"]
    assert Counter(kind for kind, _ in found) == Counter({"Gang": len(of_gangs), "Job": len(of_gangs)})
    return of_gangs


def elastic(profile: Profile = MAX_MIN) -> tuple[FakeCluster, Muster]:
    """A job of 1 to 4 workers on 4 GPUs, which it has."""
    cluster = FakeCluster(nodes=1, gpus=4)
    muster = Muster(cluster, profile)
    cluster.job("a", 4, min_replicas="1", max_replicas="4")
    muster.settle()
    assert len(cluster.bound("a-")) == 4
    return cluster, muster


def passes(cluster: FakeCluster, muster: Muster, seconds: float = EVERY + 1) -> None:
    cluster.now += seconds
    muster.settle()


def test_a_start_is_no_growth() -> None:
    cluster, muster = elastic()
    passes(cluster, muster)
    assert resizes(cluster) == []


def test_a_job_that_shrinks_for_another_and_grows_again_says_so_with_sizes_and_why() -> None:
    cluster, muster = elastic()
    passes(cluster, muster)
    cluster.job("b", 2)
    muster.settle()
    assert resizes(cluster) == [
        "Shrunk from 4 to 2 workers: its share of the GPUs fell; 1 more GPU would speed it up by 50 %; "
        "all others are at their minimum"
    ]
    for pod in [p for p in cluster.pods.values() if p.name.startswith("b-")]:
        cluster.end(pod.uid)
    passes(cluster, muster)
    passes(cluster, muster)
    assert resizes(cluster)[1:] == ["Grown from 2 to 4 workers: its share of the GPUs grew; at its maximum"]
    passes(cluster, muster)
    assert len(resizes(cluster)) == 2


def test_changes_that_follow_each_other_are_told_together() -> None:
    cluster, muster = elastic()
    passes(cluster, muster)
    for number in range(10):
        cluster.job(f"b{number}", 2)
        muster.settle()
        for pod in [p for p in cluster.pods.values() if p.name.startswith(f"b{number}-")]:
            cluster.end(pod.uid)
        muster.settle()
        cluster.now += EVERY / 20
    assert len(resizes(cluster)) == 1, "ten times smaller and larger within half of EVERY"
    passes(cluster, muster)
    passes(cluster, muster)
    assert [message.split(":")[0] for message in resizes(cluster)] == [
        "Shrunk from 4 to 2 workers",
        "Grown from 2 to 4 workers",
    ]


def test_where_no_policy_shares_capacity_became_free() -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    (other,) = cluster.job("other", 1, gpus=2)
    muster = Muster(cluster)
    muster.settle()
    cluster.job("a", 4, min_replicas="1", max_replicas="4")
    muster.settle()
    cluster.end(other.uid)
    passes(cluster, muster)
    assert resizes(cluster) == ["Grown from 2 to 4 workers: capacity became free for it"]


def test_an_owner_that_asks_for_more_and_for_less_is_named() -> None:
    cluster = FakeCluster(nodes=1)
    owner = cluster.stateful_set("set", 2, min_replicas="1")
    muster = Muster(cluster)
    muster.settle()
    passes(cluster, muster)
    cluster.scale(owner, 4, min_replicas="1")
    muster.settle()
    cluster.now += EVERY
    cluster.scale(owner, 1)
    muster.settle()
    passes(cluster, muster)
    gangs = [message for kind, message in said(cluster, "Grown", "Shrunk") if kind == "Gang"]
    assert gangs == [
        "Grown from 2 to 4 workers: its owner wants 4 now",
        "Shrunk from 4 to 1 worker: its owner wants 1 now",
    ]


def test_replicas_that_have_run_to_their_end_make_a_job_no_smaller() -> None:
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("a", 4)
    muster = Muster(cluster)
    muster.settle()
    cluster.end(pods[0].uid)
    passes(cluster, muster)
    cluster.end(pods[1].uid)
    passes(cluster, muster)
    assert resizes(cluster) == []


def test_a_replica_that_crashes_and_comes_back_is_no_change_of_size() -> None:
    cluster, muster = elastic()
    passes(cluster, muster)
    pod = next(p for p in cluster.pods.values() if p.phase is Phase.BOUND)
    cluster.end(pod.uid, Phase.FAILED)
    passes(cluster, muster)
    passes(cluster, muster)
    assert len(cluster.bound("a-")) == 4
    assert resizes(cluster) == []


def test_a_change_that_a_restart_interrupts_is_told_by_the_next_leader() -> None:
    cluster, muster = elastic()
    passes(cluster, muster, 61)  # the Gang keeps what it was
    cluster.job("b", 2)
    muster.turn()
    cluster.now += 1
    after = Muster(cluster, MAX_MIN)
    after.settle()
    passes(cluster, after)
    assert [message.split(":")[0] for message in resizes(cluster)] == ["Shrunk from 4 to 2 workers"]


def test_what_waits_is_told_of_its_first_pod_its_owner_and_its_gang_once() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    cluster.job("b", 9)
    muster.settle()
    passes(cluster, muster)
    never = "all nodes together, empty, take 8 of 9 replicas; expected start: never, as the cluster is now"
    words = f"needs 9 GPUs (9 replicas of 1): {never}"
    assert said(cluster, "NeverFits") == [(kind, words) for kind in ("Pod", "Job", "Gang")]
    assert len(cluster.said) == 3


@pytest.mark.parametrize("owned", [True, False])
def test_what_starts_after_it_has_waited_is_told_of_the_owner_and_the_gang(owned: bool) -> None:
    cluster = FakeCluster(nodes=1)
    (first,) = cluster.job("first", 1, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    (pod,) = cluster.job("next", 1, gpus=8) if owned else [cluster.bare("next", "next", 8)]
    muster.settle()
    assert [kind for kind, _ in said(cluster, "Resources")] == ["Pod", *(["Job"] if owned else []), "Gang"]
    cluster.end(first.uid)
    muster.settle()
    assert [kind for kind, _ in said(cluster, "Starting")] == ["Job" if owned else "Pod", "Gang"]
    assert cluster.pods[pod.uid].phase is Phase.BOUND
