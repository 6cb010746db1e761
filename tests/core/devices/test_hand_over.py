# Over 300 lines: each step of a hand-over is tried with and without the failure that can meet it.
"""A device changes hands: what is recorded, ordered and made, in which order, and what does not happen."""

from __future__ import annotations

import pytest

from muster.core.devices.agents import PAUSE_FIRST, heard, pod_ended
from muster.core.devices.coordinator import Change, Coordinator
from muster.core.devices.hand_over import Decisions, decide
from muster.core.devices.holders import holder_seen, recorded
from muster.core.devices.on_node import Want
from muster.core.devices.transitions import DeviceState, PodState
from muster.types import JobKey
from muster.types.devices import AgentKey, AgentReport, AgentState, Device, Order, numbered
from muster.types.holders import HolderRecord

LEASE, GRACE, KEEP = 60.0, 5.0, 10.0
READY, RUNNING = AgentState.READY, AgentState.RUNNING


class Cluster:
    """One node; what is decided is written at once, and agents do what they are told when a test says so."""

    def __init__(self, devices: int = 2, term: int = 1) -> None:
        self.now = 100.0
        self.memory = Coordinator(term, self.now, LEASE, GRACE, KEEP)
        self.wants: list[Want] = []
        self.made = 0
        self.add(devices)

    def add(self, devices: int) -> None:
        for _ in range(devices):
            holder_seen(self.memory, HolderRecord(f"holder-{self.made}", "n1", f"GPU-{self.made}"), self.now)
            self.made += 1

    def want(self, pod: str, count: int, sizes: tuple[int, ...] = (1, 2, 4)) -> None:
        self.wants = [want for want in self.wants if want.pod != pod]
        self.wants.append(Want(JobKey("team", pod), pod, "n1", count, sizes))

    def say(
        self, pod: str, state: AgentState = RUNNING, order: int = 0, devices: tuple[Device, ...] = ()
    ) -> None:
        heard(self.memory, pod, AgentReport(f"{pod}-1", state, order, devices), self.now)

    def decide(self, vacate: int = 0) -> Decisions:
        found = decide(self.memory, self.wants, self.now, {"n1": vacate})
        for assign in found.assigns:
            recorded(self.memory, assign, self.now, written=True)
        return decide(self.memory, self.wants, self.now, {"n1": vacate}) if found.assigns else found

    def order(self, pod: str) -> Order | None:
        agent = self.memory.speaker(pod)
        return None if agent is None else agent.order

    def ordered(self, pod: str) -> list[str]:
        order = self.order(pod)
        return [] if order is None else [device.id for device in order.devices]

    def obey(self, pod: str) -> None:
        """The agent tells that it carried out its newest order."""
        order = self.order(pod)
        assert order is not None
        self.say(pod, RUNNING if order.devices else READY, order.number, order.devices)

    def run(self, pod: str, count: int) -> None:
        self.want(pod, count)
        self.say(pod, READY)
        self.decide()
        self.obey(pod)

    def states(self) -> list[DeviceState]:
        return [device.state for device in self.memory.devices.values()]


def test_a_device_is_recorded_before_it_is_ordered() -> None:
    cluster = Cluster()
    cluster.want("b", 1)
    cluster.say("b", READY)
    (assign,) = decide(cluster.memory, cluster.wants, 100.0).assigns
    assert (assign.holder, assign.device, assign.agent) == ("holder-0", "GPU-0", AgentKey("b", "b-1"))
    assert (cluster.order("b"), cluster.states()) == (None, [DeviceState.RESERVED, DeviceState.IDLE])
    recorded(cluster.memory, assign, 100.0, written=True)
    assert decide(cluster.memory, cluster.wants, 100.0).told == ("b",)
    assert cluster.order("b") == Order(numbered(1, 2), "b-1", (Device("GPU-0", numbered(1, 1)),))
    assert cluster.states() == [DeviceState.IN_USE, DeviceState.IDLE]


def test_nothing_is_taken_from_a_before_b_is_ready() -> None:
    cluster = Cluster()
    cluster.run("a", 2)
    cluster.want("a", 1)
    cluster.want("b", 1)
    found = cluster.decide()
    assert (found.told, cluster.ordered("a"), dict(found.create)) == ((), ["GPU-0", "GPU-1"], {})
    cluster.say("b", READY)
    assert cluster.decide().told == ("a",)
    assert (cluster.ordered("a"), cluster.ordered("b")) == (["GPU-0"], [])


def test_b_starts_when_a_has_let_go_and_not_when_it_was_told_to() -> None:
    cluster = Cluster()
    cluster.run("a", 2)
    before = cluster.order("a")
    assert before is not None
    cluster.want("a", 1)
    cluster.want("b", 1)
    cluster.say("b", READY)
    cluster.decide()
    cluster.say("a", RUNNING, before.number, before.devices)
    cluster.say("a", AgentState.STOPPING, before.number, before.devices)
    assert (cluster.decide().assigns, cluster.ordered("b")) == ((), [])
    cluster.obey("a")
    cluster.decide()
    assert (cluster.ordered("a"), cluster.ordered("b")) == (["GPU-0"], ["GPU-1"])
    assert cluster.memory.pods == {"a": PodState.RUNNING, "b": PodState.ADJUSTING}
    cluster.obey("b")
    assert cluster.memory.pods["b"] is PodState.RUNNING


