# Over 300 lines: its scenarios share one lab with real nodes, which takes minutes to start.
"""A real training on real containers: Muster grows, shrinks, moves and preempts it, and its loss keeps falling.

The training is config/samples/elastic-training as it is shipped, on two nodes of the lab that really run
containers. What it did is read from its own log: each step with its loss and who took part.

TRAINING_ROUNDS=20 makes it long (a minute or two a round, in an order drawn by TRAINING_SEED)."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

import pytest
import yaml

from e2e.cluster import Cluster, Json, Pod
from e2e.elastic import measured
from e2e.lab import Lab, Shape
from e2e.lab.places import CHECKOUT
from e2e.lab.realnode import PYTHON, why_not
from e2e.labs import own_lab
from e2e.referee import watching
from e2e.scenario import bound, gang, gated, job, show, wait_until

ROUNDS = int(os.environ.get("TRAINING_ROUNDS", "1"))
RUNS_ON_KIND = True
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(
        1200 + 600 * ROUNDS
    ),  # the first start builds kubelet and containerd, and installs jax
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]

SAMPLE = CHECKOUT / "config" / "samples" / "elastic-training"
IMAGE = "muster.dev/elastic-training:1"
NAME, SPACE = "elastic-training", "default"
SLOW = 300.0  # seconds for a worker to join: jax alone takes ten on a loaded machine
EVERY = 10
CRASHES = 3  # of a long run: the Job's back-off doubles with each, and it has a limit


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    # Racks and zones would say that the two nodes are far from each other.
    with own_lab(
        "training",
        Shape(
            groups=(),
            racks=0,
            real=2,
            real_gpus=2,
            set_values=("profile=afs-l", "config.resizeCost=false"),
        ),
    ) as lab:
        files = [SAMPLE / "train.py", CHECKOUT / "extender" / "report" / "muster_report"]
        lab.add_image(IMAGE, files, ["jax"])
        yield lab


@dataclass(frozen=True)
class Training:
    """The Job and what its log says."""

    lab: Lab
    cluster: Cluster
    folder: Path  # its volume
    name: str = NAME

    @property
    def log(self) -> list[Json]:
        try:
            lines = (self.folder / "log.jsonl").read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        if lines and not lines[-1].endswith("\n"):  # it is being written
            lines.pop()
        return [json.loads(line) for line in lines]

    @property
    def steps(self) -> list[Json]:
        return [entry for entry in self.log if "step" in entry]

    @property
    def pods(self) -> list[Pod]:
        return self.cluster.pods(SPACE, self.name)

    @property
    def gang(self) -> str:
        """The name of its Gang."""
        return f"job-{self.name}"

    @property
    def indexes(self) -> list[int]:
        """Of the workers that are bound."""
        return sorted(index_of(one) for one in bound(self.pods))

    @property
    def leaders_node(self) -> str:
        return next((one.node for one in bound(self.pods) if index_of(one) == 0), "")

    @property
    def status(self) -> Json:
        found: Json = self.cluster.get(f"/apis/batch/v1/namespaces/{SPACE}/jobs/{self.name}").get(
            "status", {}
        )
        return found

    def said(self) -> str:
        """For `also=`: pods, the Gang, the end of the log and of what containers said."""
        texts = [show(self.cluster.pods(SPACE)), str(gang(self.cluster, SPACE, self.gang))]
        texts += [json.dumps(entry) for entry in self.log[-3:]]
        for node in self.lab.real_nodes:
            for file in sorted(node.logs.glob(f"*{self.name}*/*/*.log")):
                texts.append(f"{node.name} {file.parts[-3]}: {file.read_text()[-300:]}")
        return "\n".join(texts)

    def trains_on(self, workers: list[int], what: str) -> None:
        """Wait until exactly these take part in steps that are taken from now on."""
        seen = len(self.log)
        wait_until(
            lambda: workers in [entry.get("workers") for entry in self.log[seen:]],
            within=SLOW,
            what=f"{what}: steps by workers {workers}",
            also=self.said,
        )

    def has_told_its_speed(self, workers: int) -> None:
        """Wait until Muster has measured it on so many, from its reports."""
        wait_until(
            lambda: workers in measured(self.lab, self.cluster, SPACE, self.gang),
            within=SLOW,
            what=f"Muster has measured its speed on {workers} workers",
            also=self.said,
        )


def index_of(one: Pod) -> int:
    return int(one.labels["batch.kubernetes.io/job-completion-index"])


def sample(lab: Lab, folder: Path, source: Path = SAMPLE, every: int = EVERY) -> Json:
    """job.yaml with lab.yaml, as README.md does it; on a volume of this test's and without an end."""
    job = yaml.safe_load((source / "job.yaml").read_text())
    return fitted(lab, job, folder, source, {"STEPS": "1000000", "EVERY": str(every)})


