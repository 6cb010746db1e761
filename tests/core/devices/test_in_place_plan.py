"""Jobs in place, planned by max-min: their GPUs change while their pod goes on (tests/core/devices/circle.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.core.devices import slots
from muster.core.devices.node_steps import NodeSteps
from muster.core.plain_values import built_of, plain_of
from muster.core.state.quarantine import set_aside
from muster.points import Profile
from muster.types import Job, OwnerGone, Phase, Shape, State
from muster_plugins.afs_l import AfsL
from tests.core.devices.circle import Circle
from tests.core.devices.world import GRACE, LEASE


def test_a_job_starts_with_all_that_is_free_and_its_pod_asks_for_no_gpu() -> None:
    circle = Circle()
    circle.train("a", "1-4")
    circle.seconds(6)
    assert circle.using("a") == 4
    status = circle.plan.statuses[circle.key("job-a")]
    assert (status.state, status.message[:20]) == (State.RUNNING, "in place: no GPU yet")


def test_a_second_job_starts_before_the_first_gives_and_no_pod_of_either_ends() -> None:
    circle = Circle()
    a = circle.train("a", "1-4")
    circle.seconds(6)
    b = circle.train("b", "1-4")
    circle.slow.add(b.uid)  # its agent is ready, and takes its time
    circle.seconds(1)
    assert circle.cluster.pods[b.uid].phase is Phase.BOUND
    assert circle.using("a") == 4
    circle.slow.clear()
    circle.seconds(5)
    assert (circle.using("a"), circle.using("b")) == (2, 2)
    assert {a.uid, b.uid} <= circle.cluster.pods.keys()
    assert len(circle.records) == 4, "no holder came or went"


def both(a: str = "1-4", b: str = "1-4") -> Circle:
    """Two jobs share a node of four GPUs."""
    circle = Circle()
    circle.train("a", a)
    circle.seconds(6)
    circle.train("b", b)
    circle.seconds(8)
    return circle


def test_a_job_of_which_nothing_has_changed_is_the_very_same_in_the_next_plan_and_in_a_dump_of_it() -> None:
    circle = both()
    key = circle.key("job-a")
    before = circle.ledger.snapshot(circle.cluster.now)
    after = circle.ledger.snapshot(circle.cluster.now + 5.0)
    assert after.jobs[key] is before.jobs[key]
    shapes: dict[Shape, int] = {}
    plain = json.loads(json.dumps(plain_of(after.jobs[key], shapes), allow_nan=False))
    assert built_of(plain, Job, list(shapes)) == after.jobs[key]
    circle.cluster.end(circle.pod("b").uid)
    circle.seconds(6)
    assert circle.ledger.snapshot(circle.cluster.now).jobs[key] is not before.jobs[key]


def test_a_job_takes_up_what_another_leaves_long_after_its_owner_made_its_last_pod() -> None:
    circle = both()
    circle.seconds(30)
    circle.cluster.end(circle.pod("b").uid)
    circle.seconds(6)
    assert (circle.using("a"), circle.using("b")) == (4, 0)


def test_it_goes_through_numbers_only_that_it_can_train_on() -> None:
    circle = Circle()
    circle.train("a", "1,4")
    circle.seconds(6)
    assert circle.using("a") == 4
    circle.train("b", "2-3")
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (1, 3)


def test_a_job_whose_image_never_comes_takes_nothing_from_another() -> None:
    circle = Circle()
    circle.train("a", "1-4")
    circle.seconds(6)
    circle.imageless.add("b")
    circle.train("b", "1-4")
    circle.seconds(40)
    assert circle.cluster.bound("b") == ["n0"]
    assert circle.using("a") == 4


@pytest.mark.parametrize("owner", ["gone", "makes another pod"])
def test_a_job_that_ends_before_it_was_ready_has_taken_nothing_from_another(owner: str) -> None:
    circle = Circle()
    circle.train("a", "2,4")
    circle.seconds(6)
    circle.imageless.add("b")
    b = circle.train("b", "2,4")
    circle.seconds(8)
    if owner == "gone":
        assert b.controller is not None
        circle.cluster.owners.pop(b.controller.uid)
        circle.ledger.apply(OwnerGone(b.controller.uid), circle.cluster.now)
    circle.cluster.update(circle.cluster.pods[b.uid], deleting=True, phase=Phase.ENDING)
    for _ in range(20):
        circle.second()
        assert circle.using("a") == 4
    circle.cluster.delete(b.uid)
    for _ in range(20):
        circle.second()
        assert circle.using("a") == 4


def test_a_job_deleted_in_the_middle_of_a_hand_over_gives_all_of_it_back() -> None:
    circle = Circle()
    a = circle.train("a", "1-4")
    circle.seconds(6)
    b = circle.train("b", "1-4")
    circle.slow.add(a.uid)
    circle.seconds(3)
    circle.gone(b.uid)
    circle.slow.clear()
    circle.seconds(8)
    assert circle.using("a") == 4


def test_a_crash_of_muster_ends_no_training_and_takes_nothing() -> None:
    circle = both()
    for _ in range(3):
        circle.restart()
        for _ in range(8):
            circle.second()
            assert (circle.using("a"), circle.using("b")) == (2, 2)


def test_a_crash_in_the_middle_of_a_hand_over_is_gone_on_with() -> None:
    for at in range(1, 6):
        circle = Circle()
        circle.train("a", "1-4")
        circle.seconds(6)
        circle.train("b", "1-4")
        circle.seconds(at)
        circle.restart()
        circle.seconds(10)
        assert (circle.using("a"), circle.using("b")) == (2, 2), f"a crash {at} s after b came"


def test_jobs_of_a_node_that_is_gone_start_on_another() -> None:
    circle = Circle(nodes=2, gpus=2)
    circle.train("a", "1,2")
    circle.seconds(6)
    (node,) = circle.cluster.bound("a")
    circle.away(node)
    circle.seconds(20)
    assert circle.using("a") == 2
    assert circle.cluster.bound("a") != [node]


def test_a_pod_that_is_not_in_place_gets_the_gpus_that_a_job_in_place_gives() -> None:
    circle = Circle()
    a = circle.train("a", "1-4")
    circle.seconds(6)
    (plain,) = circle.cluster.job("plain", 1, 2)
    circle.slow.add(a.uid)
    circle.seconds(20)
    assert circle.using("a") == 4
    assert circle.cluster.pods[plain.uid].phase is Phase.GATED, "its gate stays on while they are used"
    circle.slow.clear()
    circle.seconds(6)
    assert circle.cluster.bound("plain") == ["n0"], "holders leave before their time"
    assert circle.using("a") == 2


def test_a_job_gives_once_what_one_that_is_not_in_place_waits_for() -> None:
    """It is not granted its GPUs again while it still uses them, which would go on without an end."""
    circle = Circle(gpus=8)
    circle.train("a", "2,4")
    circle.seconds(6)
    circle.cluster.job("plain", 1, 5)
    circle.seconds(2)
    assert [(circle.second(), circle.using("a"))[1] for _ in range(10)] == [2] * 10
    assert circle.cluster.bound("plain") == ["n0"]


def test_an_allocation_by_throughput_shares_them_too() -> None:
    circle = Circle(share=AfsL())
    circle.train("a", "1-4", speed="1=1,2=1.9,3=2.7,4=3.4")
    circle.seconds(6)
    assert circle.using("a") == 4
    circle.train("b", "1-4", speed="1=1,2=1.9,3=2.7,4=3.4")
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (2, 2)


def test_under_a_profile_that_shares_nothing_it_takes_what_is_free_and_gives_nothing_back() -> None:
    circle = Circle()
    circle.profile = Profile("shares nothing")
    circle.restart()
    circle.train("a", "1-3")
    circle.train("b", "1-4")
    circle.seconds(6)
    assert (circle.using("a"), circle.using("b")) == (3, 1)
    circle.train("c", "1,2")
    circle.seconds(6)
    assert circle.plan.statuses[circle.key("job-c")].state is State.WAITING
    assert (circle.using("a"), circle.using("b")) == (3, 1)
    circle.cluster.end(circle.pod("a").uid)
    circle.seconds(8)
    assert (circle.using("b"), circle.using("c")) == (3, 1), "who waits has its least before others grow"


def test_a_job_that_ends_leaves_no_holder() -> None:
    circle = Circle()
    a = circle.train("a", "1-4")
    circle.seconds(6)
    circle.cluster.end(a.uid)
    circle.seconds(30)
    assert (circle.records, circle.using("a")) == ({}, 0)


def test_a_holder_that_is_not_made_is_asked_for_again() -> None:
    circle = Circle()
    circle.train("a", "1-4")
    circle.refuse = 6
    circle.seconds(20)
    assert circle.using("a") == 4


def test_a_job_that_is_put_aside_keeps_the_devices_that_it_trains_on() -> None:
    circle = both()
    set_aside(circle.ledger, circle.key("job-a"), "plan", RuntimeError("a fault"), circle.cluster.now)
    for _ in range(30):
        circle.second()
        assert (circle.using("a"), circle.using("b")) == (2, 2)


def test_a_pod_over_which_deciding_raises_keeps_what_it_has_and_stops_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    circle = both()
    a, key, real = circle.pod("a"), circle.key("job-a"), NodeSteps._order

    def raises(node: Any, want: Any, *arguments: Any, **named: Any) -> Any:
        if want.pod == a.uid:
            raise RuntimeError("a fault")
        return real(node, want, *arguments, **named)

    monkeypatch.setattr(NodeSteps, "_order", raises)
    circle.cluster.end(circle.pod("b").uid)
    circle.train("c", "1-4")
    circle.seconds(20)
    assert (circle.using("a"), circle.using("c")) == (2, 2)
    assert {fault.stage for fault in circle.ledger.take_faults()} == {"devices"}
    assert circle.plan.statuses[key].state is State.INVALID
    circle.cluster.end(circle.pod("c").uid)
    circle.seconds(int(LEASE + GRACE) + 10)
    assert circle.using("a") == 2, "it is answered all the same"
    monkeypatch.undo()
    circle.seconds(140)
    assert circle.using("a") == 4
    assert circle.plan.statuses[key].state is State.RUNNING


@pytest.mark.parametrize("where", ["_slotted", "told"], ids=["slots", "plan"])
def test_a_job_over_whose_devices_it_raises_stops_nobody_else(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    circle = both()
    key, real = circle.key("job-a"), getattr(slots, where)

    def raises(*arguments: Any, **named: Any) -> Any:
        job = arguments[0]
        if (
            (job.key == key)
            if where == "_slotted"
            else (named["starts"], arguments[1][0].pod) == (False, a.uid)
        ):
            raise RuntimeError("a fault")
        return real(*arguments, **named)

    a = circle.pod("a")
    monkeypatch.setattr(slots, where, raises)
    assert circle.ledger.in_place is not None
    circle.ledger.in_place.made.clear()  # else it has no reason to make a's slots anew, until a's GPUs change
    circle.cluster.end(circle.pod("b").uid)
    circle.train("c", "1-4")
    circle.seconds(20)
    assert (circle.using("a"), circle.using("c")) == (2, 2)
    assert {fault.stage for fault in circle.ledger.take_faults()} == {"devices"}
    monkeypatch.undo()
    circle.seconds(80)
    assert (circle.using("a"), circle.using("c")) == (2, 2)
    assert circle.plan.statuses[key].state is State.RUNNING
