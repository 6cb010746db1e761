"""SideCar's scheduler in place: a job that arrives gets GPUs of one that runs, which gets idle ones back, and no pod
ends for it. What is measured counts GPUs, and the plans of such jobs are replayed alike. Where GPUs idle on another
node, a job's pod ends and starts there. Nodes are fake: the scenario plays the agents and what trainings report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from e2e.agents import Played, PlayedAgents, in_place, playing
from e2e.cluster import Cluster, Pod
from e2e.elastic import replayed
from e2e.in_place import as_they_were
from e2e.lab import Lab, NodeGroup, Shape
from e2e.reports import AsPods, token
from e2e.scenario import delete_job, looking, wait_until
from muster.core import snapshot_codec
from muster.types import Job

pytestmark = pytest.mark.lab
PROFILE = "reshape"
VALUES = (
    f"profile={PROFILE}",
    "config.resizeCost=false",
    "devices.enabled=true",
    "devices.keep=1s",
    r"devices.namespaceSelector.matchLabels.kubernetes\.io/metadata\.name=default",
)
SPACE = "default"
SIZES = (1, 2, 4, 8)


@dataclass
class Training:
    """A job in place: its pod, the agent that is played there, the steps that it has taken, and until when."""

    pod: Pod
    agent: Played
    steps: float = 0.0
    until: float = 0.0


class Trainings:
    """Jobs in place on a lab, each with an agent. As a look for `looking` each takes a step a second on each of
    its GPUs, and reports it."""

    def __init__(self, lab: Lab, cluster: Cluster, agents: PlayedAgents) -> None:
        self._cluster, self._agents = cluster, agents
        self._pods = AsPods(lab, Cluster(cluster.kubeconfig))
        self.known: dict[str, Training] = {}
        self._turn = threading.Lock()  # who has ended tells nothing any more

    def start(self, name: str, most: int) -> None:
        """A training of a million seconds on one GPU, linear in its GPUs, of 1, 2, 4 ... up to so many."""
        sizes = [count for count in SIZES if count <= most]
        made = in_place(name, ",".join(map(str, sizes)))
        made["spec"]["template"]["metadata"]["annotations"] |= {
            "muster.dev/report": "true",
            "muster.dev/remaining-work": "1000000",
            "muster.dev/speed": ",".join(f"{count}={count}" for count in sizes),
        }
        self._cluster.submit(made)
        self.play(name, sizes)

    def play(self, name: str, sizes: Sequence[int]) -> None:
        """The agent of a job's pod, once that runs; of a pod that has come after another one, too."""
        before = self.known[name].pod.uid if name in self.known else ""
        pod = wait_until(
            lambda: next(
                (p for p in self._cluster.pods(SPACE, name) if p.phase == "Running" and p.uid != before), None
            ),
            what=f"the pod of {name} runs",
            also=lambda: str(self._cluster.gangs(SPACE)),
        )
        bearer = token(self._cluster, pod, SPACE)
        self.known = {**self.known, name: Training(pod, self._agents.play(pod.uid, bearer, sizes))}

    def gone(self, *names: str) -> str:
        """The first of these jobs whose pod has ended; its agent ends with it."""

        def moved() -> str | None:
            living = {p.uid for p in self._cluster.pods(SPACE) if not p.deleted}
            return next((name for name in names if self.known[name].pod.uid not in living), None)

        found = wait_until(
            moved, within=180.0, what="one goes elsewhere", also=lambda: str(self._cluster.gangs(SPACE))
        )
        self._agents.end(self.known[found].pod.uid)
        return found

    def end(self, name: str) -> None:
        with self._turn:
            over = self.known[name]
            self.known = {key: one for key, one in self.known.items() if key != name}
        self._agents.end(over.pod.uid)
        delete_job(self._cluster, SPACE, name)

    def __call__(self) -> None:
        with self._turn:
            for one in self.known.values():
                now = time.monotonic()
                if one.agent.devices:
                    one.steps += len(one.agent.devices) * (now - one.until if one.until else 0.0)
                    self._pods.tell(one.pod, {"step": one.steps})
                one.until = now

    def devices(self) -> dict[str, tuple[str, ...]]:
        return {name: one.agent.devices for name, one in self.known.items()}

    def settled(self, of: set[int]) -> dict[str, int] | None:
        """GPUs of each, once all use what they were told to, and these are the numbers."""
        counts = {name: len(have) for name, have in self.devices().items()}
        said = all(one.agent.told and one.agent.told[-1].said for one in self.known.values())
        return counts if said and {*counts.values()} == of else None

    def have(self, **counts: int) -> dict[str, tuple[str, ...]]:
        """The devices of each, once all were told to use so many and have told so."""

        def as_wanted() -> dict[str, tuple[str, ...]] | None:
            found = self.devices()
            said = all(one.agent.told and one.agent.told[-1].said for one in self.known.values())
            return found if said and {name: len(have) for name, have in found.items()} == counts else None

        return wait_until(
            as_wanted,
            within=180.0,
            what=f"jobs have GPUs as in {counts}",
            also=lambda: f"{self.devices()}\n{self._cluster.gangs(SPACE)}",
        )