def fitted(lab: Lab, made: Json, folder: Path, source: Path, own: Mapping[str, str]) -> Json:
    """A Job of a sample as lab.yaml has it, on a volume of this test's; own: other values of its variables."""
    patch = ("--type", "strategic", "--patch-file", str(source / "lab.yaml"), "-o", "json")
    found: Json = json.loads(lab.kubectl("patch", "--local", "-f", "-", *patch, stdin=json.dumps(made)))
    pod = found["spec"]["template"]["spec"]
    (volume,) = (one for one in pod["volumes"] if one["name"] == "checkpoints")
    volume["hostPath"]["path"] = str(folder)
    for variable in pod["containers"][0]["env"]:
        variable["value"] = own.get(variable["name"], variable.get("value"))
    return found


def guests(name: str, replicas: int) -> Json:
    """A rigid gang that says it is short, holds GPUs of the real nodes until it is deleted, and ends at once
    then. AFS-L gives the shortest its least first, so where there is no room for both it goes before the training."""
    annotations = {"muster.dev/remaining-work": "5"}
    made = job(name, replicas, cpu="10m", memory="32Mi", annotations=annotations, hostNetwork=True)
    made["spec"]["template"]["spec"] |= {"terminationGracePeriodSeconds": 1}
    container = made["spec"]["template"]["spec"]["containers"][0]
    container |= {"image": PYTHON, "command": ["sleep", "infinity"]}
    return made


def come(training: Training, name: str, replicas: int) -> None:
    training.cluster.submit(guests(name, replicas), namespace=SPACE)
    wait_until(
        lambda: bound(training.cluster.pods(SPACE, name), replicas),
        within=SLOW,
        what=f"{name} has {replicas} bound pods",
        also=training.said,
    )


def go(training: Training, name: str) -> None:
    path = f"/apis/batch/v1/namespaces/{SPACE}/jobs/{name}"
    training.cluster.delete(path, propagationPolicy="Foreground")
    wait_until(lambda: not training.cluster.pods(SPACE, name), within=SLOW, what=f"{name} is gone")


# --- what Muster does to it ---------------------------------------------------------------------------------


def shrinks_and_grows(training: Training, name: str) -> None:
    """Two GPUs for somebody else: the workers with the highest indexes leave, and come back."""
    come(training, name, 2)
    training.trains_on([0, 1], "shrunk")
    assert training.indexes == [0, 1]
    wait_until(
        lambda: len(gated(training.pods)) == 2, within=SLOW, what="those that left are back behind the gate"
    )
    training.has_told_its_speed(2)
    go(training, name)
    training.trains_on([0, 1, 2, 3], "grown again")


def moves(training: Training, name: str) -> None:
    """Preempted, and the leader's node takes nobody new: the job goes on, on the other node."""
    node = training.leaders_node
    has_to_leave(training, name)
    training.cluster.cordon(node)
    go(training, name)
    training.trains_on([0, 1], "moved")
    assert {one.node for one in bound(training.pods)} == {"real-0", "real-1"} - {node}
    training.cluster.cordon(node, False)
    training.trains_on([0, 1, 2, 3], "grown after the move")


def has_to_leave(training: Training, name: str) -> None:
    """All GPUs for somebody shorter: the job waits, with a checkpoint."""
    come(training, name, 4)
    assert bound(training.pods) == []
    wait_until(lambda: len(gated(training.pods)) == 4, what="all workers wait", also=training.said)


def crashes(training: Training, name: str) -> None:  # noqa: ARG001
    """The leader is killed: it goes on from the newest checkpoint."""
    node = next(node for node in training.lab.real_nodes if node.name == training.leaders_node)
    (leader,) = (
        pid for pid in node.cgroup.pids() if b"JOB_COMPLETION_INDEX=0" in environment_of(pid).split(b"\0")
    )
    os.kill(leader, signal.SIGKILL)
    training.trains_on([0, 1, 2, 3], "after the crash")


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def is_preempted(training: Training, name: str) -> None:
    """It has to leave, and comes back as large as it was."""
    has_to_leave(training, name)
    go(training, name)
    training.trains_on([0, 1, 2, 3], "back")


