"""The PyTorchJob of config/samples/pytorch trained on real containers, its pods made by the real training operator:
each pod has an address of its own, and torchrun finds the rendezvous by the name of worker 0's Service.

As it is shipped, but for what a machine without GPUs has in their place (lab.yaml), and its volume. What it did is
read from its own log, as in test_pytorch.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest
import yaml

from e2e import operated
from e2e.cluster import Cluster, Json, Pod
from e2e.lab import Lab, Shape, podnet
from e2e.lab.places import CHECKOUT
from e2e.labs import own_lab
from e2e.referee import watching
from e2e.scenario import bound, in_state, wait_until
from e2e.test_pytorch import REASON as NO_REAL_NODE
from e2e.test_training import SLOW, SPACE, come, fitted, go
from e2e.torchrun import EVERY, SAMPLE, Ddp, as_job, no_step_is_lost

REASON = NO_REAL_NODE or podnet.why_not()
RUNS_ON_KIND = True
pytestmark = [
    pytest.mark.lab,
    pytest.mark.operators("training-operator"),
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(REASON), reason=REASON or "-"),
]
ALONE = ("LEADER", "GLOO_SOCKET_IFNAME")
"""Variables of lab.yaml for pods that share the machine's network."""


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    with own_lab(
        "by-name",
        Shape(
            groups=(),
            racks=0,
            real=1,
            real_gpus=4,
            pod_network=True,
            dns=True,
            set_values=("profile=afs-l", "config.resizeCost=false"),
            operators=operated.in_versions(["training-operator"]),
        ),
    ) as lab:
        lab.add_image(
            "muster.dev/pytorch:1", [SAMPLE / "train.py", CHECKOUT / "extender/report/muster_report"]
        )
        yield lab


@dataclass(frozen=True)
class OfOperator(Ddp):
    """The sample's PyTorchJob."""

    @property
    def gang(self) -> str:
        return f"kubeflow-{self.name}"

    @property
    def pods(self) -> list[Pod]:
        return self.cluster.pods(SPACE, labels=f"training.kubeflow.org/job-name={self.name}")

    @property
    def status(self) -> Json:
        found: Json = self.cluster.get(operated.path("PyTorchJob", SPACE, self.name)).get("status", {})
        return found

    @property
    def conditions(self) -> set[str]:
        """What its operator says is true of it."""
        return {one["type"] for one in self.status.get("conditions", []) if one["status"] == "True"}

    @property
    def replicas(self) -> list[int]:
        """Indexes of those that are bound."""
        return sorted(int(one.labels["training.kubeflow.org/replica-index"]) for one in bound(self.pods))


def sample(lab: Lab, folder: Path) -> Json:
    """pytorchjob.yaml with what lab.yaml has for a machine without GPUs, and without an end."""
    made: Json = yaml.safe_load((SAMPLE / "pytorchjob.yaml").read_text())
    workers = made["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = workers["template"]["spec"]["containers"]
    container["name"] = "worker"
    job = fitted(lab, as_job({"template": workers["template"]}), folder, SAMPLE, {"STEPS": "1000000"})
    workers["template"] = job["spec"]["template"]
    pod = workers["template"]["spec"]
    for own in ("hostNetwork", "hostPID"):
        del pod[own]
    (container,) = pod["containers"]
    container["name"] = "pytorch"
    container["env"] = [one for one in container["env"] if one["name"] not in ALONE]
    container["env"].append({"name": "EVERY", "value": str(EVERY)})
    return made


def test_the_pytorchjob_trains_by_the_names_of_its_services_while_it_is_resized_and_its_processes_die(
    real: Lab,
) -> None:
    cluster = Cluster(real.kubeconfig)
    folder = real.folder / "training"
    training = OfOperator(real, cluster, folder)
    come(training, "guests-0", 2)
    cluster.submit(sample(real, folder), namespace=SPACE)
    with watching(cluster) as referee:
        training.goes_on(2, "started on what is free")
        go(training, "guests-0")
        training.goes_on(4, "grown")
        addresses = {one.raw["status"]["podIP"] for one in bound(training.pods)}
        assert len(addresses) == 4
        seen = training.kills("train.py", "RANK=1")
        training.starts_again(4, "after a worker died", seen)
        seen = training.kills("torchrun", "HOSTNAME=pytorch-worker-0")
        training.starts_again(4, "after worker 0 died, and the rendezvous with it", seen)
        come(training, "guests-1", 2)
        training.goes_on(2, "shrunk")
        assert training.replicas == [0, 1]
        go(training, "guests-1")
        training.goes_on(4, "grown again")
        wait_until(lambda: not referee.open(), what="nothing is under way", also=training.said)
    assert referee.faults == []
    assert not training.conditions & {"Failed", "Succeeded"}
    (folder / "enough").touch()
    wait_until(
        lambda: "Succeeded" in training.conditions,
        within=SLOW,
        what="its operator says that it has succeeded",
        also=training.said,
    )
    wait_until(
        lambda: in_state(cluster, SPACE, training.gang, "Finished"),
        what="its Gang is finished",
        also=training.said,
    )
    no_step_is_lost(training.log)
    steps = training.steps
    assert mean(one["loss"] for one in steps[-20:]) < steps[0]["loss"] / 10
