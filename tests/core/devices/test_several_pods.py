"""Jobs of several pods in place: each pod has as many GPUs, of its own node, and the gang holds
(tests/core/devices/circle.py)."""

from __future__ import annotations

import pytest

from muster.live_recipes import on_a_cluster
from muster.points import Profile
from muster.profiles import NAMED, build
from muster.types import State
from tests.cluster_fake import node
from tests.core.devices.circle import Circle
from tests.core.devices.world import GRACE, LEASE


def circle_of(nodes: int = 2, gpus: int = 4) -> Circle:
    return Circle(gpus=gpus, nodes=nodes)


def alone(gpus: str = "1,2,4", pods: int = 2) -> Circle:
    """Job a trains on all GPUs of two nodes."""
    circle = circle_of()
    circle.train("a", gpus, pods=pods)
    circle.seconds(8)
    return circle


def test_each_pod_has_as_many_gpus_of_its_own_node() -> None:
    circle = alone()
    assert sorted(circle.cluster.bound("a")) == ["n0", "n1"]
    assert circle.uses("a") == [4, 4]
    status = circle.plan.statuses[circle.key("job-a")]
    assert (status.state, status.message.split(" since")[0]) == (
        State.RUNNING,
        "in place: 8 GPUs, 4 for each of 2 pods",
    )


def test_two_pods_of_one_node_share_its_gpus_alike() -> None:
    circle = circle_of(nodes=1)
    circle.train("a", "1-3", pods=2)
    circle.seconds(8)
    assert circle.uses("a") == [2, 2]


def test_a_job_of_one_pod_takes_one_from_each_pod_of_another_or_none() -> None:
    circle = alone("1-4")
    circle.train("b", "1-4")
    circle.seconds(12)
    assert circle.uses("a") == [3, 3], "its pods have as many, although b uses GPUs of one node only"
    assert circle.using("b") == 1
    circle.seconds(12)
    assert (circle.uses("a"), circle.using("b")) == ([3, 3], 1)


def test_two_jobs_of_two_pods_share_two_nodes_and_no_pod_ends() -> None:
    circle = alone("1-4")
    before = set(circle.pods("a"))
    circle.train("b", "1-4", pods=2)
    circle.seconds(12)
    assert (circle.uses("a"), circle.uses("b")) == ([2, 2], [2, 2])
    assert before == set(circle.pods("a"))
    for uid in circle.pods("b"):
        circle.cluster.end(uid)
    circle.seconds(8)
    assert circle.uses("a") == [4, 4]


def test_nothing_is_taken_before_every_pod_that_is_to_have_it_is_ready() -> None:
    circle = alone("1-4")
    circle.late.add("b-1")
    circle.train("b", "1-4", pods=2)
    for _ in range(30):
        circle.second()
        assert (circle.uses("a"), circle.using("b")) == ([4, 4], 0)
    assert len(circle.cluster.bound("b")) == 2
    circle.late.clear()
    circle.seconds(8)
    assert (circle.uses("a"), circle.uses("b")) == ([2, 2], [2, 2])


def test_all_of_it_starts_once_all_of_it_has_its_devices() -> None:
    circle = alone("1-4")
    slow = circle.pods("a")[0]
    circle.slow.add(slow)
    circle.train("b", "1-4", pods=2)
    for _ in range(20):
        circle.second()
        assert circle.using("b") == 0, "the device of one pod isn't given yet"
    circle.slow.clear()
    circle.seconds(6)
    assert circle.uses("b") == [2, 2]


def test_a_job_deleted_before_all_of_it_was_ready_has_taken_nothing() -> None:
    circle = alone("1-4")
    circle.late.add("b-1")
    circle.train("b", "1-4", pods=2)
    circle.seconds(5)
    for uid in circle.pods("b"):
        circle.gone(uid)
    for _ in range(20):
        circle.second()
        assert circle.uses("a") == [4, 4]


def test_a_pod_that_is_lost_comes_back_with_as_many_and_the_other_keeps_its_own() -> None:
    circle = alone()
    circle.cluster.delete(circle.pods("a")[1])
    for _ in range(int(LEASE + GRACE) - 5):
        circle.second()
        assert circle.uses("a")[0] == 4
    circle.seconds(20)
    assert circle.uses("a") == [4, 4]


def test_a_pod_whose_node_is_gone_sends_the_job_back_whole_and_it_starts_with_what_there_is() -> None:
    circle = circle_of(gpus=4)
    circle.train("a", "1,2,4", pods=2)
    circle.seconds(8)
    circle.away("n1")
    circle.cluster.nodes["n2"] = node("n2", 2)
    circle.seconds(60)
    assert circle.uses("a") == [4], "a pod with two GPUs isn't what its sibling is"
    circle.seconds(int(Profile("p").timeout))
    assert (circle.cluster.bound("a"), circle.uses("a")) == (["n2", "n2"], [1, 1]), "n0 waits for a lease"


