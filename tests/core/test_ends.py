"""Muster ends a running replica only for a reason that it can name, and that is true: any interleaving, two profiles.

What is true is judged by the cluster's own history (`Witness`), which knows pods, owners and nodes and nothing of
Muster's: when a gang was whole and with how many, since when it is not, and who else wants GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import Phase as Phase_
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster.core.sharing.shrink import departing
from muster.points import Profile
from muster.types import Action, EndReason, Event, Evict, Owner, Phase, PodRecord
from muster_plugins.max_min import MaxMin
from tests.cluster_fake import FakeCluster, Muster, node
from tests.scenario import role

TIMEOUT = 120.0
PROFILES = {
    "fifo": Profile(),
    "preemption": Profile(preemption=True),
    "max-min": Profile(name="max-min", shares=(MaxMin(),), conserving=True),
}
RUNNING_ENDS = {
    "fifo": {EndReason.START_FAILED, EndReason.LOST_MEMBERS},
    "preemption": {EndReason.START_FAILED, EndReason.LOST_MEMBERS, EndReason.PREEMPTION},
    "max-min": {EndReason.START_FAILED, EndReason.LOST_MEMBERS, EndReason.SHARE},
}
"""Why a running replica may end under each; MOVE needs a plugin that moves."""


@dataclass
class Witness:
    """What has been seen of one owner's pods. least: how many it was whole with, 0 = never; once: it had at least
    what was asked for when its start began; short_since: since when it has fewer than it needs although a pod of it
    waits, in this start: since a pod of it runs, or is on its way to its node."""

    least: int = 0
    begun: int = 0
    once: bool = False
    short_since: float | None = None

    def look(self, wanted: int, bound: int, sent: int, waiting: int, now: float, *, unseen: bool) -> None:
        if not wanted and not bound and not waiting:
            self.least = self.begun = 0
            self.once = False
        if not bound:
            self.begun = wanted if not self.begun or not waiting else min(self.begun, wanted)
        if wanted and bound >= wanted:
            self.least = self.begun = wanted
        elif wanted:
            self.least = min(self.least, wanted)
        self.once = self.once or bound >= self.begun > 0
        need = self.need(wanted)
        if not (bound or sent) or bound >= need or not waiting:
            self.short_since = self.short_since if unseen else None
        elif self.short_since is None:
            self.short_since = now

    def need(self, wanted: int) -> int:
        return min(self.least or wanted, wanted)


class Judged(FakeCluster):
    """A cluster whose every eviction of a running pod is judged by what was seen until then."""

    def __init__(self, profile: str) -> None:
        super().__init__(nodes=4, gpus=2)
        self.profile = profile
        self.seen: dict[str, Witness] = {}
        self.stubborn: set[str] = set()  # names of owners of whose pods only the first is bound
        self.turns: dict[str, tuple[int, int]] = {}  # bound and needed by owner, as a turn began

    def mine(self, owner: Owner) -> list[PodRecord]:
        return [p for p in self.pods.values() if p.controller == owner]

    def look(self, *, unseen: bool = False) -> None:
        """unseen: by what happened since Muster's last turn, and may be over before its next one."""
        for record in self.owners.values():
            mine = self.mine(record.owner)
            bound = sum(1 for p in mine if p.phase is Phase.BOUND)
            witness = self.seen.setdefault(record.owner.uid, Witness())
            sent = sum(1 for p in mine if p.phase is Phase.UNGATED)
            witness.look(record.size or 0, bound, sent, len(mine) - bound, self.now, unseen=unseen)

    def bind(self) -> int:
        bound = 0
        for pod in list(self.pods.values()):
            there = self.nodes.get(pod.pin)
            if pod.phase is not Phase.UNGATED or pod.controller is None:
                continue
            first = pod.labels["batch.kubernetes.io/job-completion-index"] == "0"
            if there is None or (pod.controller.name in self.stubborn and not first):
                self.update(pod, refusal="no")
                continue
            self.update(pod, phase=Phase.BOUND, node=pod.pin, refusal="")
            bound += 1
        self.look(unseen=True)
        return bound

    def carry_out(self, action: Action) -> list[Event]:
        if isinstance(action, Evict) and action.uid in self.pods:
            self.judge(action, self.pods[action.uid])
        return super().carry_out(action)

    def judge(self, action: Evict, pod: PodRecord) -> None:
        owner = pod.controller
        assert owner is not None
        if pod.phase is not Phase.BOUND:
            return
        assert action.reason in RUNNING_ENDS[self.profile], f"{pod.name}: {action}"
        witness, (bound, need) = self.seen[owner.uid], self.turns[owner.uid]
        others = [p for p in self.pods.values() if p.controller != owner]
        match action.reason:
            case EndReason.START_FAILED | EndReason.LOST_MEMBERS:
                assert bound < need, f"{pod.name}: {bound} of {need} ran. {action}"
                assert witness.short_since is not None, (
                    f"{pod.name}: it waited for nobody but its owner. {action}"
                )
                assert self.now - witness.short_since >= TIMEOUT - 1.0, f"{pod.name}: {action}"
                if action.reason is EndReason.LOST_MEMBERS:
                    assert witness.once, f"{pod.name}: it was never whole. {action}"
            case EndReason.PREEMPTION:
                assert any(p.priority > pod.priority for p in others), f"{pod.name}: {action}"
            case EndReason.SHARE:
                gpus = sum(n.allocatable["nvidia.com/gpu"] for n in self.nodes.values())
                assert others, f"{pod.name}: nobody else is there. {action}"
                assert sum(r.size or 0 for r in self.owners.values()) > gpus, f"{pod.name}: {action}"


