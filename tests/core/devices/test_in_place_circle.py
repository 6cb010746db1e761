"""Whatever jobs in place and others come, end, vanish and crash: no device is used by two, no node is over-committed,
and in the end every GPU that a job in place can train on is used (tests/core/devices/circle.py)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from muster.types import Grant, Grants, SharingSnapshot
from muster.types import Phase as PodPhase
from muster_plugins.grow_elsewhere import GrowElsewhere
from tests.core.devices.circle import Circle
from tests.core.devices.world import GRACE, KEEP, LEASE

ANY = st.integers(0, 1000)
SIZES = st.sampled_from(["1-4", "1,2,4", "2-3", "1", "4"])


@dataclass(frozen=True)
class Tries:
    """Jobs are measured at any of their smaller sizes, each for a few seconds, until this is `over`."""

    over: list[bool] = field(default_factory=list)

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        table, details = snapshot.table, dict(shares.details)
        for row, share in enumerate(shares.replicas.tolist()):
            sizes = [n for n in table.sizes.get(row, ()) if n < share]
            at = (int(snapshot.now) // 4 + row) % (len(sizes) + 1)
            if share == table.have[row] and at and not self.over:
                details[row] = Grant(measure=sizes[at - 1], kept=share - sizes[at - 1])
        return replace(shares, details=details)

    def wake(self, snapshot: SharingSnapshot) -> float:
        return snapshot.now + 4.0


class Jobs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    @initialize(goes=st.booleans(), tries=st.booleans())
    def begins(self, goes: bool, tries: bool) -> None:
        """goes: where GPUs idle on the other node, a job starts there; tries: jobs are measured at smaller sizes."""
        rebalance = (GrowElsewhere(horizon=100.0, cost=10.0, ending=0.0, cooldown=20.0),) if goes else ()
        self.circle = Circle(gpus=4, nodes=2, rebalance=rebalance)
        self.tries = Tries()
        if tries:
            profile = self.circle.profile
            self.circle.profile = replace(profile, shares=(*profile.shares, self.tries))
            self.circle.restart()

    @rule(yes=st.booleans())
    def words_within_cycles(self, yes: bool) -> None:
        self.circle.attends = yes

    @rule(sizes=SIZES, pods=st.sampled_from([1, 1, 2, 3]))
    def comes(self, sizes: str, pods: int) -> None:
        if self.made < 6:
            self.made += 1
            self.circle.train(f"j{self.made}", sizes, pods)

    @rule(gpus=st.integers(1, 3))
    def another_comes(self, gpus: int) -> None:
        if self.made < 6:
            self.made += 1
            self.circle.cluster.job(f"p{self.made}", 1, gpus)

    @rule(at=ANY, well=st.booleans())
    def ends(self, at: int, well: bool) -> None:
        pods = [p for p in self.circle.cluster.pods.values() if p.ours and p.phase is PodPhase.BOUND]
        if pods:
            pod = pods[at % len(pods)]
            self.circle.cluster.end(pod.uid, PodPhase.SUCCEEDED if well else PodPhase.FAILED)
            for agent in self.circle.agents:
                if agent.pod == pod.uid:
                    agent.die()

    @rule(at=ANY)
    def is_deleted(self, at: int) -> None:
        pods = [p for p in self.circle.cluster.pods.values() if p.ours and p.controller]
        if pods:
            self.circle.gone(pods[at % len(pods)].uid)
            self.circle.kubelets()

    @rule(at=ANY)
    def agent_restarts(self, at: int) -> None:
        living = [agent for agent in self.circle.agents if agent.alive]
        if living:
            living[at % len(living)].die()

    @rule(at=ANY)
    def hangs(self, at: int) -> None:
        living = [agent.pod for agent in self.circle.agents if agent.alive]
        self.circle.slow = {living[at % len(living)]} if living else set()

    @rule()
    def muster_restarts(self) -> None:
        self.circle.restart()

    @rule(count=st.integers(1, 4))
    def requests_fail(self, count: int) -> None:
        self.circle.refuse = count

    @rule(seconds=st.sampled_from([1, 1, 2, 3, 8, 70]))
    def time_passes(self, seconds: int) -> None:
        self.circle.seconds(seconds)

    def teardown(self) -> None:
        circle = self.circle
        circle.slow, circle.refuse = set(), 0
        self.tries.over.append(True)
        turns = (
            5 if circle.profile.rebalance else 3
        )  # who goes elsewhere leaves GPUs, for the next to go there
        circle.seconds(int(turns * (LEASE + GRACE) + KEEP) + 30)
        assert circle.ledger.in_place is not None
        for key, grants in circle.ledger.in_place.granted.items():
            assert len({grant.count for grant in grants}) == 1, (
                f"{key.name}: pods have different numbers of GPUs"
            )
            for grant in grants:
                used = sum(len(agent.using) for agent in circle.agents if agent.pod == grant.pod)
                assert used == grant.count, f"{key.name} is to have {grant.count} devices and uses {used}"
                assert grant.count in circle.ledger.in_place.sizes[key]
        using = sum(len(agent.using) for agent in circle.agents)
        assert len(circle.records) == using, f"{len(circle.records)} holders, and {using} devices are used"
        before = circle.starts()
        circle.seconds(40)
        assert circle.starts() == before, "nobody goes to and fro"
        for key, status in circle.plan.statuses.items():
            if key.name.startswith("job-j") and status.state == "Running":
                assert key in circle.ledger.in_place.granted, f"{key.name}: {status}"


Jobs.TestCase.settings = settings(
    max_examples=24,
    stateful_step_count=12,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
TestJobs = Jobs.TestCase
