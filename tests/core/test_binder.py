"""`binder: cluster`: nobody calls our verbs, so what can be pinned is; the rest is kept in its domain by label."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.points import Profile
from muster.types import Nominate, Ungate
from tests.cluster_fake import FakeCluster, Muster, node

RACK = "topology.kubernetes.io/rack"


def started(profile: Profile, *unmodelled: str, **annotations: str) -> list[Ungate]:
    """The gates that came off for a job of two on two nodes of two racks; scored pods are nominated first."""
    cluster = FakeCluster(nodes=0)
    cluster.nodes = {f"n{i}": node(f"n{i}", 8, **{RACK.replace("/", "__"): f"r{i}"}) for i in range(2)}
    for pod in cluster.job("train", 2, gpus=4, **annotations):
        cluster.update(pod, shape=replace(pod.shape, unmodelled=unmodelled))
    Muster(cluster, profile).settle()
    gates = [a for a in cluster.sent if isinstance(a, Ungate)]
    nominated = {a.uid for a in cluster.sent if isinstance(a, Nominate)}
    assert nominated == {a.uid for a in gates if not a.pin}
    return gates


@pytest.mark.parametrize(
    ("profile", "annotations"),
    [
        (Profile(binder="cluster"), {"placement": "scored"}),
        (Profile(binder="cluster", placement="scored"), {}),
    ],
)
def test_scored_that_is_only_asked_for_is_pinned(profile: Profile, annotations: dict[str, str]) -> None:
    assert [a.pin for a in started(profile, **annotations)] == [True, True]
    assert [a.pin for a in started(replace(profile, binder="own"), **annotations)] == [False, False]


def test_what_the_planner_does_not_model_is_nominated_and_kept_in_the_domain_that_the_job_requires() -> None:
    gates = started(Profile(binder="cluster"), "podAffinity", topology_required=RACK)
    assert [a.pin for a in gates] == [False, False]
    assert {a.within for a in gates} in ({(RACK, "r0")}, {(RACK, "r1")})
    assert {a.within for a in started(Profile(binder="cluster"), "podAffinity")} == {("", "")}


def test_with_our_own_binder_the_filter_keeps_the_domain() -> None:
    assert {a.within for a in started(Profile(), "podAffinity", topology_required=RACK)} == {("", "")}
