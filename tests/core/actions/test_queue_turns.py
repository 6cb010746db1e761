# Over 300 lines: all that is told of a turn, on one queue.
"""What a waiting job's Gang tells of its turn, and how many writes that costs: counted, however long the queue is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.actions.queue_turns import DRIFT, EVERY, WITHIN, WRITES
from muster.points import Profile
from muster.profiles import build
from muster.types import (
    AS_QUEUED,
    BEHIND,
    NEVER,
    QUEUE_TOLD,
    Action,
    GangRecord,
    Outcome,
    RecordEvent,
    WriteGang,
)
from tests.cluster_fake import FakeCluster, Muster


def gang(cluster: FakeCluster, name: str) -> GangRecord:
    return cluster.gangs[("team", f"job-{name}")]


def queue(length: int, gpus: int = 8, profile: Profile | None = None) -> tuple[FakeCluster, Muster]:
    """One node that "holder" has, and so many jobs that wait for it, in the order of their numbers."""
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 1, gpus=8, remaining_work="600")
    muster = Muster(cluster, profile)
    muster.settle()
    for number in range(length):
        cluster.now += 0.001
        cluster.job(f"w{number:03d}", 1, gpus=gpus, remaining_work="60")
    muster.settle()
    return cluster, muster


def look_and_tell(muster: Muster) -> None:
    """The queue is played forward, and what was found is told when it may be."""
    muster.look()
    muster.cluster.now += EVERY
    muster.settle()


def ends(cluster: FakeCluster, name: str) -> None:
    for pod in [p for p in cluster.pods.values() if p.name.startswith(f"{name}-") and not p.phase.ended]:
        cluster.end(pod.uid)


def positions(cluster: FakeCluster) -> dict[str, int]:
    return {name: one.turn.position for (_, name), one in cluster.gangs.items() if one.turn is not None}


def on_pod(cluster: FakeCluster, name: str) -> list[RecordEvent]:
    """Events on pods of a job."""
    return [said for said in cluster.said if said.job.name == f"job-{name}" and said.pod]


def only_turns(actions: list[Action]) -> list[WriteGang]:
    """Writes of Gangs that waited before and wait on."""
    return [a for a in actions if isinstance(a, WriteGang) and a.exists and a.turn is not None]


def test_the_first_write_has_position_and_what_fits() -> None:
    cluster, _ = queue(2)
    assert gang(cluster, "w000").turn == (1, "0 of 1 replica fits now", "", 0.0, "")
    assert gang(cluster, "w001").turn is not None
    assert positions(cluster) == {"job-w000": 1, "job-w001": 2}
    assert gang(cluster, "holder").turn is None


def test_who_has_what_it_needs_and_when_it_starts_follow_when_the_queue_was_played_forward() -> None:
    cluster, muster = queue(2)
    began = cluster.now
    events = len(cluster.said)
    look_and_tell(muster)
    first, second = gang(cluster, "w000").turn, gang(cluster, "w001").turn
    assert first is not None and second is not None  # noqa: PT018
    assert first.blocker == "8 GPUs that it could use are held by team/job-holder"
    assert first.expected == "by the run times that jobs declare or report; it may start sooner"
    assert first.start == pytest.approx(began + 600, abs=5)
    assert second.start == pytest.approx(first.start + 60, abs=5)
    assert len(cluster.said) == events, "no Event tells of it"


def test_an_event_brings_what_is_known_of_the_turn_and_none_is_sent_again_for_it() -> None:
    cluster, muster = queue(2, profile=Profile(order="strict"))
    told = [said.message for said in on_pod(cluster, "w001")]
    assert told == ["waits for the job at the head of the queue (order: strict); position 2 in the queue"]
    for _ in range(3):
        look_and_tell(muster)
    assert gang(cluster, "w001").turn.start, "it knows more now"  # type: ignore[union-attr]
    assert [said.message for said in on_pod(cluster, "w001")] == told
    ends(cluster, "holder")  # the second is the first, and what it waits for is another thing
    muster.settle()
    about = on_pod(cluster, "w001")[len(told) :]
    assert [(said.reason, said.message) for said in about] == [
        (
            "Resources",
            "needs 8 GPUs; 0 of 1 replica fits now; position 1 in the queue; "
            "expected to start at 13:57Z, "
            "by the run times that jobs declare or report; it may start sooner",
        )
    ]
    assert columns(cluster, "w001") == ("0/1", "by 13:57Z")
    owners = [said.message for said in cluster.said if said.owner is not None and said.owner.kind == "Job"]
    assert about[0].message in owners


def columns(cluster: FakeCluster, name: str) -> tuple[object, object]:
    """FREE and START of `kubectl get gangs`: what fits, and when it starts and how sure that is."""
    told = [a.status for a in cluster.sent if isinstance(a, WriteGang) and a.gang == f"job-{name}"][-1]
    return told["free"], told["start"]


def test_the_event_of_a_job_that_can_never_fit_has_no_position_and_says_never() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    cluster.job("huge", 1, gpus=9)
    muster.settle()
    (said,) = [said.message for said in on_pod(cluster, "huge")]
    assert said.endswith(f"expected start: {NEVER}")
    assert "position" not in said
    assert columns(cluster, "huge") == (None, "never")


def test_a_run_time_that_nobody_declares_is_said() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 1, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.job("w000", 1, gpus=8)
    muster.settle()
    look_and_tell(muster)
    turn = gang(cluster, "w000").turn
    assert turn is not None
    words = "not known: 1 job before it declares no run time (muster.dev/remaining-work)"
    assert (turn.start, turn.expected) == (0.0, words)
    assert columns(cluster, "w000") == ("0/1", "unknown")


def test_a_job_that_can_never_fit_has_no_position_and_no_expected_start_and_counts_for_nobody() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 1, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.job("huge", 1, gpus=9, priority=5)
    cluster.job("next", 1, gpus=8)
    muster.settle()
    look_and_tell(muster)
    assert positions(cluster) == {"job-huge": 0, "job-next": 1}
    turn = gang(cluster, "huge").turn
    assert turn is not None
    assert (turn.start, turn.expected) == (0.0, NEVER)


def test_behind_the_first_hundred_there_is_no_position_and_the_message_says_so() -> None:
    cluster, muster = queue(QUEUE_TOLD + 2)
    told = {a.gang: a.status for a in cluster.sent if isinstance(a, WriteGang)}
    assert told["job-w099"]["position"] == 100
    assert told["job-w099"]["message"] == "needs 8 GPUs"
    for number in (100, 101):
        status = told[f"job-w{number}"]
        assert (status["position"], status["expectedStart"]) == (None, None)
        assert status["message"] == f"needs 8 GPUs; {BEHIND}"
    ends(cluster, "holder")
    cluster.now += EVERY
    muster.settle()
    cluster.now += EVERY
    muster.settle()
    told = {a.gang: a.status for a in cluster.sent if isinstance(a, WriteGang)}
    assert (told["job-w100"]["position"], told["job-w100"]["message"]) == (100, "needs 8 GPUs")
    assert told["job-w101"]["message"] == f"needs 8 GPUs; {BEHIND}"


def test_a_job_that_others_overtake_loses_its_position() -> None:
    cluster, muster = queue(QUEUE_TOLD)
    cluster.now += WITHIN
    cluster.job("urgent", 1, gpus=8, priority=9)
    for _ in range(3):
        cluster.now += WITHIN
        muster.settle()
    assert gang(cluster, "urgent").turn == (1, "0 of 1 replica fits now", "", 0.0, "")
    last = gang(cluster, "w099").turn
    assert last is not None
    assert (last.position, last.expected) == (0, BEHIND)


def test_however_long_the_queue_and_whoever_starts_at_most_a_hundred_writes_in_thirty_seconds_tell_it() -> (
    None
):
    cluster, muster = queue(300)
    events = [a for a in cluster.sent if isinstance(a, RecordEvent)]
    written: list[float] = []
    for number in range(60):  # each second one ends and the next starts, so that all move up
        ends(cluster, "holder" if not number else f"w{number - 1:03d}")
        sent = len(cluster.sent)
        muster.look()
        for _ in range(2):  # one starts; then all starts are sent
            muster.turn(seconds=0.5)
            cluster.bind()
        written += [cluster.now] * len(only_turns(cluster.sent[sent:]))
    assert len(written) >= WRITES, "they are told"
    for at in written:
        assert sum(at <= other < at + WITHIN for other in written) <= WRITES
    after = [a for a in cluster.sent if isinstance(a, RecordEvent)]
    assert {a.reason for a in after[len(events) :]} <= {"Starting"}
    # and once it is quiet all is true
    for _ in range(8):
        cluster.now += WITHIN / 2
        muster.settle()
    wanted = {key.name: place for key, place in muster.plan.positions.items()}
    for name, place in wanted.items():
        assert positions(cluster)[name] == (place if place <= QUEUE_TOLD else 0), name


def test_none_is_sent_while_starts_wait_to_be_sent() -> None:
    cluster, muster = queue(10)
    ends(cluster, "holder")
    cluster.now += EVERY
    muster.sync()
    snapshot = muster.ledger.snapshot(cluster.now)
    plan = muster.ledger.plan(snapshot)
    starts = muster.ledger.adopt(snapshot, plan)
    assert only_turns(list(starts)) == []
    assert starts, "w000 starts"
    for _ in range(5):  # nothing is answered yet
        cluster.now += EVERY
        snapshot = muster.ledger.snapshot(cluster.now)
        assert only_turns(list(muster.ledger.adopt(snapshot, muster.ledger.plan(snapshot)))) == []
    for action in starts:
        for event in cluster.carry_out(action):
            muster.ledger.apply(event, cluster.now)
    cluster.now += EVERY
    muster.settle()
    cluster.now += EVERY
    muster.settle()
    assert positions(cluster) == {f"job-w{number:03d}": number for number in range(1, 10)}


def test_a_restart_and_time_that_goes_by_write_nothing() -> None:
    cluster, muster = queue(5)
    muster.look()
    for _ in range(3):
        cluster.now += EVERY
        muster.settle()
    sent = len(cluster.sent)
    after = Muster(cluster)
    for number in range(4):
        if number > 1:  # what was written holds until the queue was played forward again
            after.look()
        cluster.now += EVERY
        after.settle()
    assert [a for a in cluster.sent[sent:] if isinstance(a, WriteGang | RecordEvent)] == []


def test_a_start_that_is_expected_does_not_stay_in_the_past_where_nothing_happens() -> None:
    """The holder goes on for longer than it declared, and cycles are made when they are due only, as live."""
    cluster, muster = queue(2)
    look_and_tell(muster)
    quiet, early = cluster.now + 500, 0
    while cluster.now < quiet + 1000:
        cluster.now += 2 * EVERY
        turn = gang(cluster, "w000").turn
        assert turn is not None
        assert turn.start > cluster.now - DRIFT - 4 * EVERY, f"{cluster.now - turn.start:.0f} s ago"
        if muster.ledger.due(cluster.now):
            early += cluster.now < quiet
            muster.look()
            muster.settle()
    assert early < 5, "before that time there is nothing to look at"


def test_where_a_policy_has_another_order_than_the_queue_a_start_is_not_said_to_be_the_latest() -> None:
    """The first of the queue is expected to start when the holder ends; then it is the shorter one's turn."""
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 1, gpus=8, remaining_work="600")
    muster = Muster(cluster, replace(build("srtf"), conserving=True))
    muster.settle()
    for name, work in (("long", "6000"), ("short", "60")):
        cluster.now += 1.0
        cluster.job(name, 1, gpus=8, remaining_work=work)
    muster.settle()
    look_and_tell(muster)
    turn = gang(cluster, "long").turn
    assert turn is not None
    assert (turn.position, turn.expected) == (1, AS_QUEUED)
    assert str(columns(cluster, "long")[1]).startswith("about ")
    cluster.now = turn.start
    ends(cluster, "holder")
    muster.settle()
    assert (muster.state("job-long"), muster.state("job-short")) == ("Waiting", "Running")


