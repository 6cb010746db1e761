"""The samples of config/samples/in-place with jax and PyTorch, on CPUs, on a real node: a device goes from each to a
job that arrives and comes back, no pod starts or ends, and no step of training is lost or taken twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from e2e.in_place import (
    ON_A_REAL_NODE,
    VALUES,
    as_they_were,
    left_empty,
    said,
    shared,
    trains,
    trains_on,
    uses,
)
from e2e.lab import Lab, Shape
from e2e.lab.devices import device_ids
from e2e.lab.realnode import RealNode
from e2e.labs import own_lab
from e2e.scenario import delete_job, gang, show, wait_until
from e2e.test_pytorch import no_torch

RUNS_ON_KIND = True
pytestmark = ON_A_REAL_NODE
JAX = "muster.dev/jax-in-place:1"
SYSTEM = "/usr/bin/python3"
"""Debian's Python, which has Debian's torch; the Python of the lab's images has none."""
BLAS = Path("/etc/alternatives")
"""Debian's links to it."""
MEMORY = "2Gi"
SLOW = 300.0


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    with own_lab(
        "frameworks",
        Shape(groups=(), racks=0, real=1, real_gpus=2, set_values=(*VALUES, "devices.lease=90s")),
    ) as lab:
        lab.add_image(JAX, packages=["jax"])
        yield lab


@pytest.fixture
def cluster(real: Lab) -> Iterator[Cluster]:
    cluster = Cluster(real.kubeconfig)
    yield cluster
    left_empty(cluster, SLOW)


def steps_of(node: RealNode, name: str) -> list[tuple[int, float]]:
    """Number and loss of each step that a training has said, in order."""
    found = re.findall(r"muster: step=(\d+) total=\d+ loss=(\S+)", said(node, name))
    return [(int(step), float(loss)) for step, loss in found]


def lost_none(node: RealNode, name: str) -> None:
    steps = steps_of(node, name)
    assert [step for step, _ in steps] == list(range(1, len(steps) + 1))
    tenth = max(1, len(steps) // 10)
    assert sum(loss for _, loss in steps[-tenth:]) < sum(loss for _, loss in steps[:tenth])


def gives_and_takes(cluster: Cluster, node: RealNode, name: str, state: Path, has: Callable[[], int]) -> None:
    """A job that arrives has one of the two devices of `name`, which has both again when that one is gone.
    has: devices that it trains on now."""

    def until(count: int, what: str) -> None:
        wait_until(
            lambda: has() == count,
            within=SLOW,
            what=what,
            also=lambda: (
                f"{show(cluster.pods('default'))}\n{gang(cluster, 'default', f'job-{name}')}\n"
                f"{said(node, name)[-900:]}"
            ),
        )

    until(2, f"{name} trains on both devices")
    first = as_they_were(cluster, name)
    other = f"beside-{name}"
    trains(cluster, other, "1", state)
    until(1, f"{name} trains on one")
    wait_until(lambda: len(trains_on(node, other)) == 1, within=SLOW, what=f"{other} trains on the other one")
    delete_job(cluster, "default", other)
    until(2, f"{name} trains on both again")
    assert [one for one in as_they_were(cluster, name) if one in first] == first, "its pod went on"


def test_a_jax_training_gives_a_device_at_its_next_step_and_is_not_started_again(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    trains(cluster, "jax", "1,2", tmp_path, script="/samples/workers_jax.py", image=JAX, memory=MEMORY)

    def workers() -> int:
        found = re.findall(r"workers=(\d+)", said(node, "jax"))
        return int(found[-1]) if found else 0

    gives_and_takes(cluster, node, "jax", tmp_path, workers)
    # its weights are in one process only: had that been started again, step 1 came twice
    lost_none(node, "jax")
    told = [set(line.split(",")) for line in re.findall(r"workers on (\S+)", said(node, "jax"))]
    assert [len(devices) for devices in told] == [2, 1, 2]
    (guest,) = uses(node, "beside-jax")
    assert told[1] | guest.devices == told[0] == set(device_ids(node.name, 2))


@pytest.mark.skipif(bool(no_torch()), reason=no_torch() or "-")
def test_a_pytorch_training_that_was_preloaded_goes_on_from_its_checkpoint_with_other_devices(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    trains(
        cluster,
        "torch",
        "1,2",
        tmp_path,
        *("--preload", "torch"),
        script="/samples/train_torch.py",
        python=SYSTEM,
        memory=MEMORY,
        mounts={str(BLAS): BLAS},
        CHECKPOINT="/state/torch.pt",
    )
    gives_and_takes(cluster, node, "torch", tmp_path, lambda: len(trains_on(node, "torch")))
    lost_none(node, "torch")
    assert [len(use.devices) for use in uses(node, "torch")] == [2, 1, 2]
    assert not shared(node, "torch", "beside-torch")
