"""Gangs that change, go and come while answers about them are on their way: nothing that was decided is undone, and
nothing counts as recorded that is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.actions.told_later import KEPT_EVERY
from muster.core.ledger import Ledger
from muster.core.state.job_state import UNTOUCHED
from muster.points import Profile
from muster.types import DeleteGang, GangGone, GangRecord, GangSeen, Outcome, Phase, PodGone, WriteGang
from tests.cluster_fake import FakeCluster, Muster
from tests.core.state.test_restore import gang


@pytest.mark.parametrize("saved", [False, True], ids=["without a status", "with the status that it had"])
def test_a_gang_that_somebody_deletes_and_applies_again_changes_nothing_of_its_job(saved: bool) -> None:
    cluster = FakeCluster()
    cluster.job("train", 2)
    muster = Muster(cluster)
    muster.settle()
    known = gang(cluster, "job-train")
    (one,) = muster.ledger.entries.values()
    one.memory = {"a plugin": 1}
    before = one.observed, one.whole, one.started_at, one.story, one.backoff
    assert one.whole
    muster.ledger.apply(GangGone("team", known.name, known.object_uid), cluster.now)
    made = by_hand(cluster, known)
    if saved:
        made = replace(known, object_uid="by hand", version=cluster.tick(), backoff=6, story=(), whole=None)
    muster.ledger.apply(GangSeen(made), cluster.now)
    assert (one.observed, one.whole, one.started_at, one.story, one.backoff) == before
    cluster.gangs["team", "job-train"] = made
    cluster.now += KEPT_EVERY
    muster.settle()
    assert gang(cluster, "job-train").memory == {"a plugin": 1}, "it is written again"
    assert (gang(cluster, "job-train").whole, gang(cluster, "job-train").story) == (known.whole, known.story)


def by_hand(cluster: FakeCluster, old: GangRecord) -> GangRecord:
    """The Gang as somebody applies it, without a status."""
    return GangRecord(old.key, old.name, "by hand", owner=old.owner, version=cluster.tick())


def waits() -> tuple[FakeCluster, Muster, WriteGang]:
    """A job for which there is no room, and the first write of its Gang, which is not sent."""
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.job("train", 2, gpus=4)
    (write,) = decided(muster, cluster)
    return cluster, muster, write


def decided(muster: Muster, cluster: FakeCluster, job: str = "job-train") -> list[WriteGang]:
    """A turn in which writes of the Gang of this job are not sent."""
    cluster.now += 3.0
    muster.sync()
    snapshot = muster.ledger.snapshot(cluster.now)
    actions = muster.ledger.adopt(snapshot, muster.ledger.plan(snapshot))
    held = [a for a in actions if isinstance(a, WriteGang) and a.job.name == job]
    for action in actions:
        for event in cluster.carry_out(action) if action not in held else ():
            muster.ledger.apply(event, cluster.now)
    return held


def test_a_gang_that_was_made_though_the_answer_is_lost_is_not_written_again() -> None:
    cluster, muster, write = waits()
    seen, _ = cluster.carry_out(write)
    muster.ledger.apply(seen, cluster.now)
    muster.ledger.apply(Outcome(write, 0), cluster.now)
    assert decided(muster, cluster) == []


def test_places_of_a_gang_that_is_deleted_before_its_answer_comes_are_recorded_nowhere() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster, Profile(carried=0))
    cluster.job("train", 2, gpus=4)
    (write,) = decided(muster, cluster)
    answer = cluster.carry_out(write)
    made = cluster.gangs.pop(("team", write.gang))
    muster.ledger.apply(GangSeen(made), cluster.now)
    muster.ledger.apply(GangGone("team", made.name, made.object_uid), cluster.now)
    for event in answer:
        muster.ledger.apply(event, cluster.now)
    assert muster.ledger.proceed(cluster.now) == (), "no gate comes off"
    muster.settle()
    assert len(cluster.bound("train")) == 2, "it is written once more, and starts"


@pytest.mark.parametrize("pods_first", [False, True])
def test_the_next_job_of_a_name_has_nothing_of_the_one_that_ended_also_after_a_restart(
    pods_first: bool,
) -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    cluster.bare("x", "x", gpus=4)
    muster.settle()
    cluster.now += 1000
    for uid in list(cluster.pods):
        cluster.end(uid)
    muster.settle()
    cluster.now += 5
    assert [one.state for one in cluster.gangs.values()] == ["Finished"]
    cluster.pods.clear()
    cluster.now += 5
    cluster.bare("x", "x", gpus=4)
    ledger = Ledger(Profile())
    events = sorted(cluster.events(), key=lambda event: isinstance(event, GangSeen) == pods_first)
    for event in events:
        ledger.apply(event, cluster.now)
    ledger.take_over(cluster.now)
    (one,) = ledger.entries.values()
    assert (one.facts, one.started_at, one.story) == (UNTOUCHED, 0.0, ())


def test_a_gang_that_is_made_by_hand_while_a_write_is_answered_gets_its_status() -> None:
    cluster, muster, write = waits()
    answer = cluster.carry_out(write)
    old = gang(cluster, "job-train")
    cluster.gangs["team", "job-train"] = made = by_hand(cluster, old)
    for event in (GangGone("team", old.name, old.object_uid), GangSeen(made), *answer):
        muster.ledger.apply(event, cluster.now)
    for _ in range(5):
        muster.turn(seconds=3.0)
    assert gang(cluster, "job-train").state == "Waiting"


def test_a_gang_of_which_a_list_tells_the_new_one_before_the_old_one_is_gone_gets_its_status() -> None:
    cluster = FakeCluster()
    cluster.job("train", 2)
    muster = Muster(cluster)
    muster.settle()
    old = gang(cluster, "job-train")
    cluster.gangs["team", "job-train"] = made = by_hand(cluster, old)
    for event in (GangSeen(made), GangGone("team", old.name, old.object_uid)):
        muster.ledger.apply(event, cluster.now)
    muster.settle()
    assert gang(cluster, "job-train").state == "Running"


def test_a_job_whose_gang_is_deleted_and_gone_before_that_is_answered_is_forgotten() -> None:
    cluster = FakeCluster()
    cluster.job("train", 2)
    muster = Muster(cluster)
    muster.settle()
    for uid in list(cluster.pods):
        cluster.end(uid)
    muster.settle()
    cluster.pods.clear()
    cluster.owners.clear()
    muster.sync()
    cluster.now += 1e6
    snapshot = muster.ledger.snapshot(cluster.now)
    (delete,) = muster.ledger.adopt(snapshot, muster.ledger.plan(snapshot))
    assert isinstance(delete, DeleteGang)
    cluster.gangs.clear()
    muster.ledger.apply(GangGone("team", delete.gang, delete.object_uid), cluster.now)
    muster.ledger.snapshot(cluster.now)
    muster.ledger.apply(Outcome(delete, 200), cluster.now)
    muster.turn()
    assert muster.ledger.entries == {}


def test_the_next_job_of_a_name_waits_for_what_is_on_its_way_about_the_gang_of_the_last_one() -> None:
    """Else a placement of it could be written, a gate come off, and the deletion take it away."""
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster, Profile(carried=0))
    cluster.bare("x", "x", gpus=4)
    muster.settle()
    for uid in list(cluster.pods):
        cluster.end(uid)
    muster.settle()
    cluster.now += 1e6
    snapshot = muster.ledger.snapshot(cluster.now)
    (delete,) = muster.ledger.adopt(snapshot, muster.ledger.plan(snapshot))
    assert isinstance(delete, DeleteGang)
    cluster.pods.clear()
    cluster.bare("x", "x", gpus=4)
    for _ in range(3):
        muster.turn()
    assert {type(action) for action in muster.ledger.proceed(cluster.now)} == set()
    assert [pod.phase for pod in cluster.pods.values()] == [Phase.GATED]
    for event in cluster.carry_out(delete):
        muster.ledger.apply(event, cluster.now)
    muster.settle()
    assert len(cluster.bound("x")) == 1


@pytest.mark.parametrize("after", [0.0, 5.0], ids=["in the same second", "later"])
@pytest.mark.parametrize("follows", [False, True])
def test_a_replica_that_takes_over_gives_the_next_job_of_a_name_nothing_of_the_one_before(
    after: float, follows: bool
) -> None:
    """follows: it saw the Gang while the first one ran."""
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    cluster.bare("x", "x", gpus=4)
    muster.settle()
    second = Ledger(Profile())
    for event in cluster.events() if follows else ():
        second.apply(event, cluster.now)
    cluster.now = float(int(cluster.now) + 1000) + 0.2
    old = list(cluster.pods)
    for uid in old:
        cluster.end(uid)
    muster.settle()
    cluster.pods.clear()
    cluster.now += after
    pod = cluster.bare("x", "x", gpus=4)
    cluster.update(pod, created=float(int(cluster.now)))
    for event in (*cluster.events(), *(PodGone(uid) for uid in old)):
        second.apply(event, cluster.now)
    second.take_over(cluster.now)
    (one,) = second.entries.values()
    assert (one.facts, one.started_at, one.story, one.whole) == (UNTOUCHED, 0.0, (), None)
    assert one.submitted == float(int(cluster.now))
