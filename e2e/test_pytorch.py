"""PyTorch under torchrun on real containers: Muster grows, shrinks and moves it, its processes die, and its loss
goes on; so it does where JobSet or Trainer makes its pods. As a gang that keeps its size it falls as well.

The trainings are config/samples/pytorch as it is shipped, with Debian's torch and gloo on the CPU, on two nodes of
the lab that really run containers. What they did is read from their own logs: starts, steps and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean

import pytest
import yaml

from e2e import operated
from e2e.cluster import Cluster, Json
from e2e.lab import Lab, Shape
from e2e.lab.places import CHECKOUT
from e2e.lab.ports import reserve
from e2e.lab.realnode import why_not
from e2e.labs import own_lab
from e2e.referee import watching
from e2e.scenario import wait_until
from e2e.test_training import SLOW, SPACE, come, go, has_learned, sample
from e2e.torchrun import EVERY, SAMPLE, Ddp, as_job, fits, is_complete, is_moved, no_step_is_lost, remove

TORCHRUN = Path("/usr/bin/torchrun")  # containers of real nodes see this machine's /usr
STEPS = 100  # of a sample that is to come to its end
NODES, GPUS = 2, 4
FORGOTTEN = 25.0
"""Seconds after which torchrun has forgotten a worker that says nothing (15), and its peers look for others."""


def no_torch() -> str:
    """Why containers can't run torchrun here, as a sentence; "" where they can."""
    return (
        ""
        if TORCHRUN.exists()
        else f"needs {TORCHRUN}: apt-get install --no-install-recommends python3-torch"
    )


