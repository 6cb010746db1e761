"""What goes wrong with devices in place, with a fake cluster (on a real node: e2e/devices_failing.py). That no device
is used by two is looked at after each step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from muster.core.devices.coordinator import Coordinator
from muster.core.devices.device_ledger import UNSEEN, UNSENT, DeviceLedger
from muster.core.devices.on_node import Want
from muster.types import JobKey
from muster.types.devices import AgentKey, AgentReport, AgentState
from muster.types.holders import (
    CreateHolder,
    DeleteHolder,
    HolderAction,
    HolderGone,
    HolderOutcome,
    HolderRecord,
    HolderSeen,
    TrainingEnded,
)
from tests.core.devices.circle import Circle
from tests.core.devices.world import GRACE, KEEP, LEASE


def alone(sizes: str = "2,4") -> Circle:
    """Job a trains on all four GPUs of a node."""
    circle = Circle()
    circle.train("a", sizes)
    circle.seconds(6)
    assert circle.using("a") == 4
    return circle


def both() -> Circle:
    circle = alone()
    circle.train("b", "2,4")
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (2, 2)
    return circle


def test_a_device_that_is_ill_is_left_and_had_again_when_it_is_well() -> None:
    circle = alone()
    uid, record = next(iter(circle.records.items()))
    circle.ill.add(record.device)
    circle.seconds(5)
    assert circle.using("a") == 2
    circle.ill.clear()
    circle.seconds(30)
    assert circle.using("a") == 4
    assert uid not in circle.records, "nobody was to have it meanwhile"


def test_a_holder_that_somebody_deletes_keeps_its_device_until_the_training_has_left_it() -> None:
    circle = alone()
    a, uid = circle.pod("a"), next(iter(circle.records))
    circle.slow.add(a.uid)
    circle.records[uid] = replace(circle.records[uid], leaving=True)
    circle.seconds(20)
    assert uid in circle.records
    assert circle.using("a") == 4
    circle.slow.clear()
    circle.seconds(8)
    assert uid not in circle.records
    assert circle.using("a") == 4


def test_on_a_node_that_is_cordoned_a_training_keeps_its_devices_and_gets_no_more() -> None:
    circle = alone()
    circle.cluster.nodes["n0"] = replace(circle.cluster.nodes["n0"], unschedulable=True)
    circle.seconds(3)
    assert circle.using("a") == 4
    before = set(circle.records)
    uid = min(before)
    circle.records[uid] = replace(circle.records[uid], leaving=True)
    circle.seconds(40)
    assert (circle.using("a"), set(circle.records)) == (2, before - {uid})
    circle.cluster.nodes["n0"] = replace(circle.cluster.nodes["n0"], unschedulable=False)
    circle.seconds(20)
    assert circle.using("a") == 4


def test_a_training_whose_agent_is_killed_waits_for_its_lease_and_the_other_goes_on() -> None:
    circle = both()
    (agent,) = (one for one in circle.agents if one.alive and one.pod == circle.pod("a").uid)
    agent.die()
    for _ in range(int(LEASE + GRACE) - 2):
        circle.second()
        assert (circle.using("a"), circle.using("b")) == (0, 2)
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (2, 2)


@pytest.mark.parametrize("cut", [10, int(LEASE * 0.7)])
def test_an_agent_that_is_cut_off_for_less_than_its_lease_goes_on(cut: int) -> None:
    circle = both()
    circle.cut.add(circle.pod("a").uid)
    for _ in range(cut):
        circle.second()
        assert (circle.using("a"), circle.using("b")) == (2, 2)
    circle.cut.clear()
    for _ in range(int(LEASE)):
        circle.second()
        assert (circle.using("a"), circle.using("b")) == (2, 2)


def test_an_agent_that_is_cut_off_for_longer_ends_its_training_before_another_has_its_devices() -> None:
    circle = alone()
    circle.cut.add(circle.pod("a").uid)
    circle.seconds(2)
    circle.train("b", "2,4")
    circle.seconds(int(LEASE) - 8)
    assert (circle.using("a"), circle.using("b")) == (4, 0)
    circle.seconds(int(GRACE) + 20)
    assert (circle.using("a"), circle.using("b")) == (0, 2)
    circle.cut.clear()
    circle.seconds(10)
    assert (circle.using("a"), circle.using("b")) == (2, 2)


def test_a_job_that_ends_in_the_middle_of_a_hand_over_leaves_all_to_the_other() -> None:
    circle = alone()
    a = circle.pod("a")
    circle.train("b", "2,4")
    circle.slow.add(a.uid)
    circle.seconds(3)
    assert (circle.using("a"), circle.using("b")) == (4, 0)
    circle.cluster.end(a.uid)
    circle.seconds(10)
    assert circle.using("b") == 4


def test_two_jobs_give_at_once() -> None:
    circle = Circle()
    for name in ("a", "b"):
        circle.train(name, "1,2,4")
        circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (2, 2)
    for name in ("c", "d"):
        circle.train(name, "1,2,4")
    circle.seconds(12)
    assert [circle.using(name) for name in "abcd"] == [1, 1, 1, 1]


def test_of_two_holders_that_tell_of_one_device_the_later_one_goes() -> None:
    """Slices of a GPU by time have the same id where the device plugin's strategy is envvar."""
    devices = DeviceLedger(Coordinator(1, 0.0, LEASE, GRACE, KEEP))
    wanted = [Want(JobKey("team", "a"), "a-0", "n0", 2, (1, 2))]
    for uid in ("one", "two"):
        devices.apply(HolderSeen(HolderRecord(uid, "n0"), uid, "1"), 1.0)
    assert devices.adopt(wanted, 1.0)[0] == ()
    for uid in ("one", "two"):
        devices.apply(HolderSeen(HolderRecord(uid, "n0", "GPU-0"), uid, "2"), 2.0)
    gone = [one for one in devices.adopt(wanted, 2.0)[0] if isinstance(one, DeleteHolder)]
    assert [one.uid for one in gone] == ["two"]
    devices.apply(HolderGone("two"), 3.0)
    assert devices.coordinator.devices["GPU-0"].holder == "one"
    used = HolderRecord("three", "n0", "GPU-0", epoch=7, agent=AgentKey("a-0", "1"))
    devices.apply(HolderSeen(used, "three", "3"), 4.0)
    assert devices.coordinator.devices["GPU-0"].pods == {"a-0"}, "who stands in a record is not forgotten"


