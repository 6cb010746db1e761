"""Pods that hold devices tell which one they got, as before Kubernetes 1.36 (`devices.report: hold`): on a real node
of 1.37 whose pods' status does not say it, for the gate that is off by default before 1.36 is off."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from e2e.in_place import ON_A_REAL_NODE, SPACE, VALUES, holders, said, trains, trains_on
from e2e.lab import Lab, Shape
from e2e.lab.devices import device_ids
from e2e.lab.places import CHECKOUT
from e2e.lab.realnode import RealNode, contents, python_image
from e2e.labs import own_lab
from e2e.scenario import show, wait_until
from muster.cluster.holder_records import DEVICE

RUNS_ON_KIND = True
pytestmark = ON_A_REAL_NODE
SLOW = 300.0
IMAGE = "muster.dev/lab-muster:1"


@pytest.fixture
def real() -> Iterator[Lab]:
    values = (*VALUES, "devices.report=hold", f"devices.image={IMAGE}")
    with own_lab(
        "holders-tell",
        Shape(
            groups=(),
            racks=0,
            real=1,
            real_gpus=2,
            pod_network=True,
            set_values=values,
            feature_gates=("ResourceHealthStatus=false", "ResourceHealthStatusMessage=false"),
        ),
    ) as lab:
        found = contents(CHECKOUT / "extender" / one for one in ("muster", "report/muster_report"))
        image = python_image(IMAGE, Path(sys.prefix), found)
        lab.real_nodes[0].import_images([replace(image, env={**image.env, "PYTHONPATH": "/app"})])
        yield lab


def test_a_training_gets_the_devices_that_containers_tell(real: Lab, tmp_path: Path) -> None:
    cluster, node = Cluster(real.kubeconfig), real.real_nodes[0]
    every = frozenset(device_ids(node.name, 2))
    trains(cluster, "a", "1,2", tmp_path)
    wait_until(
        lambda: trains_on(node, "a") == every,
        within=SLOW,
        what="a trains on the devices that two containers told",
        also=lambda: f"{show(holders(cluster))}\n{logs(node)}\n{said(node, 'a')[-600:]}",
    )
    assert {one.annotations[DEVICE] for one in holders(cluster)} == every
    wait_until(lambda: logs(node).count("holds GPU-") == 2, what="each says so", also=lambda: logs(node))


def logs(node: RealNode) -> str:
    """What the containers of holders say."""
    return "".join(sorted(file.read_text() for file in node.logs.glob(f"{SPACE}_*/hold/*.log")))