def test_how_long_a_hand_over_took_and_its_device_idled_is_known_of_each_pod() -> None:
    cluster = Cluster()
    cluster.run("a", 2)
    cluster.want("a", 1)
    cluster.want("b", 1)
    cluster.say("b", READY)
    cluster.decide()
    cluster.now += 2.0
    cluster.obey("a")
    cluster.decide()
    cluster.now += 0.5
    cluster.obey("b")
    cluster.decide()
    assert cluster.memory.changes == {
        "a": Change(102.0, 2.0, 0.0, 1, handed=True, before=2),
        "b": Change(102.5, 2.5, 0.5, 1, handed=True),
    }
    assert cluster.memory.asked == {}


def test_what_a_says_it_still_uses_is_not_released_though_it_names_the_new_order() -> None:
    cluster = Cluster()
    cluster.run("a", 2)
    cluster.want("a", 1)
    cluster.want("b", 1)
    cluster.say("b", READY)
    before = cluster.order("a")
    cluster.decide()
    after = cluster.order("a")
    assert before is not None
    assert after is not None
    cluster.say("a", RUNNING, after.number, before.devices)
    assert (cluster.decide().assigns, cluster.ordered("b")) == ((), [])


def test_a_hand_over_raises_the_epoch() -> None:
    cluster = Cluster(devices=1)
    cluster.run("a", 1)
    first = cluster.memory.devices["GPU-0"].epoch
    cluster.want("a", 0)
    cluster.want("b", 1)
    cluster.say("b", READY)
    cluster.decide()
    cluster.obey("a")
    cluster.decide()
    assert cluster.memory.devices["GPU-0"].epoch > first
    assert cluster.ordered("b") == ["GPU-0"]


def test_a_pod_changes_in_one_step_from_one_of_its_sizes_to_another() -> None:
    cluster = Cluster(devices=4)
    cluster.run("a", 4)
    cluster.want("a", 2)
    cluster.want("b", 1)
    cluster.want("c", 1)
    cluster.say("b", READY)
    cluster.decide()
    assert cluster.ordered("a") == ["GPU-0", "GPU-1"]
    cluster.obey("a")
    cluster.decide()
    assert (cluster.ordered("b"), cluster.ordered("c")) == (["GPU-2"], [])


def test_a_pod_that_grows_goes_on_with_what_it_has_until_all_is_there() -> None:
    cluster = Cluster(devices=3)
    cluster.run("a", 2)
    cluster.want("a", 4)
    found = cluster.decide()
    assert (cluster.ordered("a"), dict(found.create)) == (["GPU-0", "GPU-1"], {"n1": 1})
    cluster.add(1)
    cluster.decide()
    assert cluster.ordered("a") == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_a_pod_whose_device_fails_goes_on_with_one_of_its_sizes() -> None:
    cluster = Cluster(devices=4)
    cluster.run("a", 4)
    holder_seen(cluster.memory, HolderRecord("holder-1", "n1", "GPU-1", healthy=False), cluster.now)
    cluster.decide()
    assert cluster.ordered("a") == ["GPU-0", "GPU-2"]


def test_who_is_not_heard_of_loses_its_devices_after_lease_and_grace_and_not_before() -> None:
    cluster = Cluster(devices=1)
    cluster.run("a", 1)
    cluster.want("a", 0)
    cluster.want("b", 1)
    cluster.now = 100.0 + LEASE + GRACE - 0.1
    cluster.say("b", READY)
    assert (cluster.decide().assigns, cluster.ordered("b")) == ((), [])
    cluster.now += 0.2
    cluster.decide()
    assert cluster.ordered("b") == ["GPU-0"]
    assert "a" not in cluster.memory.pods


def test_a_new_leader_waits_as_long_for_whom_it_has_not_heard() -> None:
    cluster = Cluster(devices=0, term=2)
    used = HolderRecord("holder-0", "n1", "GPU-0", epoch=numbered(1, 7), agent=AgentKey("a", "a-1"))
    holder_seen(cluster.memory, used, cluster.now)
    cluster.want("b", 1)
    cluster.now += LEASE + GRACE - 0.1
    cluster.say("b", READY)
    assert (cluster.decide().assigns, cluster.states()) == ((), [DeviceState.IN_USE])
    cluster.now += 0.2
    cluster.decide()
    assert cluster.ordered("b") == ["GPU-0"]


