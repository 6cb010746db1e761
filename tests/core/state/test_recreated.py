"""An owner takes back all of a job that ran and makes it again: who waits for the same GPUs gets none meanwhile.

Played in many orders: what the operator does, and how late each watch, each request of ours and its answer are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import pytest

from muster.core.cycle import cycle
from muster.core.ledger import Ledger
from muster.points import Profile
from muster.types import (
    GPU,
    Action,
    DeclaredRole,
    Event,
    Owner,
    OwnerGone,
    OwnerRecord,
    OwnerSeen,
    Phase,
    PodGone,
    PodRecord,
    PodSeen,
    Shape,
    State,
)
from tests.cluster_fake import FakeCluster
from tests.table_of_states import obeys, states

TRAIN = Owner("trainer.kubeflow.org/v1alpha1", "TrainJob", "tune", "train-uid")
SET = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "tune", "set-uid")
NODES = 4  # of 8 GPUs, all of which the TrainJob needs
SHAPE = Shape(requests=(("cpu", 1000), (GPU, 8)))
STEP = 0.1


class Told(FakeCluster):
    """What each watch says, in order and since when; pods say their creation in whole seconds, as the API does."""

    def __init__(self) -> None:
        self.lines: dict[str, list[tuple[float, Event]]] = {"pods": [], "jobs": [], "jobsets": []}
        super().__init__(NODES)

    def tell(self, line: str, event: Event) -> None:
        self.lines[line].append((self.now, event))

    def update(self, pod: PodRecord, **changes: object) -> PodRecord:
        pod = super().update(replace(pod, created=float(int(pod.created))), **changes)
        self.tell("pods", PodSeen(pod))
        return pod

    def gone(self, uid: str) -> None:
        """Who made it does something else about that."""
        del self.pods[uid]
        self.tell("pods", PodGone(uid))

    def says(self, line: str, owner: OwnerRecord) -> None:
        self.owners[owner.owner.uid] = owner
        self.tell(line, OwnerSeen(owner))

    def owner_gone(self, uid: str) -> None:
        del self.owners[uid]
        self.tell("jobs", OwnerGone(uid))


class Played:
    """A TrainJob on all nodes and a later job, submitted in the same second, that waits for `later` of them.
    launcher: it has a role besides of one pod that asks for nothing."""

    def __init__(self, seed: int, later: int, launcher: bool = False) -> None:
        self.rng, self.cluster = random.Random(seed), Told()
        self.ledger = Ledger(Profile())
        self.heard = dict.fromkeys(self.cluster.lines, 0)
        self.behind = dict.fromkeys(self.cluster.lines, 0.0)  # s
        self.slow, self.pace, self.binds = (
            0.0,
            1.0,
            1.0,
        )  # requests and answers: s at most; cycles and binds a step
        self.coming: list[tuple[float, Callable[[], None]]] = []
        self.attempt, self.made = 0, 0.0
        node = DeclaredRole("node", NODES, shape=SHAPE)
        roles = (node, DeclaredRole("launcher", 1, shape=Shape(requests=()))) if launcher else (node,)
        self.cluster.says("jobsets", OwnerRecord(SET, "team", roles=roles, named_after=TRAIN))
        for event in self.cluster.events():
            self.ledger.apply(event, self.cluster.now)
        self.ledger.take_over()
        self.makes_a_job()
        self.pods = [self.makes_a_pod(index) for index in range(NODES)]
        self.launcher = self.makes_a_launcher() if launcher else ""
        self.goes_on(0.5)
        known = set(self.cluster.owners)
        self.cluster.job("later", later, gpus=8)
        for uid in self.cluster.owners.keys() - known:
            self.cluster.tell("jobs", OwnerSeen(self.cluster.owners[uid]))
        self.goes_on(0.4)
        assert self.bound("tune") == NODES + launcher

    def bound(self, name: str) -> int:
        return len(self.cluster.bound(name))

    # ---- JobSet and the Job controller ----

    def job(self, over: str = "") -> OwnerRecord:
        owner = Owner("batch/v1", "Job", "tune-node-0", f"job-{self.attempt}")
        size = 0 if over else NODES
        return OwnerRecord(
            owner, "team", size=size, completions=NODES, whole=True, parent=SET, over=over, created=self.made
        )

    def makes_a_job(self) -> None:
        self.attempt, self.made = self.attempt + 1, float(int(self.cluster.now))
        self.cluster.says("jobs", self.job())

    def makes_a_pod(self, index: int) -> str:
        made = self.cluster.pod(self.job().owner, index, gpus=8)
        self.cluster.lines["pods"].pop()
        of = {"jobset.sigs.k8s.io/jobset-name": "tune", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
        return self.cluster.update(made, labels={**made.labels, **of}).uid

    def launching(self, over: str = "") -> OwnerRecord:
        owner, size = Owner("batch/v1", "Job", "tune-launcher-0", "launching"), 0 if over else 1
        return OwnerRecord(
            owner, "team", size=size, completions=1, whole=True, parent=SET, over=over, created=self.made
        )

    def makes_a_launcher(self) -> str:
        self.cluster.says("jobs", self.launching())
        made = self.cluster.pod(self.launching().owner, 0, gpus=0)
        self.cluster.lines["pods"].pop()
        of = {"jobset.sigs.k8s.io/jobset-name": "tune", "jobset.sigs.k8s.io/replicatedjob-name": "launcher"}
        return self.cluster.update(made, labels={**made.labels, **of}, shape=Shape(requests=())).uid

    def restarts(self, gap: float, on_term: Phase) -> None:
        """A pod fails, so its Job does, whose other pods end; JobSet removes the Job and makes it again. gap: seconds
        between two of these steps at most; on_term: how those pods end, by their exit code."""
        rng, cluster, old = self.rng, self.cluster, self.pods
        rng.shuffle(old)

        def changed(uid: str, phase: Phase) -> Callable[[], None]:
            return lambda: cluster.update(cluster.pods[uid], phase=phase, deleting=uid != old[0]) and None

        def gone(uid: str) -> Callable[[], None]:
            return lambda: cluster.gone(uid)

        def says(over: str) -> Callable[[], None]:
            return lambda: cluster.says("jobs", self.job(over))

        def made(index: int) -> Callable[[], None]:
            return lambda: self.pods.append(self.makes_a_pod(index))

        ways = [[changed(uid, Phase.ENDING), changed(uid, on_term), gone(uid)] for uid in old[1:]]
        ways.append([says("FailureTarget")])
        turns = [number for number, way in enumerate(ways) for _ in way]
        rng.shuffle(turns)
        steps = [changed(old[0], Phase.FAILED), *(ways[number].pop(0) for number in turns), says("Failed")]
        steps += [gone(old[0]), lambda: cluster.owner_gone(self.job().owner.uid), self.makes_a_job]
        steps += [made(index) for index in rng.sample(range(NODES), NODES)]
        self.pods = []
        times = accumulate(rng.choice((0.0, rng.uniform(0.0, gap))) for _ in steps)
        self.coming += [(cluster.now + at, step) for at, step in zip(times, steps, strict=True)]

    # ---- time ----

    def late(self, most: float) -> None:
        """Each watch, and what we send, is late by up to so many seconds from now on."""
        self.behind = {line: self.rng.choice((0.0, self.rng.uniform(0.0, most))) for line in self.behind}
        self.slow, self.pace, self.binds = self.rng.uniform(0.0, most), self.rng.choice((1.0, 0.3, 0.1)), 0.5

    def soon(self, what: Callable[[], None]) -> None:
        self.coming.append((self.cluster.now + self.rng.uniform(0.0, self.slow), what))

    def send(self, action: Action) -> None:
        by = self.ledger

        def answered() -> None:
            if by is self.ledger or self.rng.random() < 0.5:  # else it died before this was sent
                events = self.cluster.carry_out(action)
                self.soon(lambda: [by.apply(event, self.cluster.now) for event in events] and None)

        self.soon(answered)

    def hear(self) -> None:
        for line in self.rng.sample(sorted(self.heard), len(self.heard)):
            for at, event in self.cluster.lines[line][self.heard[line] :]:
                if self.cluster.now < at + self.behind[line]:
                    break
                self.heard[line] += 1
                self.ledger.apply(event, self.cluster.now)
        unread = [uid for uid in self.ledger.unknown_owners if uid not in self.ledger.owners.records]
        for uid in unread:  # a custom owner is told when the first pod of it is known
            self.ledger.apply(OwnerSeen(self.cluster.owners[uid]), self.cluster.now)

    def goes_on(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.cluster.now += STEP
            due = [one for one in self.coming if one[0] <= self.cluster.now]
            self.coming = [one for one in self.coming if one[0] > self.cluster.now]
            for _, step in due:
                step()
            self.hear()
            if self.rng.random() < self.binds:
                self.cluster.bind()
                self.cluster.check()
            if self.rng.random() < self.pace:
                self.plan()
            for action in self.ledger.proceed(self.cluster.now):
                self.send(action)

    def plan(self) -> None:
        snapshot = self.ledger.snapshot(self.cluster.now)
        plan = cycle(snapshot, self.ledger.profile)
        before = states(self.ledger)
        actions = self.ledger.adopt(snapshot, plan)
        obeys(before, plan, actions)
        for action in actions:
            self.send(action)

    def comes_back(self, which: str) -> None:
        """It runs whole again, and the later job has not passed it. which: of many, for the message."""
        for _ in range(1000):
            self.goes_on(STEP)
            assert self.passed == [], which
            if len(self.pods) == self.bound("tune") == NODES:
                break
        assert self.bound("tune") == NODES, which

    @property
    def passed(self) -> list[str]:
        """Pods of the later job that are not at the gate."""
        pods = self.cluster.pods.values()
        return [pod.name for pod in pods if pod.name.startswith("later") and pod.phase is not Phase.GATED]


@pytest.mark.parametrize("on_term", [Phase.FAILED, Phase.SUCCEEDED], ids=["exit-143", "exit-0"])
@pytest.mark.parametrize("slowly", [0.3, 3.0], ids=["fast", "slow"])
@pytest.mark.parametrize("later", [1, 2, NODES])
def test_a_trainjob_that_its_runtime_restarts_keeps_its_place_in_whatever_order_that_is_seen(
    later: int, slowly: float, on_term: Phase
) -> None:
    for seed in range(8):
        it = Played(seed, later)
        for _ in range(2):
            it.late(slowly)
            it.restarts(slowly, on_term)
            it.comes_back(f"seed {seed}")


def test_a_job_is_seen_to_go_before_the_end_of_its_pods_and_their_places_stay_kept() -> None:
    """The watch of pods is behind: all that is known of them is that one has failed."""
    it = Played(0, later=1)
    it.cluster.update(it.cluster.pods[it.pods[0]], phase=Phase.FAILED)
    it.goes_on(0.5)
    it.cluster.says("jobs", it.job("Failed"))
    it.cluster.owner_gone(it.job().owner.uid)
    it.goes_on(5.0)
    assert it.passed == []


def test_a_role_that_asks_for_nothing_takes_no_place_from_the_others() -> None:
    """A launcher without `resources`: that nothing is known of what it needs is not so."""
    it = Played(0, later=1, launcher=True)
    it.goes_on(10.0)
    assert it.bound("tune") == NODES + 1
    for gone in (it.job("Failed"), it.launching("Failed")):
        it.cluster.says("jobs", gone)
    for uid in (*it.pods, it.launcher):
        it.cluster.update(it.cluster.pods[uid], phase=Phase.FAILED, deleting=True)
        it.cluster.gone(uid)
    for gone in (it.job(), it.launching()):
        it.cluster.owner_gone(gone.owner.uid)
    it.goes_on(5.0)
    assert it.passed == []


def test_a_job_that_is_done_stays_so_when_its_pods_are_deleted_before_its_owner_says_so() -> None:
    """What succeeded before it was deleted is done: it was taken for a gang that is to come back, and waited."""
    it = Played(0, later=1)
    for changes in ({"phase": Phase.SUCCEEDED}, {"deleting": True}):
        for uid in it.pods:
            it.cluster.update(it.cluster.pods[uid], **changes)
        it.goes_on(1.0)
        (tune,) = (one for key, one in it.ledger.entries.items() if key.name == "trainjob-tune")
        assert tune.state == State.FINISHED
        assert len(it.passed) == 1