REASON = why_not() or no_torch()
RUNS_ON_KIND = True
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(REASON), reason=REASON or "-"),
]


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    settings = ("profile=afs-l", "config.resizeCost=false")
    operators = operated.in_versions(["jobset", "trainer"])
    nodes = {"real": NODES, "real_gpus": GPUS // NODES}
    with own_lab(
        "pytorch", Shape(groups=(), racks=0, **nodes, set_values=settings, operators=operators)
    ) as lab:
        files = [
            SAMPLE / "train.py",
            SAMPLE / "launch.sh",
            CHECKOUT / "extender" / "report" / "muster_report",
        ]
        lab.add_image("muster.dev/pytorch:1", files)
        yield lab


def test_a_torchrun_training_is_grown_and_shrunk_its_processes_die_and_its_loss_goes_on(real: Lab) -> None:
    cluster = Cluster(real.kubeconfig)
    folder = real.folder / "training"
    training = Ddp(real, cluster, folder)
    come(training, "guests-0", 2)
    made = sample(real, folder, SAMPLE, EVERY)
    port = str(reserve(real.folder, ["rendezvous"])["rendezvous"])  # loopback is everybody's
    made["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "PORT", "value": port})
    cluster.submit(made, namespace=SPACE)
    with watching(cluster) as referee:
        is_grown_and_shrunk(training)
        seen = training.kills("train.py", "RANK=1")
        training.starts_again(2, "after a worker died", seen)
        seen = training.kills("train.py", "RANK=0")
        training.starts_again(2, "after rank 0 died", seen)
        seen = training.kills("torchrun", "JOB_COMPLETION_INDEX=0")
        training.starts_again(2, "after index 0 died, and the rendezvous with it", seen)
        go(training, "guests-1")
        training.goes_on(4, "grown again")
        is_moved(training, "guests-2", few=2, many=4)
        wait_until(lambda: not referee.open(), what="nothing is under way", also=training.said)
    assert referee.faults == []
    (folder / "enough").touch()
    wait_until(
        lambda: training.status.get("completionTime"),
        within=SLOW,
        what="the Job is complete, by index 0's success",
        also=training.said,
    )
    assert not training.status.get("failed")
    no_step_is_lost(training.log)
    steps = training.steps
    assert mean(one["loss"] for one in steps[-20:]) < steps[0]["loss"] / 10
    remove(training, made)


def is_grown_and_shrunk(training: Ddp, few: int = 2, many: int = 4) -> None:
    """From few workers to many once guests-0 go, and to few, the lowest indexes, when guests-1 come."""
    training.goes_on(few, "started on what is free")
    go(training, "guests-0")
    training.goes_on(many, "grown")
    come(training, "guests-1", GPUS - few)
    training.goes_on(few, "shrunk")
    assert training.indexes == list(range(few))


def test_an_index_0_that_stood_still_while_others_came_trains_with_them_afterwards(real: Lab) -> None:
    """torchrun forgets a worker that it has not heard of for 15 s, and does not tell it: without train.py's word on
    the volume both would train on for ever, each by itself, and write over each other's checkpoints."""
    cluster = Cluster(real.kubeconfig)
    training = Ddp(real, cluster, real.folder / "training-still")
    come(training, "guests-0", GPUS - 1)
    made = fits(training, 1_000_000)(yaml.safe_load((SAMPLE / "job.yaml").read_text()))
    cluster.submit(made, namespace=SPACE)
    with watching(cluster) as referee:
        training.goes_on(1, "started on what is free")
        with training.stands_still("torchrun", "JOB_COMPLETION_INDEX=0"):
            go(training, "guests-0")
            wait_until(
                lambda: training.indexes == [0, 1, 2, 3], within=SLOW, what="grown", also=training.said
            )
            time.sleep(FORGOTTEN)
        training.goes_on(4, "all train together")
        wait_until(lambda: not referee.open(), what="nothing is under way", also=training.said)
    assert referee.faults == []
    (training.folder / "enough").touch()
    is_complete(training)
    no_step_is_lost(training.log)
    remove(training, made)


# --- the other samples --------------------------------------------------------------------------------------


Fit = Callable[[Json], Json]


def a_job(fit: Fit, file: str) -> list[Json]:
    return [fit(yaml.safe_load((SAMPLE / file).read_text()))]


def a_jobset(fit: Fit, file: str) -> list[Json]:
    """A Job of the JobSet's is fitted, and put back."""
    made = yaml.safe_load((SAMPLE / file).read_text())
    inner = made["spec"]["replicatedJobs"][0]["template"]
    inner["spec"] = fit(as_job(inner["spec"]))["spec"]
    return [made]


def a_trainjob(fit: Fit, file: str) -> list[Json]:
    """The runtime has the pod, the TrainJob what its container is told; a port that Trainer gives it is one of the
    node's where the pod has no network of its own, so each node has one worker."""
    runtime, job = yaml.safe_load_all((SAMPLE / file).read_text())
    inner, trainer = (
        runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"],
        job["spec"]["trainer"],
    )
    container = inner["spec"]["template"]["spec"]["containers"][0]
    container |= {"name": "worker", "env": trainer["env"], "resources": trainer["resourcesPerNode"]}
    inner["spec"] = fit(as_job(inner["spec"]))["spec"]
    container = inner["spec"]["template"]["spec"]["containers"][0]
    container["name"] = "node"
    trainer |= {"env": container.pop("env"), "resourcesPerNode": container.pop("resources")}
    return [runtime, job]


@pytest.mark.parametrize(
    ("sample_of", "kind", "name", "workers"),
    [
        (a_job, "job", "pytorch", 4),
        (a_jobset, "jobset", "pytorch-workers-0", 4),
        (a_trainjob, "trainjob", "pytorch-node-0", 2),
    ],
    ids=["rigid-job", "rigid-jobset", "rigid-trainjob"],
)
def test_a_sample_trains_to_its_end_and_its_loss_falls(
    real: Lab, sample_of: Callable[[Fit, str], list[Json]], kind: str, name: str, workers: int
) -> None:
    """name: of the Job that has its pods, whoever makes it; workers: with how many it takes its steps."""
    cluster = Cluster(real.kubeconfig)
    folder = real.folder / f"training-rigid-{kind}"
    training = Ddp(real, cluster, folder, name)
    manifests = sample_of(fits(training, STEPS), f"rigid-{kind}.yaml")
    with watching(cluster) as referee:
        operated.submit(cluster, SPACE, *manifests)
        is_complete(training)
        wait_until(lambda: not referee.open(), what="nothing is under way", also=training.said)
    assert referee.faults == []
    assert not training.status.get("failed")
    no_step_is_lost(training.log)
    steps = training.steps
    assert (steps[-1]["step"], {one["workers"] for one in steps}) == (STEPS, {workers})
    assert mean(one["loss"] for one in steps[-20:]) < steps[0]["loss"] / 10
    for one in reversed(manifests):
        remove(training, one)


@pytest.mark.parametrize(
    ("sample_of", "kind", "name", "few", "many"),
    [(a_jobset, "jobset", "pytorch-workers-0", 2, 4), (a_trainjob, "trainjob", "pytorch-node-0", 1, NODES)],
    ids=["jobset", "trainjob"],
)
def test_a_sample_is_grown_shrunk_and_moved_a_worker_of_it_dies_and_its_loss_goes_on(
    real: Lab, sample_of: Callable[[Fit, str], list[Json]], kind: str, name: str, few: int, many: int
) -> None:
    """name: of the Job that has its pods, whoever makes it; few, many: its workers beside guests or on one node,
    and alone."""
    cluster = Cluster(real.kubeconfig)
    training = Ddp(real, cluster, real.folder / f"training-elastic-{kind}", name)
    come(training, "guests-0", GPUS - few)
    manifests = sample_of(fits(training, 1_000_000), f"{kind}.yaml")
    operated.submit(cluster, SPACE, *manifests)
    with watching(cluster) as referee:
        is_grown_and_shrunk(training, few, many)
        go(training, "guests-1")
        training.goes_on(many, "grown again")
        seen = training.kills("train.py", "RANK=1")
        training.starts_again(many, "after a worker died", seen)
        is_moved(training, "guests-2", few, many)
        wait_until(
            lambda: has_learned(training.steps, 10),
            within=SLOW,
            what="its loss is a tenth",
            also=training.said,
        )
        (training.folder / "enough").touch()
        is_complete(training)
        wait_until(lambda: not referee.open(), what="nothing is under way", also=training.said)
    assert referee.faults == []
    assert not training.status.get("failed")
    assert not cluster.get(operated.path("JobSet", SPACE, "pytorch"))["status"].get("restarts")
    no_step_is_lost(training.log)
    for one in reversed(manifests):
        remove(training, one)