def test_a_new_leader_believes_no_release_before_its_own_order_is_carried_out() -> None:
    cluster = Cluster(devices=0, term=2)
    used = HolderRecord("holder-0", "n1", "GPU-0", epoch=numbered(1, 7), agent=AgentKey("a", "a-1"))
    holder_seen(cluster.memory, used, cluster.now)
    cluster.want("b", 1)
    cluster.say("b", READY)
    cluster.say("a", READY, order=numbered(1, 8))  # what the leader before it ordered may still be on its way
    assert cluster.decide().assigns == ()
    cluster.obey("a")
    cluster.decide()
    assert cluster.ordered("b") == ["GPU-0"]


def test_who_ran_out_of_its_lease_and_comes_back_is_ordered_again() -> None:
    cluster = Cluster(devices=1)
    cluster.run("a", 1)
    before = cluster.order("a")
    assert before is not None
    cluster.say("a", READY, before.number)
    cluster.decide()
    assert cluster.ordered("a") == []
    cluster.now += PAUSE_FIRST
    cluster.decide()
    after = cluster.order("a")
    assert after is not None
    assert after.number > before.number
    assert after.devices[0].epoch > before.devices[0].epoch


def test_what_a_process_that_is_asked_to_end_still_uses_is_not_free() -> None:
    cluster = Cluster(devices=2)
    cluster.run("a", 2)
    before = cluster.order("a")
    assert before is not None
    cluster.want("a", 0)
    cluster.want("b", 2)
    cluster.say("b", READY)
    cluster.say("a", AgentState.ENDED, before.number, before.devices[:1])
    cluster.decide()
    assert (cluster.ordered("b"), cluster.states()) == ([], [DeviceState.IN_USE, DeviceState.RESERVED])
    cluster.say("a", AgentState.ENDED, before.number)
    cluster.decide()
    assert cluster.ordered("b") == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize("how", ["its agent says so", "its pod has ended"])
def test_what_a_process_that_has_ended_had_is_free_at_once(how: str) -> None:
    cluster = Cluster(devices=1)
    cluster.run("a", 1)
    if how == "its pod has ended":
        pod_ended(cluster.memory, "a", cluster.now)
        assert cluster.memory.pods["a"] is PodState.COMPLETED
    else:
        cluster.say("a", AgentState.ENDED)
    cluster.wants = []
    cluster.want("b", 1)
    cluster.say("b", READY)
    cluster.decide()
    assert cluster.ordered("b") == ["GPU-0"]


def test_an_idle_holder_stays_for_a_while_and_leaves_at_once_for_a_pod_that_is_not_in_place() -> None:
    cluster = Cluster(devices=2)
    cluster.run("a", 1)
    assert (cluster.decide().leave, cluster.decide().idle) == ((), {"n1": 100.0 + KEEP})
    assert cluster.decide(vacate=1).leave == ("holder-1",)
    cluster.now += KEEP
    assert cluster.decide().leave == ("holder-1",)


def test_a_holder_that_leaves_stays_until_its_device_is_let_go() -> None:
    cluster = Cluster(devices=2)
    cluster.run("a", 2)
    holder_seen(cluster.memory, HolderRecord("holder-1", "n1", "GPU-1", leaving=True), cluster.now)
    assert cluster.decide().leave == ()
    assert cluster.ordered("a") == ["GPU-0"]
    cluster.obey("a")
    assert cluster.decide().leave == ("holder-1",)


def test_a_record_that_was_refused_is_no_reservation_any_more() -> None:
    cluster = Cluster(devices=1)
    cluster.want("b", 1)
    cluster.say("b", READY)
    (assign,) = decide(cluster.memory, cluster.wants, 100.0).assigns
    recorded(cluster.memory, assign, 100.0, written=False)
    assert cluster.states() == [DeviceState.IDLE]
    (again,) = decide(cluster.memory, cluster.wants, 100.0).assigns
    assert again.epoch > assign.epoch


def test_a_record_of_an_earlier_leader_that_lands_late_is_waited_for_and_ours_is_not() -> None:
    cluster = Cluster(devices=1, term=2)
    cluster.want("b", 1)
    cluster.say("b", READY)
    (assign,) = decide(cluster.memory, cluster.wants, cluster.now).assigns
    late = HolderRecord("holder-0", "n1", "GPU-0", epoch=numbered(1, 9), agent=AgentKey("x", "x-1"))
    holder_seen(cluster.memory, late, cluster.now)
    assert cluster.states() == [DeviceState.IN_USE]
    cluster.now += LEASE + GRACE
    cluster.say("b", READY)
    cluster.decide()
    recorded(cluster.memory, assign, cluster.now, written=False)
    cluster.decide()
    assert cluster.ordered("b") == ["GPU-0"]


def test_a_pod_has_so_many_agents_and_no_more() -> None:
    memory = Coordinator(1, 0.0, LEASE, GRACE, KEEP)
    answers = [heard(memory, "a", AgentReport(f"a-{n}", READY), 1.0) for n in range(9)]
    assert [answer is not None for answer in answers] == [True] * 8 + [False]
