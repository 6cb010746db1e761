"""Asking an autoscaler for nodes: for whom, how often, and what becomes of it."""

from __future__ import annotations

from muster.asking import Asking
from muster.points import Profile
from muster.types import (
    CreateProvisioningRequest,
    DeleteProvisioningRequest,
    Expose,
    Nominate,
    Outcome,
    Phase,
    Ungate,
)
from tests.cluster_fake import FakeCluster, Muster, node

REQUEST = Profile(asking=Asking("provisioning-request", after=30.0))
UNGATE = Profile(asking=Asking("ungate", after=30.0))


def full(profile: Profile, *, waiting: int = 2) -> tuple[FakeCluster, Muster]:
    """One node that is in use, and jobs of 2 pods x 4 GPUs that wait for 31 s."""
    cluster = FakeCluster(nodes=1)
    cluster.job("holder", 2, gpus=4)
    muster = Muster(cluster, profile)
    muster.settle()
    for number in range(waiting):
        cluster.now += 1
        cluster.job(f"w{number}", 2, gpus=4)
    muster.settle()
    assert not [a for a in cluster.sent if isinstance(a, CreateProvisioningRequest | Expose)], (
        "not before it has waited"
    )
    cluster.now += 31
    muster.settle()
    return cluster, muster


def asked(cluster: FakeCluster) -> list[str]:
    return [a.name for a in cluster.sent if isinstance(a, CreateProvisioningRequest)]


def test_by_default_nobody_is_asked() -> None:
    cluster, _ = full(Profile())
    assert not [
        a
        for a in cluster.sent
        if isinstance(a, CreateProvisioningRequest | DeleteProvisioningRequest | Expose)
    ]


def test_nodes_are_asked_for_the_head_once_it_has_waited_and_for_its_minimum() -> None:
    cluster, muster = full(REQUEST)
    assert cluster.requests == {"job-w0"}
    (action,) = [a for a in cluster.sent if isinstance(a, CreateProvisioningRequest)]
    assert [(role, count, shape.gpus) for role, count, shape in action.sets] == [("worker", 2, 4)]
    assert action.gang_uid == cluster.gangs[("team", "job-w0")].object_uid
    cluster.now += 100
    muster.settle()
    assert asked(cluster) == ["job-w0"], "once"


def test_the_request_goes_when_the_job_starts_and_the_next_head_is_asked_for() -> None:
    cluster, muster = full(REQUEST)
    cluster.nodes["n1"] = node("n1", 8)
    muster.settle()
    assert muster.state("job-w0") == "Running"
    assert [a.name for a in cluster.sent if isinstance(a, DeleteProvisioningRequest)] == ["job-w0"]
    assert cluster.requests == {"job-w1"}
    assert cluster.gangs[("team", "job-w0")].asked == 0.0


def test_a_request_outlives_a_restart_and_is_not_made_twice() -> None:
    cluster, _ = full(REQUEST)
    after = Muster(cluster, REQUEST)
    after.settle()
    assert asked(cluster) == ["job-w0"]
    cluster.nodes["n1"] = node("n1", 8)
    after.settle()
    assert "job-w0" not in cluster.requests, "the next leader takes it back"


def test_a_limit_of_two_asks_for_two() -> None:
    cluster, _ = full(Profile(asking=Asking("provisioning-request", after=30.0, limit=2)), waiting=3)
    assert cluster.requests == {"job-w0", "job-w1"}


def test_a_job_that_no_node_could_ever_hold_is_asked_for_too() -> None:
    """Its group of nodes may have been scaled to nothing."""
    cluster = FakeCluster(nodes=0)
    cluster.job("train", 2, gpus=4)
    muster = Muster(cluster, REQUEST)
    muster.settle()
    cluster.now += 31
    muster.settle()
    assert cluster.requests == {"job-train"}


def test_a_refused_request_is_tried_again_after_a_minute() -> None:
    cluster = FakeCluster(nodes=0)
    cluster.job("train", 1, gpus=4)
    muster = Muster(cluster, REQUEST)
    muster.settle()
    cluster.now += 31
    refused = cluster.carry_out
    cluster.carry_out = lambda a: (
        [Outcome(a, 404)] if isinstance(a, CreateProvisioningRequest) else refused(a)
    )  # type: ignore[method-assign]
    muster.settle()
    cluster.carry_out = refused  # type: ignore[method-assign]
    cluster.now += 50
    muster.settle()
    assert cluster.requests == set()
    cluster.now += 11
    muster.settle()
    assert cluster.requests == {"job-train"}


def test_a_request_that_brought_nothing_is_made_again_after_ten_minutes() -> None:
    cluster, muster = full(REQUEST)
    cluster.now += 600
    muster.settle()
    assert asked(cluster) == ["job-w0", "job-w0"]
    assert cluster.requests == {"job-w0"}


def test_ungating_shows_the_minimum_to_an_autoscaler_and_binds_nobody_before_all_have_a_place() -> None:
    cluster, muster = full(UNGATE)
    shown = [a.pod for a in cluster.sent if isinstance(a, Expose)]
    assert sorted(p.name for p in cluster.pods.values() if p.phase is Phase.UNGATED) == sorted(shown)
    assert {name.rsplit("-", 2)[0] for name in shown} == {"w0"}
    assert len(shown) == 2
    assert muster.state("job-w0") == "Waiting"
    assert muster.ledger.created_ungated == set()
    after = Muster(cluster, UNGATE)
    after.settle()
    assert not [s for s in cluster.said if s.reason == "CreatedUngated"], "it was us"
    cluster.nodes["n1"] = node("n1", 4)
    after.settle()
    assert after.state("job-w0") == "Waiting", "one of two would fit"
    cluster.nodes["n2"] = node("n2", 4)
    after.settle()
    assert after.state("job-w0") == "Running"
    nominated = [a.node for a in cluster.sent if isinstance(a, Nominate)]
    assert sorted(nominated) == ["n1", "n2"]
    assert not [a for a in cluster.sent if isinstance(a, Ungate) and "w0" in a.pod], "its gates were off"
