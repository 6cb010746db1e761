"""Owners that name each other as controllers: across namespaces such a reference counts for nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from muster.core.workload.identity import OWNERS, topmost
from muster.types import Owner, OwnerRecord, OwnerSeen, Phase
from tests.cluster_fake import FakeCluster, Muster

NOTHING = "nobody.io/v1", "Nothing"


def suspended_below(uid: str, namespace: str = "evil") -> OwnerRecord:
    """A suspended Job that says that who has this uid controls it."""
    return OwnerRecord(
        Owner("batch/v1", "Job", "x", "x-uid"),
        namespace,
        size=1,
        completions=1,
        parent=Owner(*NOTHING, "n", uid),
        suspended=True,
    )


def test_a_suspended_job_of_another_namespace_suspends_nobody() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 4)
    (uid,) = cluster.owners
    cluster.owners["x-uid"] = suspended_below(uid)
    muster = Muster(cluster)
    muster.settle()
    assert (muster.state("job-train"), len(cluster.bound("train"))) == ("Running", 4)


def test_a_running_gang_gets_its_lost_replica_whoever_elsewhere_names_it_as_controller() -> None:
    cluster = FakeCluster(nodes=2)
    lost = cluster.job("train", 4)[0]
    (uid,) = cluster.owners
    muster = Muster(cluster)
    muster.settle()
    cluster.owners["x-uid"] = suspended_below(uid)
    cluster.end(lost.uid, Phase.FAILED)
    muster.settle()
    assert (muster.state("job-train"), len(cluster.bound("train"))) == ("Running", 4)


def test_what_a_job_of_the_same_namespace_owns_still_suspends_it() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 4)
    (uid,) = cluster.owners
    cluster.owners["x-uid"] = suspended_below(uid, "team")
    muster = Muster(cluster)
    muster.settle()
    assert cluster.bound("train") == []


def serve(cluster: FakeCluster) -> Owner:
    """A Deployment of 3, with its ReplicaSet and pods."""
    deployment = Owner("apps/v1", "Deployment", "serve", "d")
    replica_set = Owner("apps/v1", "ReplicaSet", "serve-1", "r")
    cluster.owners |= {
        "d": OwnerRecord(deployment, "team", size=3),
        "r": OwnerRecord(replica_set, "team", size=3, parent=deployment),
    }
    for index in range(3):
        cluster.pod(replica_set, index)
    return deployment


@pytest.mark.parametrize(("namespace", "size", "most"), [("evil", 1_000_000, 3), ("team", 1, 4)])
def test_a_replicaset_of_another_namespace_is_no_rollout(namespace: str, size: int, most: int) -> None:
    cluster = FakeCluster(nodes=2)
    deployment = serve(cluster)
    other = Owner("apps/v1", "ReplicaSet", "x", "x")
    cluster.owners["x"] = OwnerRecord(other, namespace, size=size, parent=deployment)
    muster = Muster(cluster)
    muster.settle()
    (role,) = muster.ledger.jobs[muster.key("deployment-serve")].roles
    assert (muster.state("deployment-serve"), role.max) == ("Running", most)


def test_pods_below_an_owner_that_names_one_of_another_namespace_are_jobs_of_their_own() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 2)
    (uid,) = cluster.owners
    mine = Owner("batch/v1", "Job", "mine", "mine")
    cluster.owners["mine"] = OwnerRecord(
        mine, "evil", size=2, completions=2, parent=Owner("batch/v1", "Job", "train", uid)
    )
    for index in range(2):
        cluster.pod(mine, index, namespace="evil")
    muster = Muster(cluster)
    muster.settle()
    assert {(key.namespace, key.name, key.uid) for key in muster.plan.statuses} == {
        ("team", "job-train", uid),
        ("evil", "job-mine", "mine"),
    }
    assert (len(cluster.bound("train")), len(cluster.bound("mine"))) == (2, 2)


def test_what_a_watch_delivers_stays_known_whatever_kind_a_pod_of_another_namespace_calls_it() -> None:
    """A pod that names a Job's uid under a kind that no watch delivers has that looked for, and is deleted."""
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 4, exist=2)
    (uid,) = cluster.owners
    muster = Muster(cluster)
    muster.turn()
    called = Owner(*NOTHING, "train", uid)
    pod = cluster.pod(called, 0, namespace="evil")
    muster.turn()
    assert uid not in muster.ledger.owners.unknown
    muster.ledger.apply(OwnerSeen(OwnerRecord(called, "evil")), cluster.now)
    del cluster.pods[pod.uid]
    muster.turn()
    assert muster.ledger.owners.records[uid] == cluster.owners[uid]


def test_a_job_that_is_seen_after_who_names_it_under_another_kind_stays_known() -> None:
    cluster = FakeCluster(nodes=2)
    called = Owner(*NOTHING, "train", "train-uid")
    pod = cluster.pod(called, 0, namespace="evil")
    muster = Muster(cluster)
    muster.turn()
    assert "train-uid" in muster.ledger.owners.unknown
    job = Owner("batch/v1", "Job", "train", "train-uid")
    cluster.owners["train-uid"] = OwnerRecord(job, "team", size=2, completions=2)
    muster.turn()
    del cluster.pods[pod.uid]
    for index in range(2):
        cluster.pod(job, index)
    muster.settle()
    assert muster.ledger.owners.records["train-uid"] == cluster.owners["train-uid"]
    assert len(cluster.bound("train-0") + cluster.bound("train-1")) == 2


def test_a_chain_of_owners_is_followed_so_far_and_no_farther() -> None:
    """Suspended Jobs that own each other are legal objects, and all of them are passed for each pod."""
    chain = [Owner("batch/v1", "Job", f"j{n}", f"j{n}") for n in range(1000)]
    owners = {one.uid: OwnerRecord(one, "team", parent=above) for one, above in pairwise(chain)}
    cluster = FakeCluster(nodes=1)
    top = topmost(cluster.pod(chain[0], 0), owners)
    assert top is not None
    assert top == chain[OWNERS]
    assert topmost(cluster.pod(chain[990], 0), owners) == chain[999]


def test_one_pod_of_a_higher_class_lifts_no_gang() -> None:
    cluster = FakeCluster(nodes=2)
    first, *_ = cluster.job("train", 4)
    cluster.update(first, priority=1000)
    muster = Muster(cluster)
    muster.settle()
    assert muster.ledger.jobs[muster.key("job-train")].priority == 0
