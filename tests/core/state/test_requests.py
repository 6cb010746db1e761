"""Requests about one object, and where they are when their pod goes, or becomes another job's, before the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.state.in_flight import IDLE, InFlight, Request
from muster.errors import InvariantError
from muster.types import Evict, Nominate, Outcome, PodGone, PodSeen, Ungate
from tests.cluster_fake import FakeCluster, Muster
from tests.table_of_states import under_way


def test_a_request_is_sent_and_taken_or_refused_and_sent_again() -> None:
    sent = IDLE.sends(Ungate)
    assert sent == Request(Ungate)
    assert sent.refused(Ungate, 100.5, 1) == Request(None, 100.5, 1)
    assert sent.refused(Ungate, 100.5, 1).sends(Ungate).taken(Ungate) == Request(None, 100.5, 0)
    assert sent.dropped() == IDLE


def test_a_second_request_is_not_sent_while_one_is_under_way() -> None:
    with pytest.raises(InvariantError, match="Evict is sent while Ungate is under way"):
        IDLE.sends(Ungate).sends(Evict)


def test_an_answer_of_an_earlier_term_ends_no_other_request() -> None:
    assert IDLE.sends(Evict).taken(Ungate).sent is Evict
    assert IDLE.sends(Evict).refused(Ungate, 3.0, 1).sent is Evict


def test_a_nomination_may_be_followed_by_the_next_request_some_seconds_later() -> None:
    assert IDLE.sends(Nominate, 5.0).taken(Nominate) == Request(None, 5.0, 0)


def test_what_is_idle_is_not_kept() -> None:
    kept = InFlight()
    kept.keep("uid", IDLE.sends(Ungate))
    kept.keep("uid", kept.of("uid").taken(Ungate))
    assert kept == InFlight()


def test_dropped_is_all_that_is_awaited_and_no_pause() -> None:
    kept = InFlight(IDLE.sends(Evict), IDLE.sends(Evict), start=True, again=True)
    kept.lose()
    kept.pods = {"sent": IDLE.sends(Ungate), "refused": Request(None, 9.0, 2)}
    kept.drop()
    assert kept == InFlight(pods={"refused": Request(None, 9.0, 2)})


def started() -> tuple[FakeCluster, Muster, Ungate]:
    """A job of two, of which the first gate is being taken off."""
    cluster = FakeCluster()
    cluster.job("train", 2)
    muster = Muster(cluster)
    muster.sync()
    snapshot = muster.ledger.snapshot(cluster.now)
    (ungate,) = (
        action
        for action in muster.ledger.adopt(snapshot, muster.ledger.plan(snapshot))
        if isinstance(action, Ungate)
    )
    assert under_way(muster.ledger) == {("Ungate", ungate.uid)}
    return cluster, muster, ungate


def test_a_request_goes_with_its_pod_to_another_job_and_its_answer_is_found_there() -> None:
    cluster, muster, ungate = started()
    pod = cluster.pods[ungate.uid]
    other = replace(pod, labels={**pod.labels, "muster.dev/job": "other"}, version=cluster.tick())
    muster.ledger.apply(PodSeen(other), cluster.now)
    key = muster.ledger.job_of[pod.uid]
    assert key.name == "other"
    assert muster.ledger.entries[key].in_flight.of(pod.uid).sent is Ungate
    assert not muster.ledger.entries[ungate.job].in_flight.pods
    muster.ledger.apply(Outcome(ungate, 409), cluster.now)
    assert muster.ledger.entries[key].in_flight.pods == {pod.uid: Request(None, cluster.now + 0.5, 1)}


def test_a_pod_that_is_gone_takes_its_request_along_and_the_answer_comes_to_nothing() -> None:
    cluster, muster, ungate = started()
    muster.ledger.apply(PodGone(ungate.uid), cluster.now)
    assert under_way(muster.ledger) == set()
    muster.ledger.apply(Outcome(ungate, 500), cluster.now)
    assert not muster.ledger.entries[ungate.job].in_flight.pods
