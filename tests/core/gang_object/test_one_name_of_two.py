"""Two jobs that live, and whose Gangs would have one name."""

from __future__ import annotations

import pytest

from muster.points import Profile
from muster.types import Phase, State
from tests.cluster_fake import FakeCluster, Muster


def labelled(cluster: FakeCluster, job: str, label: str) -> None:
    for pod in cluster.job(job, 2, 4):
        cluster.update(pod, labels={**pod.labels, "muster.dev/job": label})


def turned(cluster: FakeCluster, muster: Muster, turns: int) -> int:
    """Gangs written meanwhile."""
    before = cluster.counts["gang-writes"]
    for _ in range(turns):
        muster.turn(seconds=1.0)
        cluster.bind()
    return cluster.counts["gang-writes"] - before


@pytest.mark.parametrize("carried", [0, 16])
@pytest.mark.parametrize("labels", [("my_job", "my-job"), ("Train", "train"), ("job-two", "")])
def test_each_has_a_gang_of_its_own_also_for_the_next_leader(labels: tuple[str, str], carried: int) -> None:
    cluster = FakeCluster(nodes=4, gpus=8)
    muster = Muster(cluster, Profile(carried=carried))
    labelled(cluster, "one", labels[0])
    turned(cluster, muster, 5)
    if labels[1]:
        labelled(cluster, "two", labels[1])
    else:
        cluster.job("two", 2, 4)
    assert turned(cluster, muster, 30) < 10
    names = sorted(gang.name for gang in cluster.gangs.values())
    assert len(names) == 2
    assert names[1].startswith(f"{names[0]}-")
    assert {gang.state for gang in cluster.gangs.values()} == {State.RUNNING}

    assert turned(cluster, Muster(cluster, Profile(carried=carried)), 30) < 10
    assert sorted(gang.name for gang in cluster.gangs.values()) == names


def test_the_next_job_of_a_deleted_ones_name_has_its_gangs_name_too() -> None:
    cluster = FakeCluster(nodes=4, gpus=8)
    muster = Muster(cluster)
    cluster.job("train", 2, 4)
    turned(cluster, muster, 5)
    cluster.owners.clear()
    for pod in list(cluster.pods.values()):
        cluster.update(pod, deleting=True, phase=Phase.ENDING)  # its grace period is long
    cluster.job("train", 2, 4)
    turned(cluster, muster, 10)
    assert [gang.name for gang in cluster.gangs.values()] == ["job-train"]
