"""Nodes where nothing changed are left out of a decision, and it is the same decision: random histories of several
nodes, jobs of several pods, pairs, leases, idle devices, holders that come, fail and go."""

from __future__ import annotations

import random

import pytest

from muster.core.devices import hand_over
from muster.core.devices.agents import heard, pod_ended, pod_gone
from muster.core.devices.coordinator import Assign, Coordinator
from muster.core.devices.hand_over import Decisions
from muster.core.devices.holders import holder_gone, holder_seen, recorded
from muster.core.devices.node_steps import NodeSteps
from muster.core.devices.on_node import Want
from muster.core.devices.settled import Settled
from muster.types import JobKey
from muster.types.devices import AgentReport, AgentState
from muster.types.holders import HolderRecord
from tests.core.devices.alike import decided
from tests.core.devices.world import GRACE, KEEP, LEASE

NODES = ("n0", "n1", "n2")
DEVICES = 4
SIZES = (1, 2, 4)
JOBS = {
    "alone-0": ("n0",),
    "alone-1": ("n1",),
    "alone-2": ("n2",),
    "also-0": ("n0",),
    "also-1": ("n1",),
    "wide": ("n0", "n1"),
    "broad": ("n1", "n2", "n2"),
}
"""Nodes of each job's pods."""


class History:
    """A leader, and whatever may happen to what it knows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.memory = Coordinator(1, self.now, LEASE, GRACE, KEEP)
        self.settled: dict[str, Settled] = {}
        self.records: dict[str, HolderRecord] = {}
        self.writes: list[Assign] = []
        self.counts: dict[str, int] = dict.fromkeys(JOBS, 0)
        self.beside: dict[str, str] = {}
        self.vacate: dict[str, int] = {}
        self.runs = {self.pod(job, at): 1 for job in JOBS for at in range(len(JOBS[job]))}
        self.aside: frozenset[str] = frozenset()
        self.silent: set[str] = set()
        self.made = 0

    @staticmethod
    def pod(job: str, at: int) -> str:
        return f"{job}/{at}"

    def wants(self) -> list[Want]:
        return [
            Want(
                JobKey("team", job),
                self.pod(job, at),
                node,
                count,
                SIZES,
                len(JOBS[job]),
                self.pod(self.beside[job], 0) if job in self.beside else "",
            )
            for job, count in self.counts.items()
            if count
            for at, node in enumerate(JOBS[job])
        ]

    def decide(self) -> Decisions:
        found = decided(self.memory, self.wants(), self.now, self.vacate, self.aside, self.settled)
        self.writes += found.assigns
        for node, count in found.create.items():
            for _ in range(count):
                self.make(node)
        for uid in found.leave:
            if self.random.random() < 0.8:
                self.records.pop(uid, None)
                holder_gone(self.memory, uid, self.now)
        return found

    def make(self, node: str) -> None:
        used = {record.device for record in self.records.values()}
        free = [id for id in (f"{node}-{n}" for n in range(DEVICES)) if id not in used]
        self.made += 1
        device = self.random.choice([*free[:1], ""])
        self.see(HolderRecord(f"h{self.made}", node, device))

    def see(self, record: HolderRecord) -> None:
        self.records[record.uid] = record
        holder_seen(self.memory, record, self.now)

    def report(self, pod: str, *, ends: bool = False) -> None:
        """The pod's agent asks, having carried out its newest order."""
        agent = self.memory.speaker(pod)
        incarnation = str(self.runs[pod])
        if ends:
            self.runs[pod] += 1
            report = AgentReport(incarnation, AgentState.ENDED)
        elif agent is None or agent.order is None or agent.key.incarnation != incarnation:
            report = AgentReport(incarnation, AgentState.READY)
        else:
            report = AgentReport(incarnation, AgentState.RUNNING, agent.order.number, agent.order.devices)
        heard(self.memory, pod, report, self.now)

    def land(self) -> None:
        assign = self.writes.pop(self.random.randrange(len(self.writes)))
        recorded(self.memory, assign, self.now, written=self.random.random() < 0.9)

    def step(self) -> None:
        """One event, or several that calm things down."""
        draw, pod = self.random.random(), self.random.choice(sorted(self.runs))
        if draw < 0.3:
            self.calm()
        elif draw < 0.35:
            self.report(pod)
        elif draw < 0.42:
            self.silent ^= {pod}
            self.report(pod)
        elif draw < 0.48:
            before = self.memory.copy()
            hand_over.decide(self.memory, self.wants(), self.now, self.vacate, settled=self.settled)
            self.memory.go_back_to(before)
        elif draw < 0.55 and self.writes:
            self.land()
        elif draw < 0.7:
            job = self.random.choice(sorted(JOBS))
            self.counts[job] = self.random.choice((0, *SIZES))
        elif draw < 0.75:
            self.beside = self.random.choice(({}, {"also-0": "alone-0"}, {"also-1": "alone-1"}))
            for one, other in self.beside.items():
                self.counts[one] = self.counts[other]
        elif draw < 0.8 and self.records:
            self.fails()
        elif draw < 0.84:
            self.ends(pod)
        elif draw < 0.89:
            self.vacate = {self.random.choice(NODES): self.random.choice((0, 1, 2))}
        elif draw < 0.9:
            self.aside = self.random.choice((frozenset(), frozenset({pod})))
        else:
            self.now += self.random.choice((0.5, 3.0, KEEP, 30.0, LEASE))

    def fails(self) -> None:
        uid = self.random.choice(sorted(self.records))
        if self.random.random() < 0.3:
            del self.records[uid]
            holder_gone(self.memory, uid, self.now)
            return
        known = self.records[uid]
        device = known.device or f"{known.node}-{self.random.randrange(DEVICES)}"
        held = {record.device for record in self.records.values() if record.uid != uid}
        healthy, leaving = self.random.random() < 0.6, self.random.random() < 0.2
        if device not in held:
            self.see(HolderRecord(uid, known.node, device, healthy=healthy, leaving=leaving))

    def ends(self, pod: str) -> None:
        if self.random.random() < 0.5:
            self.report(pod, ends=True)
            return
        pod_ended(self.memory, pod, self.now)
        self.runs[pod] += 1
        if self.random.random() < 0.5:
            pod_gone(self.memory, pod)

    def calm(self) -> None:
        """Everybody does what he is told, and tells."""
        self.aside = frozenset()
        for _ in range(3):
            for pod in sorted(self.runs.keys() - self.silent):
                self.report(pod)
            self.decide()
            while self.writes:
                self.land()


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nodes that decisions looked at, by a device or a pod of theirs."""
    found: list[str] = []

    class Counted(NodeSteps):
        def __init__(self, *args: object) -> None:
            devices, wants = args[1], args[2]
            found.extend(sorted({one.node for one in (*devices, *wants)}))  # type: ignore[misc]
            super().__init__(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(hand_over, "NodeSteps", Counted)
    return found


@pytest.mark.parametrize("seed", range(80))
def test_a_decision_without_settled_nodes_is_the_one_with_all_of_them(seed: int) -> None:
    history = History(seed)
    for _ in range(80):
        history.step()
        history.decide()


def trains() -> History:
    """Each node has a job of its own, and two nodes have one together; all of it stands."""
    history = History(0)
    history.random = random.Random(1)
    history.counts |= {"alone-0": 2, "alone-1": 2, "alone-2": 4, "wide": 2}
    for node in NODES:
        for n in range(DEVICES):
            history.see(HolderRecord(f"{node}.{n}", node, f"{node}-{n}"))
    for _ in range(6):
        history.calm()
    assert set(history.settled) == set(NODES)
    return history


def test_a_node_where_nothing_changed_is_not_looked_at(looked_at: list[str]) -> None:
    history = trains()
    looked_at.clear()
    hand_over.decide(history.memory, history.wants(), history.now, settled=history.settled)
    assert looked_at == []


def test_a_change_looks_at_its_node_alone(looked_at: list[str]) -> None:
    history = trains()
    history.counts["alone-2"] = 2
    looked_at.clear()
    found = hand_over.decide(history.memory, history.wants(), history.now, settled=history.settled)
    assert (looked_at, found.told) == (["n2"], ("alone-2/0",))


def test_a_job_of_several_pods_that_gives_on_one_node_gives_on_its_others(looked_at: list[str]) -> None:
    """The agent of another job on n0 gets ready; the pod on n1 gives, too, although nothing changed there: until then
    both kept what they have for a job there that is not ready."""
    history = trains()
    history.silent = {"also-0/0", "also-1/0"}
    history.memory.current.clear()
    for _ in range(3):
        history.calm()
    history.counts |= {"wide": 1, "also-0": 1, "also-1": 1}
    for _ in range(3):
        history.calm()
    assert "n1" in history.settled
    history.report("also-0/0")
    looked_at.clear()
    found = hand_over.decide(history.memory, history.wants(), history.now, settled=history.settled)
    assert (set(looked_at), set(found.told)) == ({"n0", "n1"}, {"wide/0", "wide/1"})


def test_an_idle_device_is_looked_at_again_once_it_was_kept_for_long_enough(looked_at: list[str]) -> None:
    history = trains()
    history.counts["alone-2"] = 2
    history.calm()
    history.decide()
    history.now += KEEP - 1.0
    history.calm()
    looked_at.clear()
    assert hand_over.decide(history.memory, history.wants(), history.now, settled=history.settled).leave == ()
    assert looked_at == []
    history.now += 2.0
    found = hand_over.decide(history.memory, history.wants(), history.now, settled=history.settled)
    assert len(found.leave) == 2
    assert looked_at == ["n2"]


def test_a_node_that_is_to_be_vacated_gives_an_idle_device_at_once() -> None:
    history = trains()
    history.counts["alone-2"] = 2
    for _ in range(2):
        history.calm()
    assert "n2" in history.settled
    history.vacate = {"n2": 1}
    assert len(history.decide().leave) == 1


def test_a_holder_that_comes_too_late_leaves() -> None:
    history = trains()
    history.see(HolderRecord("late", "n1", ""))
    assert history.decide().leave == ("late",)


def test_what_a_decision_that_failed_had_learnt_of_changes_is_forgotten() -> None:
    history = trains()
    before = history.memory.copy()
    known = dict(history.memory.changes)
    pod_ended(history.memory, "alone-2/0", history.now)
    assert history.memory.changes != known
    history.memory.go_back_to(before)
    assert history.memory.changes == known
