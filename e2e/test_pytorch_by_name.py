"""The PyTorchJob and the Indexed Job of config/samples/pytorch trained on two real nodes, whose pods have addresses
of their own. torchrun finds the rendezvous by a name: of worker 0's Service, which the real training operator makes,
or of index 0 under the sample's service.yaml.

As they are shipped, but for what a machine without GPUs has in their place (lab.yaml), and their volume. What they
did is read from their own logs, as in test_pytorch.py."""

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
from e2e.scenario import bound, gated, in_state, wait_until
from e2e.test_pytorch import REASON as NO_REAL_NODE
from e2e.test_training import SLOW, SPACE, come, fitted, go, has_learned
from e2e.torchrun import EVERY, SAMPLE, Ddp, as_job, fits, is_complete, is_moved, no_step_is_lost, remove

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
            real=2,
            real_gpus=2,
            pod_network=True,
            dns=True,
            set_values=("profile=afs-l", "config.resizeCost=false"),
            operators=operated.in_versions(["training-operator"]),
        ),
    ) as lab:
        files = [SAMPLE / "train.py", SAMPLE / "launch.sh", CHECKOUT / "extender/report/muster_report"]
        lab.add_image("muster.dev/pytorch:1", files)
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
    def leaders_node(self) -> str:
        """Of worker 0, by whose name the others find the rendezvous."""
        return next((one.node for one in bound(self.pods) if _index_of(one) == 0), "")

    @property
    def replicas(self) -> list[int]:
        """Indexes of those that are bound."""
        return sorted(_index_of(one) for one in bound(self.pods))


def _index_of(one: Pod) -> int:
    return int(one.labels["training.kubeflow.org/replica-index"])


def with_addresses(found: Json, shipped: Json) -> Json:
    """A Job that lab.yaml was applied to, its pods with addresses and names as it is shipped."""
    pod, theirs = (job["spec"]["template"]["spec"] for job in (found, shipped))
    for own in ("hostNetwork", "hostPID"):
        del pod[own]
    pod |= {"subdomain": theirs.get("subdomain")}
    (container,), (before,) = pod["containers"], theirs["containers"]
    container["env"] = [one for one in container["env"] if one["name"] not in ALONE]
    container["env"] += [one for one in before["env"] if one["name"] in ALONE]
    return found


def sample(lab: Lab, folder: Path, file: str) -> Json:
    """A PyTorchJob's file with what lab.yaml has for a machine without GPUs, and without an end."""
    made: Json = yaml.safe_load((SAMPLE / file).read_text())
    workers = made["spec"]["pytorchReplicaSpecs"]["Worker"]
    (container,) = workers["template"]["spec"]["containers"]
    container["name"] = "worker"
    shipped = as_job({"template": workers["template"]})
    job = with_addresses(fitted(lab, shipped, folder, SAMPLE, {"STEPS": "1000000"}), shipped)
    workers["template"] = job["spec"]["template"]
    (container,) = workers["template"]["spec"]["containers"]
    container["name"] = "pytorch"
    container["env"].append({"name": "EVERY", "value": str(EVERY)})
    return made


def are_on_both_nodes(training: Ddp) -> None:
    pods = bound(training.pods)
    assert {one.node for one in pods} == {"real-0", "real-1"}
    assert len({one.raw["status"]["podIP"] for one in pods}) == 4


def ends_well(training: OfOperator) -> None:
    """Once it is told that it is enough: its operator and Muster say so, and no step is lost."""
    assert not training.conditions & {"Failed", "Succeeded"}
    (training.folder / "enough").touch()
    wait_until(
        lambda: "Succeeded" in training.conditions,
        within=SLOW,
        what="its operator says that it has succeeded",
        also=training.said,
    )
    wait_until(
        lambda: in_state(training.cluster, SPACE, training.gang, "Finished"),
        what="its Gang is finished",
        also=training.said,
    )
    no_step_is_lost(training.log)
    steps = training.steps
    assert mean(one["loss"] for one in steps[-20:]) < steps[0]["loss"] / 10


def test_the_pytorchjob_trains_by_the_names_of_its_services_while_it_is_resized_and_its_processes_die(
    real: Lab,
) -> None:
    cluster = Cluster(real.kubeconfig)
    folder = real.folder / "training"
    training = OfOperator(real, cluster, folder)
    come(training, "guests-0", 2)
    made = sample(real, folder, "pytorchjob.yaml")
    cluster.submit(made, namespace=SPACE)
    with watching(cluster) as referee:
        training.goes_on(2, "started on what is free")
        go(training, "guests-0")
        training.goes_on(4, "grown")
        are_on_both_nodes(training)
        seen = training.kills("train.py", "RANK=1")
        training.starts_again(4, "after a worker died", seen)
        seen = training.kills("torchrun", "HOSTNAME=pytorch-worker-0")
        training.starts_again(4, "after worker 0 died, and the rendezvous with it", seen)
        come(training, "guests-1", 2)
        training.goes_on(2, "shrunk")
        assert training.replicas == [0, 1]
        go(training, "guests-1")
        training.goes_on(4, "grown again")
        is_moved(training, "guests-4", few=2, many=4)
        wait_until(lambda: not referee.open(), what="nothing is under way", also=training.said)
    assert referee.faults == []
    ends_well(training)
    remove(training, made)


def test_the_rigid_pytorchjob_starts_whole_a_worker_dies_and_its_loss_goes_on(real: Lab) -> None:
    cluster = Cluster(real.kubeconfig)
    folder = real.folder / "training-rigid"
    training = OfOperator(real, cluster, folder)
    come(training, "guests-2", 2)
    made = sample(real, folder, "rigid-pytorchjob.yaml")
    cluster.submit(made, namespace=SPACE)
    with watching(cluster) as referee:
        wait_until(lambda: len(gated(training.pods)) == 4, what="all workers wait", also=training.said)
        go(training, "guests-2")
        training.goes_on(4, "started whole")
        are_on_both_nodes(training)
        seen = training.kills("train.py", "RANK=1")
        training.starts_again(4, "after a worker died", seen)
        wait_until(
            lambda: has_learned(training.steps, 10),
            within=SLOW,
            what="its loss is a tenth",
            also=training.said,
        )
        wait_until(lambda: not referee.open(), what="nothing is under way", also=training.said)
    assert referee.faults == []
    ends_well(training)
    assert {one["workers"] for one in training.steps} == {4}
    remove(training, made)


def test_the_job_finds_index_0_by_the_name_that_its_service_gives_it(real: Lab) -> None:
    cluster = Cluster(real.kubeconfig)
    training = Ddp(real, cluster, real.folder / "training-job")
    service, shipped = (yaml.safe_load((SAMPLE / f"{name}.yaml").read_text()) for name in ("service", "job"))
    made = with_addresses(fits(training, 1_000_000)(shipped), shipped)
    come(training, "guests-3", 2)
    cluster.submit(service, made, namespace=SPACE)
    with watching(cluster) as referee:
        training.goes_on(2, "started on what is free")
        go(training, "guests-3")
        training.goes_on(4, "grown")
        are_on_both_nodes(training)
        wait_until(lambda: not referee.open(), what="nothing is under way", also=training.said)
    assert referee.faults == []
    (training.folder / "enough").touch()
    is_complete(training)
    no_step_is_lost(training.log)
    remove(training, made)