def test_an_agent_that_is_killed_waits_for_its_lease_and_its_sibling_goes_on() -> None:
    circle = alone("2,4")
    (agent,) = (one for one in circle.agents if one.alive and one.pod == circle.pods("a")[0])
    agent.die()
    for _ in range(int(LEASE + GRACE) - 2):
        circle.second()
        assert circle.uses("a") == [0, 4]
    circle.seconds(10)
    assert circle.uses("a") == [4, 4]


@pytest.mark.parametrize("at", range(1, 8))
def test_a_crash_of_muster_in_the_middle_of_a_hand_over_is_gone_on_with(at: int) -> None:
    circle = alone("1-4")
    circle.train("b", "1-4", pods=2)
    circle.seconds(at)
    circle.restart()
    circle.seconds(20)
    assert (circle.uses("a"), circle.uses("b")) == ([2, 2], [2, 2])


def test_it_waits_for_gpus_beside_each_pod_not_for_gpus_anywhere() -> None:
    circle = circle_of(nodes=1)
    circle.cluster.nodes["n1"] = node("n1", 1)
    circle.cluster.nodes["n2"] = node("n2", 1)
    circle.train("a", "2", pods=3)
    circle.seconds(3)
    status = circle.plan.statuses[circle.key("job-a")]
    assert circle.using("a") == 0
    assert (status.state, status.message) == (
        State.WAITING,
        "needs 6 GPUs (3 pods with 2 of their node each), in place: all nodes together, empty, take 2 of 3 replicas",
    )


def test_a_number_of_pods_that_changes_is_refused() -> None:
    circle = circle_of()
    circle.train("a", "1,2", pods=4, min_replicas="2")
    circle.seconds(2)
    status = circle.plan.statuses[circle.key("job-a")]
    assert status.state is State.INVALID
    assert status.message == (
        "muster.dev/gpus: expected a number of pods that does not change, since their GPUs do, found 2 to 4; request "
        "GPUs in its pods instead"
    )


def test_pods_of_several_roles_are_refused() -> None:
    circle = circle_of()
    first = circle.train("a", "1,2", pods=2)
    circle.cluster.update(first, annotations={**first.annotations, "muster.dev/role": "chief"})
    circle.seconds(2)
    status = circle.plan.statuses[circle.key("job-a")]
    assert status.message == (
        "muster.dev/gpus: expected pods of one role, found chief, worker; request GPUs in its pods instead"
    )


def test_under_a_profile_that_shares_nothing_all_pods_grow_alike() -> None:
    circle = circle_of()
    circle.profile = Profile("shares nothing")
    circle.restart()
    circle.cluster.job("plain", 1, 2)
    circle.train("a", "1-4", pods=2)
    circle.seconds(12)
    assert circle.uses("a") == [1, 1], "the node that they are on is full"
    circle.cluster.end(next(p.uid for p in circle.cluster.pods.values() if p.name.startswith("plain")))
    circle.seconds(12)
    assert circle.uses("a") == [2, 2]


def test_reshape_leaves_a_job_that_no_node_takes_whole_on_its_nodes() -> None:
    circle = Circle(gpus=4, nodes=2)
    circle.profile = build("reshape", {}, {"reshape": on_a_cluster(NAMED["reshape"], False, "")})
    circle.restart()
    circle.train("a", "4", pods=2)
    circle.seconds(10)
    pods = circle.pods("a")
    assert circle.uses("a") == [4, 4]
    circle.seconds(150)  # longer than a gang that is not whole keeps its places
    assert (circle.pods("a"), circle.uses("a")) == (pods, [4, 4])


def test_a_job_is_to_have_fewer_before_its_last_pod_is_bound() -> None:
    """It has not started yet, and says so: its GPUs count as bound in the plan, and one of its pods is not."""
    circle = circle_of(gpus=8, nodes=1)
    circle.cluster.job("plain", 1, 1)
    circle.train("a", "1-3", pods=2)
    circle.seconds(1)
    circle.train("b", "1-3", pods=2)
    circle.seconds(1)
    status = circle.plan.statuses[circle.key("job-a")]
    assert (status.state, status.message) == (
        State.STARTING,
        "its pods start; they are to have 4 GPUs, 2 for each of 2 pods",
    )
    circle.seconds(8)
    assert circle.plan.statuses[circle.key("job-a")].state is State.RUNNING
    assert sorted(circle.uses("a") + circle.uses("b")) == [1, 1, 2, 2]
