"""GPUs that come free beside a job in place are its own to take, whoever stands before it in the policy's order."""

from __future__ import annotations

import pytest

from tests.cluster_fake import node
from tests.core.devices.circle import Circle


@pytest.mark.parametrize("last", range(6))
def test_gpus_that_a_job_leaves_are_its_neighbours_wherever_it_is_in_the_order(last: int) -> None:
    """Max-min grants them to the earliest of all jobs, and these are on other nodes."""
    circle = Circle(gpus=2, nodes=6)
    for at in range(12):
        circle.train(f"j{at}x", "1,2")
    circle.seconds(12)
    on = {f"j{at}x": circle.cluster.bound(f"j{at}x") for at in range(12)}
    assert sorted(on.values()) == [[f"n{i}"] for i in range(6) for _ in range(2)]
    ended, beside = sorted((name for name in on if on[name] == [f"n{last}"]), reverse=True)
    circle.cluster.end(circle.pod(ended).uid)
    circle.seconds(6)
    others = on.keys() - {ended, beside}
    assert (circle.using(beside), {circle.using(name) for name in others}) == (2, {1})
    assert circle.ledger.whys[circle.key(f"job-{beside}")] == "at its maximum"


@pytest.mark.parametrize("others", [2, 6])
def test_gpus_pass_by_jobs_of_which_only_one_pod_has_room_beside_it(others: int) -> None:
    """Each of them has a pod on n0 and one on a full node: all pods grow, or none."""
    circle = Circle(gpus=1, nodes=1)
    for at in range(others):
        circle.cluster.nodes["n0"] = node("n0", at + 1)
        circle.cluster.nodes[f"x{at}"] = node(f"x{at}", 1)
        circle.train(f"p{at}x", "1,2", pods=2)
        circle.seconds(6)
    circle.cluster.nodes["n0"] = node("n0", others + 2)
    circle.train("z", "2,4")
    circle.seconds(6)
    assert (circle.using("z"), circle.uses("p0x")) == (2, [1, 1])
    circle.cluster.nodes["n0"] = node("n0", others + 4)
    circle.seconds(10)
    assert circle.using("z") == 4
