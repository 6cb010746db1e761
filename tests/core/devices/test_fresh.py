"""A decision that looks at the nodes of which something is new is the one about all nodes: random histories of the
whole circle, in which what follows is decided after each word of an agent, a holder or the API, as live. That both
are the same is looked at by `alike.decided`, as in each test here."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import pytest

from muster.core.devices import fresh
from muster.core.devices.coordinator import Coordinator
from muster.core.devices.device_ledger import DeviceLedger
from muster.core.devices.on_node import Want
from muster.types import Phase
from muster.types.devices import AgentAnswer, AgentReport
from muster.types.holders import DeleteHolder, HolderEvent, HolderGone, HolderRecord, HolderSeen
from tests.core.devices.circle import Circle
from tests.core.devices.world import GRACE, KEEP, LEASE

NODES = 4
USUAL = ("comes", "ends")
EVENTS = (*4 * USUAL, "gone", "dies", "cut", "slow", "ill", "holder", "refuse", "other", "restart")


class Noted(fresh.Fresh):
    """counts: at how many nodes each decision looked, None: at all."""

    counts: list[int | None]

    def look(
        self, wants: Sequence[Want], vacate: Mapping[str, int], aside: AbstractSet[str], now: float
    ) -> set[str] | None:
        found = super().look(wants, vacate, aside, now)
        self.counts.append(None if found is None else len(found))
        return found


class Live(Circle):
    """What follows from a word is decided at once. looked: `Noted`'s counts, of all that led."""

    def __init__(self) -> None:
        self.looked: list[int | None] = []
        super().__init__(gpus=8, nodes=NODES)

    def restart(self) -> None:
        super().restart()
        noted = Noted()
        made = DeviceLedger(Coordinator(self.term, self.cluster.now, LEASE, GRACE, KEEP), fresh=noted)
        noted.counts = self.looked
        self.devices = made
        self.ledger.give_devices(made)
        hear, learn = made.heard, made.apply
        self.within = False

        def heard(pod: str, report: AgentReport, now: float) -> AgentAnswer | None:
            hear(pod, report, now)
            self.decide()
            agent = made.coordinator.speaker(pod)
            if agent is None or agent.key.incarnation != report.incarnation:
                return hear(pod, report, now)
            return AgentAnswer(self.term, LEASE, None if agent.settled else agent.order)

        def apply(event: HolderEvent, now: float) -> None:
            learn(event, now)
            self.decide()

        made.heard = heard  # type: ignore[method-assign]
        made.apply = apply  # type: ignore[method-assign]
        self.watch()

    def decide(self) -> None:
        if self.within or self.ledger.in_place is None:
            return
        self.within = True
        for action in self.ledger.in_place.adopt(self.cluster.now)[0]:
            self.carry_out(action)
        self.within = False


def ends(circle: Live, pod: str) -> None:
    """A pod is over, and its container with it."""
    circle.cluster.end(pod)
    for agent in circle.agents:
        if agent.pod == pod:
            agent.die()


def step(circle: Live, draw: random.Random) -> None:
    """Something comes, ends, fails or is well again; then time passes."""
    alive = [agent for agent in circle.agents if agent.alive]
    match draw.choice(EVENTS):
        case "comes":
            sizes = draw.choice(["4,8", "1-8", "1,2,4", "2"])
            circle.train(f"j{circle.cluster.tick()}x", sizes, pods=draw.choice([1, 1, 2]))
        case "ends" if alive:
            ends(circle, draw.choice(alive).pod)
        case "gone" if alive:
            circle.gone(draw.choice(alive).pod)
        case "dies" if alive:
            draw.choice(alive).die()
        case "cut" if alive:
            circle.cut ^= {draw.choice(alive).pod}
        case "slow" if alive:
            circle.slow ^= {draw.choice(alive).pod}
        case "ill":
            circle.ill ^= {f"GPU-n{draw.randrange(NODES)}-{draw.randrange(8)}"}
        case "holder" if circle.records:
            circle.cluster.pods.pop(draw.choice(sorted(circle.records)), None)
        case "refuse":
            circle.refuse = draw.randrange(3)
        case "other":
            circle.cluster.job(f"p{circle.cluster.tick()}x", 1, draw.choice([1, 4]))
        case "restart" if draw.random() < 0.2:
            circle.restart()
    circle.cluster.now += draw.choice([0.0, 0.0, KEEP, LEASE])
    circle.seconds(draw.choice([1, 2, 5]))


@pytest.mark.parametrize("seed", range(4))
def test_a_decision_about_what_is_new_is_the_one_about_all_nodes(seed: int) -> None:
    draw = random.Random(seed)
    circle = Live()
    circle.check = lambda: None  # type: ignore[method-assign]  # holders vanish by force here
    for _ in range(15):
        step(circle, draw)
    less = [count for count in circle.looked if count is not None and count < NODES]
    assert len(less) > len(circle.looked) // 4, "it tries something"


def test_a_word_of_an_agent_looks_at_its_node_alone() -> None:
    circle = Live()
    for number in range(2 * NODES):
        circle.train(f"j{number}x", "4,8")
    circle.seconds(20)
    (pod, *_) = [p for p in circle.cluster.pods.values() if p.ours and p.phase is Phase.BOUND]
    looked = circle.looked
    looked.clear()
    circle.second()
    assert max(looked, key=lambda count: NODES if count is None else count) == 1, (
        "of each holder that is told of"
    )
    ends(circle, pod.uid)
    circle.seconds(3)
    circle.train("new", "4,8")
    circle.seconds(5)
    assert max(count for count in looked if count is not None) == 1
    assert None not in looked


def test_all_nodes_are_looked_at_now_and_then_whatever_is_known_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fresh, "EVERY", 10.0)
    known = fresh.Fresh(every=False)
    assert known.look((), {}, set(), 100.0) is None
    assert [known.look((), {}, set(), now) for now in (101.0, 109.9)] == [set(), set()]
    assert known.look((), {}, set(), 110.0) is None


def test_when_an_idle_device_was_kept_for_long_enough_its_node_alone_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fresh, "EVERY", float("inf"))
    noted = Noted()
    noted.counts = []
    devices = DeviceLedger(Coordinator(1, 0.0, LEASE, GRACE, KEEP), fresh=noted)

    def leaves(now: float) -> list[str]:
        return [one.uid for one in devices.adopt([], now)[0] if isinstance(one, DeleteHolder)]

    for node, at in (("n1", 0.0), ("n2", 1.0)):
        devices.apply(HolderSeen(HolderRecord(f"u-{node}", node, device=f"GPU-{node}"), node, "1"), at)
        assert leaves(at) == []
    assert devices.adopt([], 1.0)[1].wake == KEEP
    assert leaves(KEEP) == ["u-n1"]
    assert noted.counts[-1] == 1
    assert leaves(KEEP + 1.0) == ["u-n2"]


def test_of_a_node_of_which_nothing_is_left_nobody_is_woken() -> None:
    devices = DeviceLedger(Coordinator(1, 0.0, LEASE, GRACE, KEEP))
    devices.apply(HolderSeen(HolderRecord("u", "n1", device="GPU"), "n1", "1"), 0.0)
    assert devices.adopt([], 0.0)[1].wake == KEEP
    devices.apply(HolderGone("u"), 1.0)
    devices.fresh.every = True
    assert devices.adopt([], 1.0)[1].wake is None
