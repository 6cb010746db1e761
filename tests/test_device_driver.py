# Over 300 lines: agents, holders and leaders meet in each of its stories.
"""The live driver of devices in place: from what watches and agents tell to orders, and to pods that hold devices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from prometheus_client import CollectorRegistry

from muster.cluster.api import Api
from muster.cluster.holding import Holding
from muster.cluster.lease import Term
from muster.core.devices.transitions import DeviceState
from muster.core.ledger import Ledger
from muster.device_driver import FIRST, REFUSED, DeviceDriver, InPlaceSettings
from muster.points import Profile
from muster.server.agent_orders import AgentHeard, AgentOrders
from muster.server.device_metrics import DeviceMetrics
from muster.types import Owner, OwnerGone, OwnerRecord, PodGone, PodRecord, QuotasSeen, WriteGang
from muster.types.devices import PER_TERM, AgentKey, AgentReport, AgentState, Order
from muster.types.holders import HolderOutcome, HolderSaid
from muster_plugins.max_min import MaxMin
from tests.cluster_fake import FakeCluster
from tests.devices_api import SPACE, DevicesApi

SETTINGS = InPlaceSettings(60.0, 5.0, 10.0, Holding(SPACE, "muster", "pause:1", "", 65))


class Orders(AgentOrders):
    """Keeps what is published."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: list[int] = []
        self.heard = self.published = 0
        self.told: Mapping[AgentKey, Order | None] = {}

    def begin(self, term: int, lease: float, lasts: object) -> None:
        super().begin(term, lease, lasts)  # type: ignore[arg-type]
        self.terms.append(term)

    def publish(self, heard: int, orders: Mapping[AgentKey, Order | None]) -> None:
        super().publish(heard, orders)
        self.heard, self.told = heard, orders
        self.published += 1

    def took_in(self, heard: int) -> None:
        super().took_in(heard)
        self.heard = heard


class Circle:
    """A node of two GPUs, jobs in place on it, and a driver that turns."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(nodes=1, gpus=2)
        self.api = DevicesApi()
        self.free = ["GPU-0", "GPU-1"]
        self.serial = 0
        self.orders = Orders()
        self.faults: list[Exception] = []
        self.shown: list[dict[str, str]] = []
        self.statuses: dict[str, dict[str, object]] = {}
        self.start()

    def start(self) -> None:
        """A process of Muster's, that leads from now on."""
        self.outcomes: list[HolderOutcome] = []
        self.ledger = Ledger(Profile("sharing", shares=(MaxMin(),)))
        self.driver = DeviceDriver(
            cast(Api, self.api), SETTINGS, self.orders, self.outcomes.append, lambda: self.cluster.now
        )
        for event in (*self.cluster.events(), *self.api.told()):
            self.learn(event)
        self.registry = CollectorRegistry()
        self.driver.metrics = DeviceMetrics(self.registry)
        self.term = Term(1e12)
        self.ledger.take_over(self.cluster.now)
        self.driver.lead(self.ledger, self.term)

    def learn(self, event: object) -> None:
        self.ledger.apply(event, self.cluster.now)  # type: ignore[arg-type]
        self.driver.learn(event)  # type: ignore[arg-type]

    def train(self, name: str, gpus: str) -> PodRecord:
        owner = Owner("batch/v1", "Job", name, f"job-team-{name}")
        self.cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=1, completions=1)
        return self.cluster.pod(owner, 0, 0, "team", 0, {"gpus": gpus})

    def turn(self, times: int = 1) -> None:
        """A second of the cluster, with a cycle and what comes of it."""
        for _ in range(times):
            self.cluster.now += 1.0
            now = self.cluster.now
            self.decide()
            self.ledger.apply(QuotasSeen("team", ()), now)
            snapshot = self.ledger.snapshot(now)
            for action in self.ledger.adopt(snapshot, self.ledger.plan(snapshot)):
                if isinstance(action, WriteGang):
                    self.statuses[action.job.name] = dict(action.status)
                for event in self.cluster.carry_out(action):
                    self.learn(event)
            self.driver.planned()
            self.decide()
            self.cluster.bind()
            self.api.allocate(self.free)
            for event in (*self.cluster.events(), *self.api.told()):
                self.learn(event)

    def decide(self) -> None:
        self.driver.turn(lambda: self.shown.append(dict(self.driver.places)), self.faults.append)
        self.settle()

    def outcomes_back(self) -> None:
        """What became of requests, and what the watch tells of it."""
        for event in self.api.told():
            self.learn(event)
        while self.outcomes:
            self.driver.answered(self.outcomes.pop(0))

    def counted(self, name: str, **labels: str) -> float:
        """A metric's value."""
        found = self.registry.get_sample_value(name, labels)
        assert found is not None, name
        return found

    def settle(self) -> None:
        """Requests under way are answered."""
        self.driver._hands.close(all_of_it=True)
        self.driver._hands = type(self.driver._hands)(
            cast(Api, self.api), SETTINGS.holding, self.outcomes.append
        )
        while self.outcomes:
            self.driver.answered(self.outcomes.pop(0))

    def says(self, pod: PodRecord, state: AgentState = AgentState.READY) -> Order | None:
        """The pod's agent asks, and has carried out what it was told before; that, else what it is told now."""
        key = AgentKey(pod.uid, f"run-{pod.uid}")
        self.serial += 1
        order = self.orders.told.get(key)
        report = AgentReport(key.incarnation, state)
        if order is not None:
            report = AgentReport(key.incarnation, AgentState.RUNNING, order.number, order.devices)
        self.driver.hear(AgentHeard(self.serial, pod.uid, report))
        self.decide()
        assert self.orders.heard == self.serial, "it is answered"
        return order or self.orders.told.get(key)

    def runs(self, pod: PodRecord) -> list[str]:
        """The devices of the last order that a pod's agent has."""
        devices: list[str] = []
        for _ in range(12):
            order = self.says(pod)
            if order is not None:
                devices = [device.id for device in order.devices]
            self.turn()
        return devices