def known(lab: Lab, cluster: Cluster, name: str) -> Job:
    """What Muster knows of a job, by the newest snapshot; its plan is made again, and nothing differs."""
    snapshot, _ = snapshot_codec.load(replayed(lab, cluster))
    return next(job for job in snapshot.jobs.values() if name in job.key.name)


def measures(lab: Lab, cluster: Cluster, name: str, gpus: int) -> None:
    """Wait until a job's speed on so many GPUs is known, a step a second on each; it attains as many GPU-seconds."""

    def found() -> bool:
        job = known(lab, cluster, name)
        of = [speed for config, speed in job.samples.items() if config.nodes == (gpus,)]
        return bool(of) and job.facts.gpu_seconds.rate == gpus and abs(of[0] / gpus - 1.0) < 0.3

    wait_until(
        found,
        within=180.0,
        what=f"the speed of {name} on {gpus} GPUs",
        also=lambda: str(known(lab, cluster, name)),
    )


@pytest.fixture
def lab(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab(Shape(groups=(NodeGroup(1, gpus=8),), racks=0, set_values=VALUES))


def test_reshape_takes_gpus_of_a_running_job_for_one_that_arrives_and_gives_idle_ones_back_in_place(
    lab: Lab,
) -> None:
    cluster = Cluster(lab.kubeconfig)
    with playing(lab.service_url()) as agents:
        trainings = Trainings(lab, cluster, agents)
        with looking(trainings, 1.1):
            trainings.start("a", 8)
            before = trainings.have(a=8)
            measures(lab, cluster, "a", 8)
            first = as_they_were(cluster, "a")
            trainings.start("b", 4)
            found = trainings.have(a=4, b=4)
            measures(lab, cluster, "a", 4)
            assert {*found["a"]} | {*found["b"]} == {*before["a"]}, "b has four of those that a had"
            trainings.end("b")
            assert {*trainings.have(a=8)["a"]} >= {*found["a"]}, "what it kept stays"
            assert as_they_were(cluster, "a") == first, "no pod ended, no container started again"
            replayed(lab, cluster)


def test_where_gpus_idle_on_another_node_a_job_in_place_starts_there_and_who_stays_grows(
    new_lab: Callable[[Shape], Lab],
) -> None:
    values = (*VALUES[1:], "profile=max-min", "config.pluginArgs.grow-elsewhere.cooldown=5")
    lab = new_lab(Shape(groups=(NodeGroup(2, gpus=4),), racks=0, set_values=values))
    cluster = Cluster(lab.kubeconfig)
    with playing(lab.service_url()) as agents:
        trainings = Trainings(lab, cluster, agents)
        with looking(trainings, 1.1):
            trainings.start("a", 4)
            trainings.have(a=4)
            trainings.start("b", 4)
            trainings.have(a=4, b=4)
            trainings.start("c", 4)
            counts = wait_until(
                lambda: trainings.settled({2, 4}),
                within=180.0,
                what="one has four GPUs, and two share the other node",
                also=lambda: f"{trainings.devices()}\n{cluster.gangs(SPACE)}",
            )
            (alone,) = (name for name, count in counts.items() if count == 4)
            trainings.end(alone)
            crowded = sorted(counts.keys() - {alone})
            moved = trainings.gone(*crowded)
            trainings.play(moved, (1, 2, 4))
            trainings.have(**dict.fromkeys(crowded, 4))
            nodes = {pod.node for pod in cluster.pods(SPACE) if not pod.deleted and not pod.terminal}
            assert len(nodes) == 2, "each has a node"
            (stayed,) = (name for name in crowded if name != moved)
            assert as_they_were(cluster, stayed) == [(trainings.known[stayed].pod.uid, 0)]
            replayed(lab, cluster)
