"""What of Muster's answers counts for an agent, and what a training is sent when it is to stop. No process."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from muster.types.devices import HELD_PART, HOLD
from muster_report.agent.standing import Answer, Device, Order, Standing, read_answer
from muster_report.agent.stopping import Stop

A, B = Device("GPU-a", 5), Device("GPU-b", 7)
FIRST = Order(10, "me", (A,))
RUNNING = Standing("me").heard(Answer(2, 60.0, FIRST), 100.0, 101.0).carried_out(FIRST)


def test_an_answer_renews_the_lease_from_when_its_request_was_sent() -> None:
    assert Standing("me", 2, 160.0, None, 10, 10, 60.0, {"GPU-a": 5}) == RUNNING
    assert RUNNING.stop_by == 145.0  # a quarter of the lease for the training's end
    again = RUNNING.heard(Answer(3, 60.0), 120.0, 139.0)
    assert again == replace(RUNNING, term=3, until=180.0)


@pytest.mark.parametrize("lease", [30.0, 60.0, 3600.0])
def test_a_request_that_is_held_and_a_quarter_of_the_lease_without_an_answer_end_no_training(
    lease: float,
) -> None:
    held = min(HOLD, lease / HELD_PART)
    running = Standing("me").heard(Answer(2, lease, FIRST), 0.0, held)
    assert running.stop_by >= held + held + lease / 4


@pytest.mark.parametrize(
    ("answer", "sent", "now"),
    [
        (Answer(1, 60.0, Order(11, "me", (B,))), 120.0, 121.0),  # a leader that is over
        (Answer(2, 60.0, Order(11, "me", (B,))), 120.0, 180.0),  # we stood still until the lease had run out
    ],
)
def test_an_answer_that_does_not_count_renews_nothing(answer: Answer, sent: float, now: float) -> None:
    assert RUNNING.heard(answer, sent, now) is RUNNING


@pytest.mark.parametrize(
    "order",
    [
        Order(11, "another", (B,)),
        Order(10, "me", (B,)),
        Order(9, "me", ()),
        Order(11, "me", (Device("GPU-a", 4),)),
    ],
)
def test_an_order_that_does_not_count_changes_nothing_but_the_lease(order: Order) -> None:
    assert RUNNING.heard(Answer(2, 60.0, order), 120.0, 121.0) == replace(RUNNING, until=180.0)


def test_an_older_order_does_not_replace_one_that_is_being_carried_out() -> None:
    twelve = Order(12, "me", (B,))
    busy = RUNNING.heard(Answer(2, 60.0, twelve), 120.0, 121.0)
    assert busy.wanted == twelve
    assert busy.heard(Answer(2, 60.0, Order(11, "me", ())), 120.0, 121.0) == busy
    newer = busy.heard(Answer(2, 60.0, Order(13, "me", ())), 120.0, 121.0)
    assert newer.carried_out(twelve).wanted == newer.wanted  # what was done is not what is wanted now


def test_what_was_ordered_under_a_lease_that_is_over_must_be_ordered_again() -> None:
    twelve = Answer(2, 60.0, Order(12, "me", (B,)))
    lost = RUNNING.heard(twelve, 120.0, 121.0).expired()
    assert lost.wanted is None
    assert lost.heard(Answer(2, 60.0, Order(11, "me", (A,))), 190.0, 191.0).wanted is None  # a late one
    assert lost.heard(twelve, 190.0, 191.0).wanted == twelve.order


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"term": 1, "lease": "long"},
        {"term": 1, "lease": 60, "order": []},
        {"term": 1, "lease": 60, "order": {"number": 1, "incarnation": "me", "devices": [{"id": "GPU-a"}]}},
    ],
)
def test_what_is_no_answer_is_an_error_that_says_so(found: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected term, lease and order, found"):
        read_answer(found)


def test_a_training_is_asked_to_save_then_to_end_and_then_killed() -> None:
    stop = Stop(100.0, 30.0, signal.SIGUSR1)
    assert stop.signals(100.0, False) == [signal.SIGUSR1]
    assert stop.signals(114.9, False) == []
    assert stop.signals(115.0, False) == [signal.SIGTERM]  # it hangs at its checkpoint
    assert stop.signals(129.9, False) == []
    assert stop.signals(130.0, False) == [signal.SIGKILL]
    saved = Stop(100.0, 30.0, signal.SIGUSR1)
    assert [saved.signals(100.0, True), saved.signals(100.1, True)] == [[signal.SIGUSR1], [signal.SIGTERM]]
    assert Stop(100.0, 30.0).signals(100.0, False) == [signal.SIGTERM]