def test_a_job_gets_devices_by_holders_that_the_verbs_know_before_they_are_made() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.turn(4)
    names = [f"{SPACE}/{name}" for name in circle.api.pods]
    assert circle.shown[0] == dict.fromkeys(names, "n0")
    assert sorted(circle.api.devices().values()) == ["GPU-0", "GPU-1"]
    assert circle.driver.places == {}, "bound: nobody asks any more where they may go"
    assert circle.runs(a) == ["GPU-0", "GPU-1"]
    assert not circle.faults


def test_a_device_is_handed_over_and_no_holder_comes_or_goes() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.turn(4)
    assert len(circle.runs(a)) == 2
    before = sorted(circle.api.pods)
    b = circle.train("b", "1,2")
    found: dict[str, list[str]] = {"a": [], "b": []}
    for _ in range(12):
        for name, pod in (("a", a), ("b", b)):
            order = circle.says(pod)
            if order is not None:
                found[name] = [device.id for device in order.devices]
        circle.turn()
    assert sorted(found["a"] + found["b"]) == ["GPU-0", "GPU-1"]
    assert (len(found["a"]), sorted(circle.api.pods)) == (1, before)
    assert circle.counted("muster_devices_handed_over_total") == 1
    assert circle.counted("muster_devices", state="in use") == 2
    assert circle.counted("muster_agent_order_seconds_count") >= 3, "a on two, a on one, b on one"
    assert circle.counted("muster_device_unused_seconds_total", cause="starting") > 0
    assert circle.counted("muster_hand_over_seconds_count") == 2, "a gave one, and b got it"
    assert circle.counted("muster_hand_over_idle_seconds_count") == 1, "who gives waits for no device"
    took, idle = (circle.counted(f"muster_hand_over_{of}seconds_sum") for of in ("", "idle_"))
    assert took >= idle > 0


def test_a_gang_counts_the_devices_of_a_job_in_place() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.turn(4)
    circle.runs(a)
    circle.turn(10)
    assert {name: circle.statuses["job-a"][name] for name in ("gpus", "share")} == {
        "gpus": 2,
        "share": "2/1/2",
    }
    b = circle.train("b", "1,2")
    circle.turn(4)
    for _ in range(12):
        circle.says(a)
        circle.says(b)
        circle.turn()
    circle.turn(10)
    for name in ("job-a", "job-b"):
        status = circle.statuses[name]
        assert (status["gpus"], status["share"]) == (1, "1/1/2")
        told = r"in place: 1 of 2 GPUs of n0 since \d\d:\d\dZ; hand-over took \d\.\d s, GPUs idle \d\.\d s"
        assert re.fullmatch(told, str(status["message"])), status["message"]


def test_an_agent_of_a_pod_that_is_not_in_place_is_told_that_it_gets_none() -> None:
    circle = Circle()
    circle.turn()
    circle.driver.hear(AgentHeard(1, "a-pod-of-others", AgentReport("run", AgentState.READY)))
    circle.decide()
    assert (circle.orders.heard, circle.orders.told) == (1, {})


def test_who_only_asks_again_is_answered_and_nothing_is_decided() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.turn(4)
    assert len(circle.runs(a)) == 2
    assert circle.says(a) is None, "its order is carried out"
    (key,) = circle.orders.told
    known = circle.driver._devices.coordinator.agents[key]  # type: ignore[union-attr]
    decided = circle.orders.published
    circle.cluster.now += 1.0
    circle.driver.hear(AgentHeard(circle.serial + 1, a.uid, known.report))
    circle.decide()
    assert (circle.orders.heard, circle.orders.published) == (circle.serial + 1, decided)
    heard = circle.driver._devices.coordinator.agents[key].heard  # type: ignore[union-attr]
    assert heard == circle.cluster.now, "its lease counts from then"


