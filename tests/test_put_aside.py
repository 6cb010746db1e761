"""What the live driver says and counts of what the core puts aside."""

from __future__ import annotations

import logging
import time
from typing import cast

import pytest

from muster.cluster.api import Api
from muster.core import cycle as cycling
from muster.core.ledger import Ledger
from muster.core.views.view import Board, empty_view
from muster.live import Driver, Settled
from muster.points import Profile
from muster.types import JobKey
from tests.cluster_fake import FakeCluster


def observing(cluster: FakeCluster) -> tuple[Driver, list[str]]:
    """A driver that only plans, with what it counted as put aside."""
    settled = Settled(scheduler="muster", observe=True, lease_namespace="n", lease_name="l")
    driver = Driver(cast(Api, None), Board(empty_view(Profile())), settled, Profile())
    counted: list[str] = []
    driver.quarantined = counted.append
    for event in cluster.events():
        driver._ledger.apply(event, time.time())
    return driver, counted


def test_what_is_put_aside_is_counted_each_time_and_logged_once_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster()
    cluster.job("bad", 1, namespace="attacker")
    cluster.job("good", 1)
    admit = cycling.admit

    def raises(run: object, job: object) -> None:
        if job.key.name == "job-bad":  # type: ignore[attr-defined]
            raise ValueError("made up")
        admit(run, job)  # type: ignore[arg-type]

    monkeypatch.setattr(cycling, "admit", raises)
    driver, counted = observing(cluster)
    with caplog.at_level(logging.ERROR):
        driver._turn(None)
        ((key, kept),) = driver._ledger.quarantined.items()
        driver._ledger.quarantined[key] = kept._replace(until=time.time())  # its pause is over
        driver._ledger.dirty.add(key)
        driver._turn(None)
    assert counted == ["plan", "plan"]
    plan = driver._board.view.plan
    assert {key.name: str(status.reason) for key, status in plan.statuses.items()} == {
        "job-bad": "Internal",
        "job-good": "Binding",
    }
    assert caplog.text.count("put aside in plan: attacker/job-bad") == 1
    assert caplog.text.count("ValueError: made up") == 1


def test_where_no_view_can_be_made_the_last_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, counted = observing(FakeCluster())
    driver._turn(None)
    last = driver._board.view

    def raises(*_: object, **__: object) -> None:
        raise ValueError("made up")

    monkeypatch.setattr(Ledger, "view", raises)
    driver._turn(None)
    assert driver._board.view is last
    assert counted == ["view"]
    assert driver.cycles == 2


def test_cycles_of_which_no_view_can_be_made_are_not_good_ones_for_healthz(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The actions of each are sent all the same."""
    driver, counted = observing(FakeCluster())
    monkeypatch.setattr(Driver, "_await_lists", lambda _: None)

    def raises(*_: object, **__: object) -> None:
        if len(counted) == 2:
            driver._stop.set()
        raise ValueError("made up")

    monkeypatch.setattr(Ledger, "view", raises)
    driver._ledger.dirty.add(JobKey("team", "job"))
    began = driver._good
    driver.run()
    assert counted == ["view"] * 3, "it is tried again although nothing happens"
    assert driver._good == began
    (told,) = driver.ailing(began + 61.0, 60.0)
    assert told == "no good cycle for 61 s: no view could be made: ValueError: made up"