def test_a_training_is_grown_shrunk_moved_and_preempted_and_its_loss_keeps_falling(real: Lab) -> None:
    cluster = Cluster(real.kubeconfig)
    folder = real.folder / "training"
    training = Training(real, cluster, folder)
    cluster.submit(sample(real, folder), namespace=SPACE)
    training.trains_on([0, 1, 2, 3], "grown to its maximum")
    training.has_told_its_speed(4)

    # A move begins as any preemption does; that it also comes back to where it was is for long runs.
    order: list[Callable[[Training, str], None]] = [shrinks_and_grows, moves, crashes]
    order += [is_preempted] if ROUNDS > 1 else []
    rng = random.Random(int(os.environ.get("TRAINING_SEED", "1")))
    with watching(cluster) as referee:
        for number in range(ROUNDS):
            for place, happens in enumerate(order):
                if happens is crashes and number >= CRASHES:
                    continue
                happens(training, f"guests-{number}-{place}")
                wait_until(
                    lambda: not referee.open(),
                    what="nothing is under way",
                    also=lambda: "\n".join(referee.open()),
                )
            rng.shuffle(order)
    assert referee.faults == []

    wait_until(  # however few steps a machine takes in the time of these changes
        lambda: has_learned(training.steps, 11), within=SLOW, what="its loss is a tenth", also=training.said
    )
    (folder / "enough").touch()
    done = wait_until(
        lambda: training.status if training.status.get("completionTime") else None,
        within=SLOW,
        what="the Job is complete, by its leader's success",
        also=training.said,
    )
    # Nothing that Muster did counts as a failure, the crashes do; and the leader alone completed it.
    assert (done["failed"], done["completedIndexes"][0]) == (min(ROUNDS, CRASHES), "0")
    no_step_is_lost(training.log)
    the_loss_falls(training.steps)
    told = wait_until(
        lambda: (
            (found := gang(cluster, SPACE, f"job-{NAME}").get("speeds") or {}).keys() >= {"2", "4"} and found
        ),
        within=SLOW,
        what="its Gang has both speeds",
        also=training.said,
    )
    more_workers_are_faster(training.steps, told)


# --- what its own log says ----------------------------------------------------------------------------------


def no_step_is_lost(log: list[Json]) -> None:
    """Every start goes on from the newest checkpoint, and a step that is taken again has the same loss."""
    losses: dict[int, float] = {}
    saved = last = 0
    for entry in log:
        if "checkpoint" in entry:
            assert entry["checkpoint"] == last, entry
            saved = last
        elif "step" in entry:
            number = entry["step"]
            assert number in (last + 1, saved + 1), f"after step {last}, checkpoint {saved}: {entry}"
            assert number > last - EVERY, f"more than {EVERY} steps are taken again: {entry}"
            assert losses.setdefault(number, entry["loss"]) == entry["loss"], f"another loss: {entry}"
            last = number
    assert sorted(losses) == list(range(1, max(losses) + 1))  # it may end before it is where a crash was
    assert log[-1] == {"at": log[-1]["at"], "done": last}


def has_learned(steps: list[Json], factor: int) -> bool:
    """Whether its loss is now lower than at first by that factor."""
    return bool(mean(entry["loss"] for entry in steps[-20:]) < steps[0]["loss"] / factor)


def the_loss_falls(steps: list[Json]) -> None:
    """From quarter to quarter of the training, and by a factor of ten in all."""
    assert has_learned(steps, 10)
    quarter = len(steps) // 4
    means = [mean(entry["loss"] for entry in steps[at * quarter : (at + 1) * quarter]) for at in range(4)]
    assert all(before > after for before, after in pairwise(means)), means


def more_workers_are_faster(steps: list[Json], speeds: Json) -> None:
    """As its log says, and as Muster measured it."""
    seconds = {size: [one["seconds"] for one in steps if len(one["workers"]) == size] for size in (2, 4)}
    assert median(seconds[4]) < median(seconds[2]), {size: median(some) for size, some in seconds.items()}
    assert speeds["4"] > speeds["2"], speeds
