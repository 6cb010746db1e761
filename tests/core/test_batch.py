"""Batch sizes with the Ledger in the circle: granted, told where a pod starts, taken or not, and kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from muster.core.progress.batch import TAKES
from muster.points import Profile
from muster.types import Grant, Grants, Job, Report, SharingSnapshot, Ungate
from muster.types import Reported as Reported_
from muster_plugins.max_min import MaxMin
from muster_plugins.pack import Pack
from tests.cluster_fake import FakeCluster, Muster


@dataclass
class Larger:
    """MaxMin, with the largest batch size that each job can train with."""

    seen: list[Job] = field(default_factory=list)

    def share(self, snapshot: SharingSnapshot) -> Grants:
        found = MaxMin().share(snapshot)
        self.seen[:] = [snapshot.jobs[key] for key in snapshot.table.keys]
        sizes = {row: job.batch_sizes for row, job in enumerate(self.seen)}
        return replace(found, details={row: Grant(batch=max(of)) for row, of in sizes.items() if of})


@pytest.fixture
def policy() -> Larger:
    return Larger()


def circle(cluster: FakeCluster, policy: Larger) -> Muster:
    return Muster(cluster, Profile(name="larger", scores=((Pack(), 1.0),), shares=(policy,)))


def train(cluster: FakeCluster, **notes: str) -> None:
    cluster.job("a", 2, min_replicas="1", max_replicas="2", batch_sizes="128, 64", **notes)


def tell(muster: Muster, seconds: float, batch: int) -> None:
    """Replica 0 reports for so long, every ten seconds."""
    (first,) = (p.uid for p in muster.cluster.pods.values() if p.name == "a-0-1")
    for _ in range(int(seconds / 10.0)):
        muster.cluster.now += 10.0
        now = muster.cluster.now
        muster.ledger.apply(Reported_(first, Report(at=now, step=now, batch=batch)), now)
    muster.turn(seconds=10.0)


def test_a_granted_batch_size_is_written_where_a_pod_starts(policy: Larger) -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster)
    circle(cluster, policy).settle()
    assert [(action.pod, action.batch) for action in cluster.sent if isinstance(action, Ungate)] == [
        ("a-0-1", 128),
        ("a-1-2", 128),
    ]


def test_a_job_that_takes_what_it_is_told_is_known_by_it(policy: Larger) -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster)
    muster = circle(cluster, policy)
    muster.settle()
    tell(muster, 3 * TAKES, batch=128)
    (job,) = policy.seen
    assert (job.batch, job.batch_sizes, job.facts.batch_ignored) == (128, (64, 128), False)


def test_a_job_that_goes_on_with_its_own_counts_as_one_that_has_no_other_and_so_for_the_next_leader(
    policy: Larger,
) -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster)
    muster = circle(cluster, policy)
    muster.settle()
    tell(muster, TAKES - 20.0, batch=64)
    assert policy.seen[0].batch_sizes == (64, 128), "it may still be on its way"
    tell(muster, 60.0, batch=64)
    assert (policy.seen[0].batch, policy.seen[0].batch_sizes) == (64, ())
    muster.settle(turns=20, seconds=10.0)
    again = circle(cluster, policy)
    again.turn()
    assert (policy.seen[0].batch, policy.seen[0].batch_sizes) == (64, ())


def test_a_job_that_took_its_size_and_begins_again_with_its_own_has_as_long_as_one_that_is_told_first(
    policy: Larger,
) -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster)
    muster = circle(cluster, policy)
    muster.settle()
    for _ in range(2):  # as a training does that reads its answer only after its first report
        tell(muster, 3 * TAKES, batch=128)
        tell(muster, TAKES - 20.0, batch=64)
        assert policy.seen[0].batch_sizes == (64, 128)
    tell(muster, 60.0, batch=64)
    assert policy.seen[0].batch_sizes == ()


def test_a_job_that_is_granted_no_size_is_not_judged() -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster)
    muster = Muster(cluster, Profile(name="plain", scores=((Pack(), 1.0),), shares=(MaxMin(),)))
    muster.settle()
    tell(muster, 3 * TAKES, batch=128)
    tell(muster, 3 * TAKES, batch=64)
    (job,) = muster.ledger.entries.values()
    assert not job.facts.batch_ignored


def test_a_job_that_is_restarted_for_changes_is_judged_only_by_a_run_that_began_with_what_it_was_told(
    policy: Larger,
) -> None:
    cluster = FakeCluster(nodes=1)
    train(cluster, resize="restart")
    muster = circle(cluster, policy)
    muster.settle()
    (job,) = muster.ledger.entries.values()
    job.desired.batch_since = cluster.now + 1.0  # told while it runs
    tell(muster, 3 * TAKES, batch=64)
    assert policy.seen[0].batch_sizes == (64, 128)
    job.desired.batch_since = 0.0
    tell(muster, TAKES + 20.0, batch=64)
    assert policy.seen[0].batch_sizes == ()