def test_a_node_that_gives_one_device_twice_is_asked_less_and_less_often() -> None:
    """A slice by time is counted as a GPU by the node, and is none: else a holder comes and goes each second."""
    devices = DeviceLedger(Coordinator(1, 0.0, LEASE, GRACE, KEEP))
    wanted = [Want(JobKey("team", "a"), "a-0", "n0", 2, (1, 2))]
    made = []
    for second in range(1, 61):
        now = float(second)
        devices.heard("a-0", AgentReport("1", AgentState.READY), now)
        for action in devices.adopt(wanted, now)[0]:
            if isinstance(action, CreateHolder):
                made.append(second)
                uid = action.name
                devices.apply(HolderOutcome(action, 201), now)
                devices.apply(HolderSeen(HolderRecord(uid, "n0"), uid, "1"), now)
                for version in ("2", "3"):  # the watch tells of it twice
                    devices.apply(HolderSeen(HolderRecord(uid, "n0", "GPU-0"), uid, version), now)
            elif isinstance(action, DeleteHolder):
                devices.apply(HolderOutcome(action, 200), now)
                devices.apply(HolderGone(action.uid), now)
    assert made == [1, 1, 3, 7, 15, 31]
    (device,) = devices.coordinator.devices.values()
    assert (device.id, device.pods) == ("GPU-0", {"a-0"})


def test_a_holder_whose_request_waits_for_its_turn_is_not_asked_for_again() -> None:
    """Thousands of them wait for longer than it takes until an answered one counts as lost."""
    devices = DeviceLedger(Coordinator(1, 0.0, LEASE, GRACE, KEEP))
    wanted = [Want(JobKey("team", "a"), "a-0", "n0", 2, (2,))]
    (first, second), _ = devices.adopt(wanted, 1.0)
    assert devices.adopt(wanted, 500.0)[0] == ()
    assert isinstance(first, CreateHolder)
    assert isinstance(second, CreateHolder)
    devices.apply(HolderOutcome(first, 201, ""), 500.0)
    devices.apply(HolderOutcome(second, 0, ""), 500.0)
    assert devices.adopt(wanted, 500.0 + UNSEEN - 1.0)[0] == ()
    again, found = devices.adopt(wanted, 500.0 + UNSEEN + 1.0)
    assert [type(one) for one in again] == [CreateHolder, CreateHolder], "the watch has told of neither"
    assert found.wake == 500.0 + UNSEEN + 1.0 + UNSENT, "nothing is due before they are answered"
    again, _ = devices.adopt(wanted, found.wake + 1.0)
    assert [type(one) for one in again] == [CreateHolder, CreateHolder], "they may never have been sent"


