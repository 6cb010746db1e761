"""CoDDL's job: it gets what it is believed to use, is measured at each smaller size, too, and has its share again.

Real trainings below real agents on a real node of four devices, the profile `coddl` with its hysteresis: a training
gives its devices at its next step and is not started again, and those that it lets idle are nobody else's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from e2e.elastic import measured, replayed
from e2e.in_place import ON_A_REAL_NODE, VALUES, as_they_were, holders, left_empty, names_of, said, trains
from e2e.lab import Lab, Shape
from e2e.lab.devices import device_ids
from e2e.lab.realnode import RealNode
from e2e.labs import judged, own_lab
from e2e.scenario import gang, show, wait_until

RUNS_ON_KIND = True
pytestmark = ON_A_REAL_NODE
SLOW = 300.0
PROFILE = "coddl"
SCALES = """
import os, sys, time

sys.path.insert(0, "/samples")
import workers

sleep = time.sleep
time.sleep = lambda seconds: sleep(seconds / max(1, len(workers.workers)))
if __name__ == "__main__":
    workers.train()
"""
"""The sample, a step of which takes the shorter the more devices it has."""


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    values = (f"profile={PROFILE}", "config.pluginArgs.sweep.sizes=all", "devices.lease=90s", *VALUES[2:])
    with own_lab(
        "sweep", Shape(groups=(), racks=0, real=1, real_gpus=4, pod_network=True, set_values=values)
    ) as lab:
        yield lab


@pytest.fixture
def cluster(real: Lab) -> Iterator[Cluster]:
    cluster = Cluster(real.kubeconfig)
    try:
        with judged(cluster):
            yield cluster
    finally:
        left_empty(cluster, SLOW)


def had(node: RealNode, name: str) -> list[int]:
    """Devices of a training, each number once while it lasted, as it has said itself."""
    return [len(told.split(",")) for told in re.findall(r"workers on (\S+)", said(node, name))]


def steps(node: RealNode, name: str) -> list[int]:
    return [int(step) for step in re.findall(r"muster: step=(\d+)", said(node, name))]


def test_a_job_of_four_gpus_is_measured_at_three_two_and_one_and_nothing_of_it_is_lost(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    (tmp_path / "scales.py").write_text(SCALES)

    def also() -> str:
        found = (had(node, "a"), measured(real, cluster, "default", "job-a"), said(node, "a")[-600:])
        return f"{found}\n{gang(cluster, 'default', 'job-a')}\n{show(cluster.pods('default'))}"

    trains(cluster, "a", "1-4", tmp_path, script="/state/scales.py", SECONDS="0.4")
    wait_until(lambda: had(node, "a") == [4], within=SLOW, what="a trains on all four devices", also=also)
    first, made = as_they_were(cluster, "a"), names_of(holders(cluster))
    assert len(made) == 4
    for at, size in enumerate((3, 2, 1), start=2):
        wait_until(lambda at=at: len(had(node, "a")) >= at, within=SLOW, what=f"it has {size}", also=also)
        words = f"measured at {size} of its 4 GPUs, then it has all of them again"
        wait_until(
            lambda words=words: words in str(gang(cluster, "default", "job-a").get("message")),
            within=60.0,
            what=f"its owner reads that it is {words}",
            also=also,
        )
        if size == 3:  # asked of a slow machine it may be measured at the next one by then
            told = real.muster("explain", "job-a", "-n", "default").stdout
            assert "of its 4 GPUs, then it has all of them again" in told
        assert names_of(holders(cluster)) == made, "its holders keep what it does not use"
    wait_until(lambda: len(had(node, "a")) == 5, within=SLOW, what="it has its share again", also=also)
    assert had(node, "a") == [4, 3, 2, 1, 4]
    found = measured(real, cluster, "default", "job-a")
    assert sorted(found) == [1, 2, 3, 4]
    assert found[1] < found[2] < found[4]
    # nothing was restarted, and no step is lost or taken twice
    taken = steps(node, "a")
    assert taken == list(range(1, len(taken) + 1))
    assert as_they_were(cluster, "a") == first
    assert names_of(holders(cluster)) == made
    every = set(device_ids(node.name, 4))
    assert all(set(told.split(",")) <= every for told in re.findall(r"workers on (\S+)", said(node, "a")))
    replayed(real, cluster)
    # who arrives gets its part at once, though nothing of it is measured
    trains(cluster, "b", "1-4", tmp_path, script="/state/scales.py", SECONDS="0.4")
    wait_until(
        lambda: had(node, "b")[-1:] == [2] and had(node, "a")[-1:] == [2],
        within=SLOW,
        what="both train on two",
        also=lambda: f"{also()} {had(node, 'b')} {gang(cluster, 'default', 'job-b')}",
    )
    wait_until(
        lambda: sorted(measured(real, cluster, "default", "job-b")) == [1, 2] and had(node, "b")[-1] == 2,
        within=SLOW,
        what="b is measured at one, and has two again",
        also=lambda: f"{also()} {had(node, 'b')} {gang(cluster, 'default', 'job-b')}",
    )
    assert had(node, "a")[5:] == [2], "a is measured at all that it could have"
    assert as_they_were(cluster, "a") == first
