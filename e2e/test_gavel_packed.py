"""Gavel's pairs on a cluster: two jobs that gain by it share a GPU, two that were measured to lose are taken apart,
and each linear programme splits the time of pairs and of who is alone by its own idea.

Nodes are fake: the scenario plays agents and what trainings report. Of the one GPU whose time is split `a` and `b`
make 1.6 times as much together as one alone; `d` loses beside either, and is nearly done though it came long ago."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from e2e.agents import Played, PlayedAgents, in_place, playing
from e2e.cluster import Cluster, Pod
from e2e.elastic import jobs_of, measured_beside, replayed
from e2e.in_place import VALUES
from e2e.lab import Lab, NodeGroup, Shape
from e2e.labs import own_lab
from e2e.reports import AsPods
from e2e.scenario import configured, delete_job, ends_now, in_state, looking, show, wait_until
from e2e.test_gavel import gone, quick
from muster.types import Job

RUNS_ON_KIND = True
pytestmark = pytest.mark.lab
T = TypeVar("T")
FIRST = "gavel-max-min-packed"
SPACE = "default"
SLOW = 120.0
SHORT = 4.0
"""s of a round, of which several are to be seen."""
LIGHT, HEAVY = "light", "heavy"
KEEPS = {(LIGHT, LIGHT): 0.8, (HEAVY, LIGHT): 0.45}
"""Part of its speed alone that each of two models keeps on one GPU."""
FAR, NEARLY_DONE = 1e6, 1.0
"""s that a job has to go."""


@dataclass
class Training:
    """A job in place of one GPU. left: s to go, whatever it has done; pod: its newest, with the agent there."""

    model: str
    left: float
    steps: float = 0.0
    pod: Pod | None = None
    agent: Played | None = None


class Floor:
    """Trainings and their agents. As a look for `looking`: pods that have come get an agent, each job takes a step a
    second alone and its part of that beside another one, and reports. seen: s that these jobs had one GPU; slow: of
    one of the two that lose, steps/s."""

    def __init__(self, lab: Lab, agents: PlayedAgents) -> None:
        self.lab, self.cluster, self._agents = lab, Cluster(lab.kubeconfig), agents
        self._own = Cluster(lab.kubeconfig)
        self._pods = AsPods(lab, self._own)
        self._jobs: dict[str, Training] = {}
        self._turn = threading.Lock()  # jobs come and go between two looks
        self._at = self._told = time.monotonic()
        self.seen: Counter[str] = Counter()
        self.slow = 0.0

    def submit(self, name: str, model: str, left: float = FAR) -> None:
        made = in_place(name, "1")
        made["spec"]["template"]["metadata"]["annotations"] |= {
            "muster.dev/report": "true",
            "muster.dev/model": model,
            "muster.dev/gpu-memory": "20Gi",
        }
        with self._turn:
            self._jobs[name] = Training(model, left)
        self.cluster.submit(made)

    def end(self, *names: str) -> None:
        for name in names:
            delete_job(self.cluster, SPACE, name)
            self.until(lambda name=name: not self.cluster.pods(SPACE, name), f"{name} is gone")
        with self._turn:
            for name in names:
                self._quiet(self._jobs.pop(name))

    def on(self) -> set[str]:
        """Who uses each GPU that is used, as "a+b"."""
        users: dict[str, set[str]] = {}
        for name, one in self._jobs.copy().items():
            for device in one.agent.devices if one.agent is not None else ():
                users.setdefault(device, set()).add(name)
        return {"+".join(sorted(names)) for names in users.values()}

    def __call__(self) -> None:
        with self._turn:
            self._play()
            now, there = time.monotonic(), self.on()
            passed, self._at = now - self._at, now
            for together in there:
                self.seen[together] += passed
                names = together.split("+")
                part = 1.0
                if len(names) > 1:
                    part = KEEPS[tuple(sorted(self._jobs[name].model for name in names))]  # type: ignore[index]
                for name in names:
                    self._jobs[name].steps += part * passed
            if now < self._told + 1.05:
                return
            self._told = now
            for one in [self._jobs[name] for together in there for name in together.split("+")]:
                assert one.pod is not None
                self._pods.tell(one.pod, {"step": one.steps, "total": one.steps + one.left})

    def _play(self) -> None:
        living = {pod.uid: pod for pod in self._own.pods(SPACE) if pod.phase == "Running" and not pod.deleted}
        for name, one in self._jobs.items():
            if one.pod is not None and one.pod.uid not in living:
                self._quiet(one)
            mine = [p for p in living.values() if p.labels.get("batch.kubernetes.io/job-name") == name]
            if mine and one.pod is None:
                bearer = self._pods.bearer(mine[0])
                one.pod, one.agent = mine[0], self._agents.play(mine[0].uid, bearer, (1,))

    def _quiet(self, one: Training) -> None:
        """Its pod has ended."""
        if one.pod is not None:
            self._agents.end(one.pod.uid)
            one.pod = one.agent = None

    def known(self) -> dict[str, Job]:
        """What Muster knows of them."""
        found = jobs_of(self.lab, self.cluster, SPACE)
        return {name: found[f"job-{name}"] for name in self._jobs.copy() if f"job-{name}" in found}

    def until(self, found: Callable[[], T | None], what: str) -> T:
        return wait_until(found, within=SLOW, what=what, also=self.shown)

    def shown(self) -> str:
        jobs = {name: (job.memory, dict(job.samples)) for name, job in self.known().items()}
        return (
            f"{self.on()} {self.seen}\n{jobs}\n{self.cluster.gangs(SPACE)}\n{show(self.cluster.pods(SPACE))}"
        )


Kept = Mapping[str, Mapping[str, Any]]


def allocated(floor: Floor, policy: str, *names: str) -> Kept | None:
    """By job, what stands of an allocation of time that is of all these and no others; None before there is one."""
    kept = {name: job.memory.get(policy) for name, job in floor.known().items()}
    made = {name: one for name, one in kept.items() if isinstance(one, dict) and one["jobs"] == len(names)}
    return made if made.keys() == set(names) == kept.keys() else None


def parts(kept: Kept) -> tuple[float, float]:
    """Of the time: that of d alone, and of a and b together."""
    beside = kept["a"]["beside"].get("default/job-b", {})
    return sum(kept["d"]["share"].values()), sum(beside.values())


def counted(floor: Floor, policy: str) -> tuple[float, float]:
    """The same as Muster has counted it since the allocation, in s."""
    kept: dict[str, Any] = {name: job.memory[policy] for name, job in floor.known().items()}
    alone = sum(kept["d"].get("seen", kept["d"]["had"]).values()) - sum(kept["d"]["had"].values())
    rode = [kept[one].get("rode", {}).get(f"default/job-{other}", {}) for one, other in ("ab", "ba")]
    return alone, sum(sum(one.values()) for one in rode)


def long_round(turn: int) -> float:
    """s of one that has begun, and does not end meanwhile; another turn: of another configuration, which begins its
    own."""
    began = time.time() - 100.0 - turn
    return began / round(began / 1000.0)


@pytest.fixture(scope="module")
def floor() -> Iterator[Floor]:
    values = ("config.resizeCost=false", "devices.enabled=true", "devices.keep=1s", "devices.lease=90s")
    shape = Shape(
        groups=(NodeGroup(2, gpus=1),),
        racks=0,
        set_values=(f"profile={FIRST}", *values, VALUES[-1]),
    )
    with own_lab("packed", shape) as lab, playing(lab.service_url()) as agents:
        made = Floor(lab, agents)
        with looking(made, 0.3, unless=gone):
            yield made


@pytest.fixture(scope="module")
def met(floor: Floor) -> Floor:
    """a and b have shared a GPU and do well by it, d has shared one with c, as light, and did not; one GPU is open.
    What a job does alone its kind has taught: nobody of them was alone."""
    long: dict[str, Any] = {"interval": 1.0}
    with configured(floor.lab, **quick(FIRST, long_round(0), **long)):
        for name, model in (("one", LIGHT), ("two", HEAVY)):
            floor.submit(name, model)
        floor.until(
            lambda: (jobs := floor.known()) and len(jobs) == 2 and all(job.samples for job in jobs.values()),
            "it is known how fast each kind is alone",
        )
        ends_now(floor.cluster, *floor.cluster.pods(SPACE))
        for name in ("one", "two"):
            floor.until(
                lambda name=name: in_state(floor.cluster, SPACE, f"job-{name}", "Finished"), f"{name} is done"
            )
        floor.end("one", "two")
        for name, model in (("a", LIGHT), ("b", LIGHT), ("c", LIGHT)):
            floor.submit(name, model)
        floor.submit("d", HEAVY, NEARLY_DONE)
        floor.until(lambda: allocated(floor, "gavel-max-min", *"abcd"), "time is shared out")
        with configured(floor.lab, **quick(FIRST, long_round(1), **long)):
            floor.until(lambda: floor.on() == {"a+b", "c+d"}, "pairs that nobody has measured are tried")
            floor.until(lambda: floor.on() == {"a+b", "c"}, "d leaves")
            floor.until(
                lambda: LIGHT in measured_beside(floor.lab, floor.cluster, SPACE, "job-a"),
                "a and b are measured",
            )
            # by whose measures come first: the pair is apart at once then, and the other one has none
            floor.slow = floor.until(
                lambda: (
                    measured_beside(floor.lab, floor.cluster, SPACE, "job-d").get(LIGHT)
                    or measured_beside(floor.lab, floor.cluster, SPACE, "job-c").get(HEAVY)
                ),
                "one of c and d is measured",
            )
            replayed(floor.lab, floor.cluster)
            (there,) = {pod.node for pod in floor.cluster.pods(SPACE, "c")}
            floor.cluster.cordon(there)
            floor.end("c")
    return floor


def test_pairs_are_tried_once_and_who_was_slow_beside_another_one_is_taken_apart(met: Floor) -> None:
    good = measured_beside(met.lab, met.cluster, SPACE, "job-a")
    assert 2.0 * met.slow < 1.1 < 2.0 * good[LIGHT], "of one step a second alone"


@pytest.mark.parametrize(
    "profile", ["gavel-max-min-packed", "gavel-ftf-packed", "gavel-min-total-duration-packed"]
)
def test_time_is_split_between_a_pair_and_who_is_better_alone_as_each_programme_means(
    met: Floor, profile: str
) -> None:
    policy = profile.removesuffix("-packed")
    with configured(met.lab, **quick(profile, SHORT, interval=1.0)):
        kept = met.until(lambda: allocated(met, policy, *"abd"), "time is shared out")
        alone, together = parts(kept)
        if profile == "gavel-max-min-packed":  # nobody does worse than another one
            assert abs(alone - KEEPS[LIGHT, LIGHT] * together) < 0.15, kept
        elif (
            profile == "gavel-ftf-packed"
        ):  # it came long ago for the little that it has to do: it is late by far
            assert alone > 0.75, kept
        else:  # who has most to do goes on all the time
            assert together > 0.75, kept
        met.seen.clear()

        def as_allocated() -> bool:
            now = counted(met, policy)
            return sum(now) > 4 * SHORT and abs(now[0] / sum(now) - alone / (alone + together)) < 0.15

        met.until(as_allocated, f"{alone} and {together} of the time, {counted(met, policy)}")
        seen = met.seen.copy()
        assert "a+d" not in seen, seen
        assert "b+d" not in seen, seen
        if together > 0.3:
            assert seen["a+b"] > SHORT / 2, seen
        if alone > 0.3:
            assert seen["d"] > SHORT / 2, seen
        replayed(met.lab, met.cluster)
