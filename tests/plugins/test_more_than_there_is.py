"""An elastic job that could use more GPUs than the cluster has asks for what there is, under every policy that gives
a job what it asks for, or nothing."""

from __future__ import annotations

import pytest

from muster import live_recipes, profiles
from muster.types import PRODUCT
from tests.cluster_fake import FakeCluster, Muster, node

WHOLE = ("srtf", "srtf-max", "srsf", "tiresias-l", "gavel-fifo", "gavel-max-min", "gavel-ftf-perf")


def on_eight(profile: str) -> tuple[FakeCluster, Muster]:
    """A node of 8 GPUs under the profile as a cluster has it."""
    cluster = FakeCluster(nodes=0)
    cluster.nodes["n0"] = node("n0", 8, **{PRODUCT.replace("/", "__"): "V100"})
    recipe = live_recipes.on_a_cluster(profiles.NAMED[profile], True, "reported")
    return cluster, Muster(cluster, profiles.build(profile, own={profile: recipe}))


def runs_for(cluster: FakeCluster, muster: Muster, hours: float) -> None:
    for _ in range(int(hours * 360)):
        muster.turn(seconds=10.0)
        cluster.bind()


@pytest.mark.parametrize("profile", WHOLE)
@pytest.mark.parametrize(("sizes", "has"), [({}, 8), ({"sizes": "1,3,6,12"}, 6)])
def test_alone_it_has_all_that_it_can_use(profile: str, sizes: dict[str, str], has: int) -> None:
    cluster, muster = on_eight(profile)
    cluster.job("big", 16, 1, min_replicas="1", max_replicas="16", resize="restart", **sizes)
    runs_for(cluster, muster, 1.0)
    assert len(cluster.bound("big")) == has


@pytest.mark.parametrize("profile", ["srtf", "gavel-max-min"])
def test_what_is_asked_for_is_never_below_its_least(profile: str) -> None:
    cluster, muster = on_eight(profile)
    cluster.job("few", 8, 1, min_replicas="4", max_replicas="8", request="2", resize="restart")
    runs_for(cluster, muster, 0.1)
    assert len(cluster.bound("few")) >= 4


@pytest.mark.parametrize("profile", ["gavel-isolation", "gavel-max-min"])
def test_beside_smaller_ones_it_has_its_turns(profile: str) -> None:
    cluster, muster = on_eight(profile)
    cluster.job("big", 16, 1, min_replicas="1", max_replicas="16", resize="restart")
    for name in ("one", "two"):
        cluster.job(name, 4, 1, resize="restart")
    had = 0
    for _ in range(720):
        runs_for(cluster, muster, 1 / 360)
        had += len(cluster.bound("big"))
    assert had / 720 >= 2.0, "a quarter of the GPUs"


@pytest.mark.parametrize("profile", ["srtf", "gavel-max-min"])
def test_one_that_can_do_with_no_fewer_waits(profile: str) -> None:
    cluster, muster = on_eight(profile)
    cluster.job("rigid", 16, 1)
    runs_for(cluster, muster, 0.1)
    assert cluster.bound("rigid") == []