def test_the_next_leader_has_a_higher_term_and_takes_nothing_from_whom_it_has_not_heard_of() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.turn(4)
    circle.runs(a)
    before = dict(circle.api.pods)
    circle.start()
    circle.turn(20)
    assert circle.orders.terms == [1, 2]
    assert circle.api.pods.keys() == before.keys(), "for as long as a lease may last"


def test_a_term_is_above_the_epochs_of_holders_should_its_number_be_lost() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.api.config = {"metadata": {"resourceVersion": "0"}, "data": {"term": "6"}}
    circle.turn(4)
    circle.runs(a)
    circle.api.config = {}
    circle.start()
    circle.turn()
    assert circle.orders.terms == [7, 8]
    assert circle.ledger.in_place is not None
    known = circle.ledger.in_place.devices.coordinator.devices.values()
    assert {device.epoch // PER_TERM for device in known} == {7}


def test_while_the_term_cant_be_kept_nothing_is_given_and_it_is_tried_again() -> None:
    circle = Circle()
    circle.api.config = {"metadata": {"resourceVersion": "0"}, "data": {"term": "none"}}
    circle.train("a", "1,2")
    circle.turn(3)
    assert (circle.orders.terms, circle.api.pods, circle.orders.leading) == ([], {}, False)
    circle.api.config["data"] = {"term": "1"}
    circle.turn(int(FIRST * 64))
    assert circle.orders.terms == [2]
    assert len(circle.api.pods) == 2


def test_a_record_that_is_refused_is_written_again_after_a_pause() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.turn(4)
    circle.api.refuse = 2
    circle.says(a)
    patches = sum(one.startswith("PATCH") for one in circle.api.sent)
    circle.decide()
    assert sum(one.startswith("PATCH") for one in circle.api.sent) == patches, "not at once"
    assert REFUSED < 1.0
    assert circle.runs(a) == ["GPU-0", "GPU-1"]


def test_a_fault_in_deciding_takes_no_device_and_stops_nobody_else() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.turn(4)
    assert len(circle.runs(a)) == 2
    before = dict(circle.orders.told)
    assert circle.ledger.in_place is not None
    devices = circle.ledger.in_place.devices
    adopt = devices.adopt

    def breaks(*_: object) -> None:
        raise RuntimeError("a fault")

    devices.adopt = breaks  # type: ignore[method-assign, assignment]
    circle.turn()
    circle.driver.planned()
    circle.decide()
    assert [str(fault) for fault in circle.faults] == ["a fault"], "tried again after a pause"
    assert circle.orders.told == before
    devices.adopt = adopt  # type: ignore[method-assign]
    b = circle.train("b", "1,2")
    circle.turn(10)
    circle.says(b)
    circle.turn()
    assert len(circle.runs(a)) == 1, "hand-overs go on"


def test_what_a_fault_kept_from_being_decided_is_decided_although_nobody_says_anything_new() -> None:
    circle = Circle()
    circle.train("a", "1,2")
    circle.turn(4)
    assert circle.ledger.in_place is not None
    devices = circle.ledger.in_place.devices
    adopt = devices.adopt
    tried: list[float] = []

    def breaks_once(*about: object) -> object:
        tried.append(circle.cluster.now)
        if len(tried) == 1:
            raise RuntimeError("a fault")
        return adopt(*about)  # type: ignore[arg-type]

    devices.adopt = breaks_once  # type: ignore[method-assign, assignment]
    circle.driver.planned()
    circle.decide()
    circle.cluster.now += 3.0
    circle.decide()
    assert len(tried) == 2


def test_while_deciding_about_devices_fails_agents_are_answered_all_the_same() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.turn(4)
    assert len(circle.runs(a)) == 2
    assert circle.ledger.in_place is not None

    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    circle.ledger.in_place.devices.adopt = breaks  # type: ignore[method-assign, assignment]
    answered = []
    for _ in range(90):  # longer than a lease, with pauses of up to a minute between two tries
        circle.serial += 1
        circle.driver.planned()
        circle.driver.hear(AgentHeard(circle.serial, a.uid, AgentReport(f"run-{a.uid}", AgentState.RUNNING)))
        circle.decide()
        answered.append(circle.orders.heard == circle.serial)
        circle.cluster.now += 1.0
    assert all(answered)
    assert 5 < len(circle.faults) < 10


def test_a_holder_that_is_not_wanted_any_more_before_it_has_a_device_goes() -> None:
    circle = Circle()
    circle.free = []
    a = circle.train("a", "1,2")
    circle.turn(3)
    assert len(circle.api.pods) == 2
    assert a.controller is not None
    circle.cluster.owners.pop(a.controller.uid)
    circle.cluster.delete(a.uid)
    for gone in (PodGone(a.uid), OwnerGone(a.controller.uid)):
        circle.learn(gone)
    circle.turn(3)
    assert circle.api.pods == {}


def test_a_holder_that_somebody_deletes_goes_when_its_device_is_let_go_and_not_before() -> None:
    circle = Circle()
    a = circle.train("a", "1,2")
    circle.turn(4)
    assert len(circle.runs(a)) == 2
    gone, device = next((n, d) for n, d in circle.api.devices().items() if d == "GPU-1")
    circle.api.delete(gone)
    circle.turn(5)
    assert gone in circle.api.pods, "a trains on it"
    assert circle.says(a) is not None, "a is told"
    assert circle.says(a) is None, "a goes on with the other one"
    circle.turn()
    assert gone not in circle.api.pods
    circle.free = [device]
    circle.turn(3)
    assert circle.runs(a) == ["GPU-0", "GPU-1"]


def test_a_node_whose_kubelet_has_no_device_left_is_asked_less_and_less_often() -> None:
    circle = Circle()
    circle.free = []
    circle.train("a", "1,2")
    made: list[float] = []
    for _ in range(90):
        before = set(circle.api.pods)
        circle.turn()
        made += [circle.cluster.now] * len(circle.api.pods.keys() - before)
        for pod in circle.api.pods.values():
            if pod["status"]["phase"] != "Failed":
                pod["status"] = {"phase": "Failed"}
                circle.api.touch(pod)
    assert len(made) <= 14, "two at a time"
    assert len(circle.api.pods) <= 2, "what failed is gone"
    circle.free = ["GPU-0", "GPU-1"]
    circle.turn(70)
    assert sorted(circle.api.devices().values()) == ["GPU-0", "GPU-1"]


def test_a_device_that_nvml_finds_ill_is_taken_from_its_job_and_given_again_when_it_is_well() -> None:
    circle = Circle()
    circle.train("a", "1,2")
    circle.turn(8)
    (name,) = [name for name, device in circle.api.devices().items() if device == "GPU-1"]
    uid = circle.api.pods[name]["metadata"]["uid"]

    def state() -> tuple[DeviceState, bool]:
        assert circle.ledger.in_place is not None
        found = circle.ledger.in_place.devices.coordinator.devices["GPU-1"]
        return found.state, found.healthy

    circle.driver.said(HolderSaid(uid, "GPU-1", True, healthy=False))
    circle.turn(2)
    assert not state()[1]
    assert state()[0] is DeviceState.LOST
    circle.driver.said(HolderSaid(uid, "GPU-1", True))
    circle.turn(2)
    assert state()[1]


def test_a_device_that_is_used_and_was_granted_to_nobody_is_counted() -> None:
    circle = Circle()
    circle.train("a", "1")
    circle.turn(12)  # no agent of it is heard of: nobody was told that it may use its device
    ((name, device),) = circle.api.devices().items()
    uid = circle.api.pods[name]["metadata"]["uid"]
    for processes in (0, 2, 0):
        circle.driver.said(HolderSaid(uid, device, True, processes=processes, memory=350 * processes))
        circle.turn(2)
        assert circle.counted("muster_devices_used_ungranted") == bool(processes)


def test_devices_that_containers_tell_are_recorded_once_and_none_twice() -> None:
    circle = Circle()
    circle.free.clear()  # no status says what they got
    circle.train("a", "1,2")
    circle.turn(6)
    first, second = sorted(circle.api.pods)
    told = [circle.api.pods[name]["metadata"] for name in (first, second)]

    def says(uid: str, device: str) -> None:
        circle.driver.said(HolderSaid(uid, device))
        circle.driver.said(HolderSaid(uid, device))
        circle.settle()
        circle.outcomes_back()

    says(told[0]["uid"], "GPU-0")
    assert told[0]["annotations"]["muster.dev/device"] == "GPU-0"
    assert sum(one.startswith("PATCH") for one in circle.api.sent) == 1
    says(told[1]["uid"], "GPU-0")
    assert "muster.dev/device" not in told[1]["annotations"], "a slice by time is no device"
    says("of-no-holder", "GPU-1")
    says(told[1]["uid"], "GPU-1")
    assert told[1]["annotations"]["muster.dev/device"] == "GPU-1"
    circle.turn()
    assert circle.ledger.in_place is not None
    assert sorted(circle.ledger.in_place.devices.coordinator.devices) == ["GPU-0", "GPU-1"]