def test_a_job_whose_share_is_0_is_told_what_fits_and_who_has_what_it_needs_as_all_others() -> None:
    share = replace(build("max-min"), conserving=True)
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 6, remaining_work="600")
    muster = Muster(cluster, share)
    muster.settle()
    cluster.job("waits", 3, remaining_work="60")
    muster.settle()
    look_and_tell(muster)
    turn = gang(cluster, "waits").turn
    assert gang(cluster, "waits").reason == "Share"
    assert turn is not None
    assert (turn.position, turn.fits) == (1, "2 of 3 replicas fit now")
    assert turn.blocker == "6 GPUs that it could use are held by team/job-holder"
    assert columns(cluster, "waits")[0] == "2/3"


def test_a_write_that_is_refused_is_made_again_and_counts() -> None:
    cluster, muster = queue(2)
    muster.look()
    cluster.now += EVERY
    snapshot = muster.ledger.snapshot(cluster.now)
    actions = muster.ledger.adopt(snapshot, muster.ledger.plan(snapshot))
    assert len(only_turns(list(actions))) == 2
    for action in actions:
        muster.ledger.apply(Outcome(action, 503), cluster.now)
    assert len(muster.ledger.turn_writes) == 2
    for _ in range(3):
        cluster.now += EVERY
        muster.settle()
    turn = gang(cluster, "w000").turn
    assert turn is not None
    assert turn.blocker
