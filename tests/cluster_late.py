"""The cluster in memory as it is on a bad day: answers come late and out of order, pods take their time to end,
others change pods between a plan and its request (409), watches expire (410), the Lease is lost and won again."""

from __future__ import annotations

import random
from typing import Any

from muster.core.cycle import cycle
from muster.core.ledger import Ledger
from muster.points import Profile
from muster.types import (
    Action,
    Event,
    Evict,
    GangSeen,
    Outcome,
    OwnerSeen,
    Phase,
    PodGone,
    PodRecord,
    PodSeen,
    Ungate,
)
from tests.cluster_fake import FakeCluster
from tests.table_of_states import obeys, states

CONFLICT, NOT_SENT = 409, -1


class LateCluster(FakeCluster):
    """`told`: what the watch of pods says, in order; whoever reads it may be behind."""

    def __init__(self, rng: random.Random, nodes: int = 4, gpus: int = 8) -> None:
        self.told: list[Event] = []
        self.rng = rng
        super().__init__(nodes, gpus)

    def update(self, pod: PodRecord, **changes: object) -> PodRecord:
        pod = super().update(pod, **changes)
        self.told.append(PodSeen(pod))
        return pod

    def job(self, *what: Any, **more: Any) -> list[PodRecord]:
        """The owner is told first: its pods would wait for it."""
        before, known = len(self.told), set(self.owners)
        pods = super().job(*what, **more)
        self.told[before:before] = [OwnerSeen(self.owners[uid]) for uid in self.owners.keys() - known]
        return pods

    def delete(self, uid: str) -> None:
        self.told.append(PodGone(uid))
        super().delete(uid)

    def carry_out(self, action: Action) -> list[Event]:
        if isinstance(action, Evict | Ungate) and action.uid in self.pods and self.rng.random() < 0.1:
            self.update(self.pods[action.uid])  # somebody writes a label
        if not isinstance(action, Evict):
            return super().carry_out(action)
        self.sent.append(action)
        pod = self.pods.get(action.uid)
        if pod is None:
            return [Outcome(action, 404)]
        if pod.version != action.version or pod.phase.ended:
            return [PodSeen(pod), Outcome(action, CONFLICT)]
        phase = Phase.ENDING if pod.phase is Phase.BOUND else pod.phase
        return [PodSeen(self.update(pod, deleting=True, phase=phase)), Outcome(action, 201)]

    def pass_on(self) -> None:
        """Some pods that were told to end are gone, some nodes' pods are done."""
        for uid in [u for u, pod in self.pods.items() if pod.deleting]:
            if self.rng.random() < 0.5:
                self.delete(uid)


class LateMuster:
    """The circle, as live.py turns it, with everything between it and the cluster shuffled."""

    def __init__(self, cluster: LateCluster, profile: Profile | None = None) -> None:
        self.cluster, self.rng = cluster, cluster.rng
        self.ledger = Ledger(profile or Profile())
        self.queue: list[Action] = []  # decided, not sent
        self.answers: list[list[Event]] = []  # of what was sent, not heard yet
        self.heard = 0  # of what the watch told
        self.known: set[str] = set()
        self.earlier: set[str] = set()  # pods whose eviction an earlier term has sent
        self.relist()
        self.ledger.take_over(self.cluster.now)

    def unheard(self) -> list[Action]:
        """What was sent, and is not known to be answered."""
        return [event.action for events in self.answers for event in events if isinstance(event, Outcome)]

    def hear(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, PodSeen):
                self.known.add(event.pod.uid)
            self.ledger.apply(event, self.cluster.now)

    def answered(self, events: list[Event]) -> None:
        """What a Gang has that we write ourselves says nothing new: what was decided since it was sent stands."""
        for event in events:
            before = self.decided(event)
            self.hear([event])
            assert not isinstance(event, GangSeen) or self.decided(event) == before, event

    def decided(self, event: Event) -> tuple[object, ...] | None:
        """Of the job of a Gang's event: what of it no write of ours may change."""
        one = self.ledger.entries.get(event.gang.key) if isinstance(event, GangSeen) else None
        if one is None or not one.pods:
            return None
        return (*one.observed, one.whole, one.begun, one.started_at, one.story, one.backoff, one.queued_from)

    def relist(self) -> None:
        """410: what is there, and what is gone meanwhile."""
        self.hear(
            [*self.cluster.events(), *[PodGone(u) for u in sorted(self.known - set(self.cluster.pods))]]
        )
        self.known = set(self.cluster.pods)
        self.heard = len(self.cluster.told)

    def new_term(self) -> None:
        """Deposed and leading again: what is queued is not sent, and everything is listed afresh."""
        dropped, self.queue = self.queue, []
        self.earlier = {action.uid for action in self.unheard() if isinstance(action, Evict)}
        self.hear([Outcome(action, NOT_SENT) for action in dropped])
        self.ledger.step_down()
        self.relist()
        self.ledger.take_over(self.cluster.now)

    def restart(self) -> None:
        """Its process ends and another begins: what it knew, had queued and had not heard yet is lost."""
        self.earlier = {action.uid for action in (*self.queue, *self.unheard()) if isinstance(action, Evict)}
        self.ledger = Ledger(self.ledger.profile)
        self.queue, self.answers, self.known = [], [], set()
        self.relist()
        self.ledger.take_over(self.cluster.now)

    def turn(self) -> None:
        """One cycle."""
        snapshot = self.ledger.snapshot(self.cluster.now)
        plan = cycle(snapshot, self.ledger.profile)
        assert plan.plugin_errors == (), plan.plugin_errors
        before = states(self.ledger)
        actions = self.ledger.adopt(snapshot, plan)
        obeys(before, plan, actions)
        ending = {a.uid for a in (*self.queue, *self.unheard()) if isinstance(a, Evict)} - self.earlier
        twice = [action.uid for action in actions if isinstance(action, Evict) and action.uid in ending]
        assert twice == [], "an eviction is under way"
        self.queue += actions

    def step(self, bad: bool = True) -> None:
        """A tenth of a second on a bad day, or a second of a good one."""
        rng, cluster = self.rng, self.cluster
        cluster.now += 0.1 if bad else 1.0
        cluster.pass_on()
        if not bad or rng.random() < 0.4:
            cluster.bind()
        for _ in range(rng.randint(0, 4) if bad else len(self.queue)):
            if self.queue:
                self.answers.append(cluster.carry_out(self.queue.pop(0)))
        rng.shuffle(self.answers)
        for _ in range(rng.randint(0, 4) if bad else len(self.answers)):
            if self.answers:
                self.answered(self.answers.pop())
        behind = len(cluster.told) - self.heard
        upto = self.heard + (rng.randint(0, behind) if bad else behind)
        self.hear(cluster.told[self.heard : upto])
        self.heard = upto
        if bad and rng.random() < 0.05:
            self.relist()
        if bad and rng.random() < 0.03:
            self.new_term()
        if not bad or rng.random() < 0.7:
            self.turn()
        if rng.random() < 0.3 or not bad:
            self.queue += self.ledger.proceed(cluster.now)
        cluster.check()