def test_a_holder_that_was_one_too_many_is_kept_once_it_has_its_device_alone() -> None:
    devices = DeviceLedger(Coordinator(1, 0.0, LEASE, GRACE, KEEP))
    for uid in ("one", "two"):
        devices.apply(HolderSeen(HolderRecord(uid, "n0"), uid, "1"), 1.0)
    for uid in ("one", "two"):
        devices.apply(HolderSeen(HolderRecord(uid, "n0", "GPU-0"), uid, "2"), 2.0)
    (gone,) = (one for one in devices.adopt((), 2.0)[0] if isinstance(one, DeleteHolder))
    assert gone.uid == "two"
    devices.apply(HolderOutcome(gone, 503, "busy"), 2.1)
    devices.apply(HolderGone("one"), 2.2)
    devices.apply(HolderSeen(HolderRecord("two", "n0", "GPU-0"), "two", "3"), 2.3)
    devices.heard("a-0", AgentReport("1", AgentState.READY), 2.4)
    wanted = [Want(JobKey("team", "a"), "a-0", "n0", 1, (1,))]
    for now in (2.5, 4.2, 6.5):
        actions, _ = devices.adopt(wanted, now)
        assert not [one for one in actions if isinstance(one, DeleteHolder)]
    assert devices.coordinator.devices["GPU-0"].holder == "two"


def test_a_holder_that_was_deleted_does_not_come_back_by_a_watch_that_is_behind() -> None:
    circle = Circle(gpus=1)
    first = circle.train("a", "1")
    circle.seconds(15)
    ((uid, record),) = circle.records.items()
    known = circle.devices.holders[uid]
    circle.cluster.end(first.uid)
    circle.agents.clear()
    now = circle.cluster.now
    circle.devices.apply(TrainingEnded(first.uid), now)
    gone = DeleteHolder(uid, known.name, "nobody is to have its device", known.version, leaving=False)
    circle.devices.apply(HolderOutcome(gone, 404), now)
    circle.devices.apply(HolderSeen(record, known.name, known.version), now)
    assert circle.devices.holders == {}
    del circle.cluster.pods[uid], circle.records[uid]
    circle.train("b", "1")
    circle.seconds(6)
    assert circle.using("b") == 1


class Refusing(Circle):
    """Beyond `most` holders none is made; posts: when one was asked for."""

    most = 0

    def __init__(self, gpus: int = 8) -> None:
        self.posts: list[float] = []
        super().__init__(gpus)

    def carry_out(self, action: HolderAction) -> None:
        if isinstance(action, CreateHolder):
            self.posts.append(self.cluster.now)
            if len(self.records) >= self.most:
                why = f'pods "{action.name}" is forbidden: exceeded quota: holders'
                self.devices.apply(HolderOutcome(action, 403, why), self.cluster.now)
                return
        super().carry_out(action)


def test_holders_that_are_refused_are_asked_for_less_and_less_often_and_one_at_a_time() -> None:
    circle = Refusing()
    circle.train("a", "8")
    circle.seconds(300)
    gaps = [round(b - a) for a, b in pairwise(circle.posts)]
    assert gaps[:7] == [0] * 7, "all that are missing, once"
    assert gaps[7:] == [2, 4, 8, 16, 32, 60, 60, 60]
    told = circle.plan.statuses[circle.key("job-a")].message
    assert told == (
        "in place: no GPU yet; it is to have 8 of 8 GPUs of n0; no pod that holds a GPU of n0 can be made: "
        "exceeded quota: holders"
    ), "the same for each of them, whatever its name"
    circle.most = 8
    circle.seconds(80)
    assert circle.using("a") == 8
    assert "exceeded quota" not in circle.plan.statuses[circle.key("job-a")].message


def test_why_no_holder_was_made_is_told_to_nobody_who_needs_none() -> None:
    circle = Refusing(gpus=4)
    circle.most = 2
    a = circle.train("a", "2,4")
    circle.seconds(20)
    assert circle.using("a") == 0, "it is to have four, and begins with all of them"
    circle.gone(a.uid)
    circle.seconds(20)
    circle.train("b", "1,2")
    circle.seconds(20)
    assert circle.using("b") == 2
    assert "exceeded quota" not in circle.plan.statuses[circle.key("job-b")].message
