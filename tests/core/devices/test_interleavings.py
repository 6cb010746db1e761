"""In any interleaving no device is used by two that are no pair, and everybody gets what the plan says once messages
come through: hypothesis plays the network, the API, the clock, crashes and leaders (tests/core/devices/world.py)."""

from __future__ import annotations

from itertools import product

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from muster.core.devices.holders import holder_seen
from tests.core.devices.world import DEVICES, GRACE, KEEP, LEASE, SIZES, World

PODS = st.sampled_from(sorted(SIZES))
ANY = st.integers(0, 1000)


Planned = tuple[dict[str, int], dict[str, str]]
"""Devices by pod, and the partner of a pod that shares its own."""
COUNTS = tuple(product(*((0, *SIZES[pod]) for pod in sorted(SIZES))))
ALONE: tuple[Planned, ...] = tuple(
    ({"a": a, "b": b, "c": c}, {}) for a, b, c in COUNTS if a + b + c <= DEVICES
)
PAIRS: tuple[Planned, ...] = tuple(
    ({"a": a, "b": b, "c": c}, {"b": "a"}) for a, b, c in COUNTS if a == b > 0 and a + c <= DEVICES
)
PLANNED = st.one_of(st.sampled_from(ALONE), st.sampled_from(PAIRS))
"""All that fits on the node, in sizes that the pods have; b alone and beside a."""


STEPS = ("decide", "land", "watch", "ask", "receive", "deliver", "step", "wait")
FAULTS = ("restart", "die", "lose", "another leader", "an old word of a holder", "health")


class Interleavings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def adopt(self, plan: Planned) -> None:
        self.world.wants, self.world.beside = dict(plan[0]), dict(plan[1])

    @initialize(plan=PLANNED)
    def running(self, plan: Planned) -> None:
        """What must not break is there from the beginning."""
        for pod in SIZES:
            self.world.start_agent(pod)
        self.adopt(plan)
        self.world.calm(6)

    @rule(
        plan=st.none() | PLANNED,
        seconds=st.sampled_from([1, 2, 4, 40, 64, 70]),
        cut=st.frozensets(PODS, max_size=2),
        slow=st.frozensets(PODS, max_size=1),
        leader=st.booleans(),
    )
    def time_passes(
        self,
        plan: Planned | None,
        seconds: int,
        cut: frozenset[str],
        slow: frozenset[str],
        leader: bool,
    ) -> None:
        """Perhaps with another plan and another leader, while some are cut off or hang."""
        if plan is not None:
            self.adopt(plan)
        if leader:
            self.world.lead()
        self.world.calm(seconds, cut, slow)

    @rule(plan=PLANNED)
    def plan(self, plan: Planned) -> None:
        self.adopt(plan)

    @rule(
        steps=st.lists(st.tuples(st.sampled_from(STEPS), PODS, ANY, st.booleans()), min_size=4, max_size=24)
    )
    def small_steps(self, steps: list[tuple[str, str, int, bool]]) -> None:
        """Each message, write and step of an agent by itself: late, twice, or never."""
        world = self.world
        for what, pod, at, flag in steps:
            if what == "decide":
                world.carry_out(world.decide())
            elif what == "land" and world.writes:
                world.land(at % len(world.writes), answered=flag)
            elif what == "watch" and world.stored:
                world.watch(sorted(world.stored)[at % len(world.stored)])
            elif what == "ask":
                for agent in world.living(pod):
                    world.ask(agent)
            elif what == "receive" and world.requests:
                world.receive(at % len(world.requests), again=flag)
            elif what == "deliver" and world.answers:
                world.deliver(at % len(world.answers), again=flag)
            elif what == "step":
                for agent in world.living(pod):
                    agent.step()
            elif what == "wait":
                world.pass_time((1.0, 15.0, 40.0)[at % 3])
            world.check()

    @rule(what=st.sampled_from(FAULTS), pod=PODS, at=ANY, flag=st.booleans())
    def fault(self, what: str, pod: str, at: int, flag: bool) -> None:
        world = self.world
        if what == "restart":
            world.start_agent(pod)
        elif what == "die":
            for agent in world.living(pod):
                agent.die()
        elif what == "lose":
            world.requests.clear()
            world.answers.clear()
        elif what == "another leader":
            world.lead()
        elif what == "an old word of a holder" and world.history:
            record = world.history[at % len(world.history)]
            if record.uid in world.stored:
                holder_seen(world.leader, record, world.now)
        elif what == "health" and world.stored:
            world.set_health(sorted(world.stored)[at % len(world.stored)], healthy=flag)

    # ---- what holds ----

    def teardown(self) -> None:
        """Everybody gets what the plan says."""
        world = self.world
        for uid in list(world.stored):
            world.set_health(uid, healthy=True)
        for pod in SIZES:
            if not world.living(pod):
                world.start_agent(pod)
        world.calm(int(2 * (LEASE + GRACE) + KEEP) + 20)
        for pod in SIZES:
            (agent,) = world.living(pod)
            wanted = world.wants.get(pod, 0)
            assert len(agent.using) == wanted, f"{pod} is to have {wanted} devices and has {agent.using}"
        alone = sum(count for pod, count in world.wants.items() if pod not in world.beside)
        assert len(world.stored) == alone, "idle holders go"
        shared = sum(world.wants[pod] for pod in world.beside)
        assert len(world.shared()) == shared, f"who is to share {shared} devices shares {world.shared()}"


Interleavings.TestCase.settings = settings(
    max_examples=60, stateful_step_count=8, deadline=None, phases=[Phase.generate]
)
TestInterleavings = Interleavings.TestCase