class Lives(RuleBasedStateMachine):
    """Owners come, scale, take their time; nodes and pods vanish; Muster restarts.

    The witness looks when Muster does: nobody sees what an owner asked for between two cycles."""

    @initialize(profile=st.sampled_from(sorted(PROFILES)))
    def begin(self, profile: str) -> None:
        self.cluster = Judged(profile)
        self.profile = PROFILES[profile]
        self.muster = Muster(self.cluster, self.profile)
        self.sets: list[Owner] = []

    @precondition(lambda self: len(self.sets) < 4)
    @rule(size=st.integers(1, 6), exist=st.integers(0, 6), priority=st.sampled_from([0, 0, 5]))
    def comes(self, size: int, exist: int, priority: int) -> None:
        exist = size if exist >= 3 else max(1, min(exist, size))
        owner = self.cluster.stateful_set(f"s{len(self.sets)}", size, exist=exist)
        for pod in self.cluster.mine(owner):
            self.cluster.update(pod, priority=priority)
        self.sets.append(owner)

    @precondition(lambda self: self.sets)
    @rule(which=st.integers(0, 3), size=st.sampled_from([0, 1, 2, 3, 5, 8, 40]), exist=st.booleans())
    def is_scaled(self, which: int, size: int, exist: bool) -> None:
        owner = self.sets[which % len(self.sets)]
        have = self.cluster.mine(owner)
        priority = have[0].priority if have else 0
        self.cluster.scale(owner, size, exist=size if exist else min(size, len(have) + 1))
        for pod in self.cluster.mine(owner):
            if pod.priority != priority:
                self.cluster.update(pod, priority=priority)

    @precondition(lambda self: self.sets)
    @rule(which=st.integers(0, 3))
    def one_more_is_made(self, which: int) -> None:
        owner = self.sets[which % len(self.sets)]
        mine = self.cluster.mine(owner)
        if len(mine) < (self.cluster.owners[owner.uid].size or 0):
            pod = self.cluster.pod(owner, len(mine))
            self.cluster.update(pod, priority=mine[0].priority if mine else 0)

    @rule(number=st.integers(0, 3))
    def a_node_dies_or_comes_back(self, number: int) -> None:
        name = f"n{number}"
        if name not in self.cluster.nodes:
            self.cluster.nodes[name] = node(name, 2)
            return
        if len(self.cluster.nodes) == 1:
            return
        del self.cluster.nodes[name]
        for pod in [p for p in self.cluster.pods.values() if p.node == name]:
            self.cluster.delete(pod.uid)

    @precondition(lambda self: self.cluster.pods)
    @rule(which=st.integers(0, 99))
    def a_pod_is_deleted(self, which: int) -> None:
        uids = sorted(self.cluster.pods)
        self.cluster.delete(uids[which % len(uids)])

    @precondition(lambda self: self.sets)
    @rule(which=st.integers(0, 3))
    def its_pods_are_refused_from_now_on_or_no_more(self, which: int) -> None:
        self.cluster.stubborn ^= {self.sets[which % len(self.sets)].name}

    @rule()
    def muster_restarts(self) -> None:
        self.muster = Muster(self.cluster, self.profile)

    @rule(turns=st.integers(1, 8), seconds=st.sampled_from([0.5, 2.0, 7.0, 31.0]))
    def time_passes(self, turns: int, seconds: float) -> None:
        self._pass(turns, seconds)

    @precondition(lambda self: len(self.cluster.nodes) > 1)
    @rule(number=st.integers(0, 3))
    def a_node_dies_for_good(self, number: int) -> None:
        if f"n{number}" in self.cluster.nodes:
            self._pass(4, 0.5)
            self.a_node_dies_or_comes_back(number)
            self._pass(6, 31.0)

    @precondition(lambda self: self.sets)
    @rule(
        which=st.integers(0, 3), size=st.sampled_from([5, 9, 40]), exist=st.booleans(), restart=st.booleans()
    )
    def one_that_runs_is_scaled_and_time_passes(
        self, which: int, size: int, exist: bool, restart: bool
    ) -> None:
        self._pass(4, 0.5)
        self.is_scaled(which, size, exist)
        if restart:
            self.muster_restarts()
        self._pass(6, 31.0)

    @rule(size=st.integers(2, 6), exist=st.integers(1, 2))
    def one_comes_whose_owner_takes_its_time(self, size: int, exist: int) -> None:
        if len(self.sets) < 4:
            self.comes(size, exist, 0)
            self._pass(8, 31.0)

    @rule(size=st.integers(2, 4))
    def one_comes_of_which_only_a_part_is_bound(self, size: int) -> None:
        if len(self.sets) < 4:
            self.cluster.stubborn.add(f"s{len(self.sets)}")
            self.comes(size, 6, 0)
            self._pass(12, 21.0)

    @rule(size=st.integers(2, 6))
    def an_urgent_one_comes(self, size: int) -> None:
        self._pass(4, 0.5)
        if len(self.sets) < 4:
            self.comes(size, 6, 5)
            self._pass(6, 7.0)

    def _pass(self, turns: int, seconds: float) -> None:
        for _ in range(turns):
            self.cluster.now += seconds - 0.5
            self.cluster.look()
            self.cluster.turns = {
                uid: (
                    sum(1 for p in self.cluster.mine(r.owner) if p.phase is Phase.BOUND),
                    self.cluster.seen[uid].need(r.size or 0),
                )
                for uid, r in self.cluster.owners.items()
            }
            self.muster.turn(seconds=0.5)
            self.cluster.bind()

    @invariant()
    def no_node_is_over_committed(self) -> None:
        if hasattr(self, "cluster"):
            bound = [p for p in self.cluster.pods.values() if p.phase is Phase.BOUND]
            for name, found in self.cluster.nodes.items():
                assert sum(p.node == name for p in bound) <= found.allocatable["nvidia.com/gpu"]


TestNothingHealthyIsEnded = Lives.TestCase
TestNothingHealthyIsEnded.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, phases=[Phase_.generate]
)


def test_a_replica_on_its_way_to_its_node_leaves_before_one_that_runs() -> None:
    """A growth that is overtaken is undone: what is pinned stands, too."""
    of = role("worker", 3, on=["n0", "n0"], pinned=["n1"])
    assert [member.index for member in departing(of, (), 1)[1]] == [2]
